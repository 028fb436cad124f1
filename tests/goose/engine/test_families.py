"""Every family in FAMILIES against transformers' own forward without a cache; every other with its reason.

Tiny random models with what distinguishes the family switched on (TINY_FAMILIES) and norms that are not all ones. Rows
are compared as numbers, so an argmax that happens to agree hides nothing.
"""

import numpy as np
import pytest
import torch
import transformers

from baselines.autoregressive import AutoregressiveDrafter
from goose.engine.decode import decode
from goose.engine.families import FAMILIES, REFUSED, head_dim, unsupported_reason
from goose.engine.lm import ENGINES, TreeLM
from goose.engine.tree import DraftTree
from toy import TINY_FAMILIES, random_tree, tiny_model

LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
VARIANTS = {
    **{family: (family, {}) for family in FAMILIES},
    "llama 3": ("llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "phi3, whole rotation": ("phi3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
    "phi3, no narrow window": ("phi3", {"sliding_window": 512}),
    "gemma, one K/V head": ("gemma", {"num_key_value_heads": 1}),
    "mixtral, experts one by one": ("mixtral", {"experts_implementation": "eager"}),
    "mixtral, experts grouped": ("mixtral", {"experts_implementation": "grouped_mm"}),
    "qwen3_moe, experts grouped": ("qwen3_moe", {"experts_implementation": "grouped_mm", "norm_topk_prob": True}),
}
TREES = (1, 30, 2, 12)  # nodes of a step's tree


@pytest.fixture(scope="module")
def models():
    """By variant, made once."""
    made = {}

    def model_of(variant: str) -> torch.nn.Module:
        if variant not in made:
            made[variant] = model = tiny_model(VARIANTS[variant][0], **VARIANTS[variant][1])
            torch.manual_seed(1)
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.ndim == 1:
                        parameter.add_(torch.randn_like(parameter) / 3)
        return made[variant]

    return model_of


@torch.no_grad()
def plain_logits(model, ids) -> torch.Tensor:
    """[L, V] of a cache-free forward."""
    return model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0]


def expected_rows(model, context, tree: DraftTree) -> torch.Tensor:
    """[n, V], one cache-free forward a node."""
    return torch.stack([plain_logits(model, [*context, *tree.tokens[row].tolist()])[-1] for row in tree.ancestor_mask])


def worst(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


def engines_of(variant: str) -> list[str]:
    return [engine for engine in ENGINES if engine != "graph" or "experts" not in variant]


EVERY = [pytest.param(v, e, id=f"{v}, {e}") for v in VARIANTS for e in engines_of(v)]


@pytest.mark.parametrize(("variant", "engine"), EVERY)
def test_prefill_trees_layers_and_commits_equal_forwards_without_a_cache(models, variant, engine):
    """Several steps; every other tree is scored in two layers (extend). Past 256 rows for engine "graph"'s buckets."""
    model, rng = models(variant), np.random.default_rng(5)
    context = rng.integers(64, size=235 if engine == "graph" else 20).tolist()
    lm = TreeLM(model, engine=engine)
    assert lm.engine == engine
    spread = plain_logits(model, context)[-1].std()
    assert spread > 0.1  # a model whose logits are all alike would pass
    bound = 1e-4 * float(spread)
    assert worst(lm.prefill(context, 120)[0], plain_logits(model, context)[-1]) < bound
    for step, n_nodes in enumerate(TREES):
        tree = random_tree(rng, int(rng.integers(64)), n_nodes, 64)
        first = tree.n_nodes // 2 if step % 2 else 0
        if first:
            lm.score(DraftTree(*(column[:first] for column in (tree.tokens, tree.parents, tree.sources, tree.scores))))
        expected = expected_rows(model, context, tree)[first:]
        assert worst(lm.extend(tree, first), expected) < bound
        path = np.flatnonzero(tree.ancestor_mask[rng.integers(tree.n_nodes)]).tolist()
        lm.commit(path)
        context += tree.tokens[path].tolist()
        assert lm.n_committed == len(context)


@pytest.mark.parametrize(("variant", "engine"), EVERY)
def test_plain_decoding_equals_the_models_own_argmax_without_a_cache(models, variant, engine):
    model, context = models(variant), [5, 6, 7, 8]
    said = decode(TreeLM(model, engine=engine), context, AutoregressiveDrafter(), max_new_tokens=12).output_ids
    for token in said:
        best = plain_logits(model, context)[-1].topk(2)
        assert float(best.values[0] - best.values[1]) > 1e-4  # no tie that rounding could decide
        assert token == int(best.indices[0])
        context = [*context, token]


@pytest.mark.parametrize("family", FAMILIES)
def test_in_half_precision_the_engines_agree_up_to_rounding(family):
    model = tiny_model(family).bfloat16()
    tree, rows = random_tree(np.random.default_rng(6), 3, 12, 64), {}
    for engine in ENGINES:
        lm = TreeLM(model, engine=engine)
        lm.prefill([5, 6, 7, 8], 60)
        rows[engine] = lm.score(tree).float()
        assert rows[engine].shape == (tree.n_nodes, 64)
    assert worst(rows["graph"], rows["fused"]) < 0.2 * float(rows["eager"].std())
    assert float((rows["fused"] - rows["eager"]).std()) < 0.1 * float(rows["eager"].std())


def test_what_runs_as_the_models_own_module_is_said():
    notes = {family: TreeLM(tiny_model(family), engine="fused").engine_note for family in FAMILIES}
    own = {"gemma": "GemmaRMSNorm", "mixtral": "MixtralSparseMoeBlock", "qwen2_moe": "Qwen2MoeSparseMoeBlock"}
    own["qwen3_moe"] = "Qwen3MoeSparseMoeBlock"
    assert {family for family, note in notes.items() if note} == set(own)
    for family, name in own.items():
        assert notes[family] == f"these parts run as the model's own modules: {name}"
    assert TreeLM(tiny_model(), attention="sdpa").engine_note == "attention 'sdpa' is transformers' own"


# --- experts and CUDA graphs


@pytest.mark.parametrize("implementation", ["eager", "grouped_mm"])
def test_engine_graph_refuses_experts_whose_shapes_may_depend_on_the_data(implementation):
    model = tiny_model("mixtral", experts_implementation=implementation)
    with pytest.raises(ValueError, match=rf"'graph' cannot run .*experts_implementation='{implementation}'\) may take"):
        TreeLM(model, engine="graph")


@pytest.mark.parametrize(("implementation", "recordable"), [("eager", False), ("batched_mm", True)])
@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_which_experts_have_no_shape_that_depends_on_the_data(family, implementation, recordable):
    """Tensors without values know shapes alone, so an operation whose shape depends on values fails."""
    from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

    block = tiny_model(family, experts_implementation=implementation).model.layers[1].mlp
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.randn(1, 5, 64)
        if recordable:
            assert block(x).shape == x.shape
        else:
            with pytest.raises(DynamicOutputShapeException):
                block(x)


# --- refused


def test_every_family_has_a_tiny_model_and_none_is_both_supported_and_refused():
    assert set(TINY_FAMILIES) == set(FAMILIES)
    assert not set(REFUSED) & set(FAMILIES)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (transformers.Gemma2Config(), "family 'gemma2' is not supported: some of its layers attend within a sliding"),
        (transformers.Gemma3TextConfig(), "family 'gemma3_text' is not supported: some of its layers attend within"),
        (transformers.GptOssConfig(), "family 'gpt_oss' is not supported: some of its layers attend within a sliding"),
        (transformers.MambaConfig(), "family 'mamba' is not supported: its recurrent layers"),
        (transformers.DeepseekV3Config(), "family 'deepseek_v3' is not supported: its latent attention"),
        (transformers.GPT2Config(), r"family 'gpt2' is not supported (supported: llama, mistral, "),
        (transformers.Phi3Config(sliding_window=2047), "this phi3 has sliding-window"),
        (transformers.MixtralConfig(sliding_window=4096), "this mixtral has sliding-window"),
        (transformers.Qwen3MoeConfig(use_sliding_window=True), "this qwen3_moe has sliding-window"),
        (transformers.Qwen2MoeConfig(use_sliding_window=True), "this qwen2_moe has sliding-window"),
        (transformers.SmolLM3Config(use_sliding_window=True, sliding_window=64), "this smollm3 has sliding-window"),
        (transformers.GemmaConfig(use_bidirectional_attention=True), "this gemma attends to later tokens"),
        (
            transformers.Phi3Config(
                rope_parameters={
                    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 48, "long_factor": [2.0] * 48,
                    "original_max_position_embeddings": 2048,
                }
            ),
            "rope_type=longrope",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_verified_exactly_is_refused_with_the_reason(config, reason):
    assert reason in unsupported_reason(config)


@pytest.mark.parametrize("name", ["resid_pdrop", "attention_dropout"])
def test_a_model_in_training_mode_is_refused_when_it_would_drop_something(name):
    model = tiny_model("phi3", **{name: 0.1})
    TreeLM(model)
    with pytest.raises(ValueError, match="training mode, where dropout changes its output"):
        TreeLM(model.train())


def test_the_width_of_a_head_is_the_configs_or_the_hidden_size_split_among_the_heads():
    assert head_dim(transformers.LlamaConfig(hidden_size=64, num_attention_heads=4, head_dim=24)) == 24
    assert head_dim(transformers.Phi3Config(hidden_size=64, num_attention_heads=4)) == 16
