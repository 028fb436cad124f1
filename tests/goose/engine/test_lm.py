"""TreeLM against the plain Hugging Face model: always a cache-free forward over the prompt and a node's ancestors."""

import numpy as np
import pytest
import torch

from goose.engine.graph import length_bucket
from goose.engine.lm import ENGINES, TreeLM
from goose.engine.tree import CONTEXT, DraftTree, chain, single_node
from toy import DENSE_FAMILIES, P0, TREE7, TREE7_PROMPT, random_tree, tiny_model

PROMPT13 = [*TREE7_PROMPT, 41, 3, 3, 60]
WAYS = {
    "eager grouped": {"engine": "eager"},
    "eager sdpa": {"engine": "eager", "attention": "sdpa"},
    "eager eager": {"engine": "eager", "attention": "eager"},
    "fused": {"engine": "fused"},
    "graph": {"engine": "graph"},
    "graph padded": {"engine": "graph", "node_buckets": (16,)},
    "graph exact and padded": {"engine": "graph", "node_buckets": (7, 64)},
    "graph too small": {"engine": "graph", "node_buckets": (2, 3)},
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@pytest.fixture(scope="module")
def models():
    """The tiny models, made once; tests leave them as they found them."""
    return {family: tiny_model(family) for family in DENSE_FAMILIES}


@torch.no_grad()
def plain_logits(model, ids) -> torch.Tensor:
    """[L, V] of a cache-free forward."""
    return model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0]


def expected_rows(model, prompt, tree: DraftTree) -> torch.Tensor:
    """[n, V], one cache-free forward a node."""
    return torch.stack([plain_logits(model, [*prompt, *tree.tokens[row].tolist()])[-1] for row in tree.ancestor_mask])


def started(model, prompt, reserve=64, **options) -> TreeLM:
    lm = TreeLM(model, **options)
    lm.prefill(prompt, reserve)
    return lm


def worst(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


# --- one tree


@every_way
@pytest.mark.parametrize("prompt", [TREE7_PROMPT, PROMPT13], ids=["prompt 9", "prompt 13"])
@pytest.mark.parametrize("family", DENSE_FAMILIES)
def test_every_row_of_tree7_equals_the_forward_over_its_ancestors(models, family, prompt, way):
    """Every row of a tree equals a forward over its path alone."""
    model = models[family]
    scored = started(model, prompt, **way).score(TREE7)
    expected = expected_rows(model, prompt, TREE7)
    assert worst(scored, expected) < 1e-4
    assert scored.argmax(-1).tolist() == expected.argmax(-1).tolist()


@pytest.mark.parametrize("engine", ["eager", "fused"])
@pytest.mark.parametrize("family", DENSE_FAMILIES)
def test_positions_counted_by_index_would_break_the_branches(models, family, engine, monkeypatch):
    """Negative control: the test above would see sequential positions; chains would not."""
    model = models[family]
    lm = started(model, TREE7_PROMPT, engine=engine)
    forward = lm._forward

    def sequential(tokens, positions, mask):
        return forward(tokens, 9 + torch.arange(tokens.shape[1])[None], mask)

    monkeypatch.setattr(lm, "_forward", sequential)
    error = (lm.score(TREE7) - expected_rows(model, TREE7_PROMPT, TREE7)).abs().amax(-1)
    assert (error[:2] < 1e-4).all()  # nodes 0 and 1 stand at their depth
    assert (error[2:] > 1e-2).all()
    line = chain(20, [23, 23, 23], CONTEXT, 9)
    assert worst(lm.score(line), expected_rows(model, TREE7_PROMPT, line)) < 1e-4


@every_way
def test_prefill_gives_the_last_prompt_row(models, way):
    for prompt in (TREE7_PROMPT, [5], P0):
        lm = TreeLM(models["llama"], **way)
        logits = lm.prefill(prompt, reserve=1)
        assert logits.shape == (1, 64)
        assert worst(logits[0], plain_logits(models["llama"], prompt)[-1]) < 1e-4
        assert lm.n_committed == len(prompt)


@every_way
def test_one_node_chain_and_large_random_trees(models, way):
    rng = np.random.default_rng(0)
    trees = [single_node(20), chain(20, [1, 2, 3, 1, 2, 3], CONTEXT, 9), random_tree(rng, 20, 90, 64)]
    lm = TreeLM(models["qwen3"], **way)
    for tree in trees:
        lm.prefill(TREE7_PROMPT, 100)
        assert worst(lm.score(tree), expected_rows(models["qwen3"], TREE7_PROMPT, tree)) < 1e-4


def test_scoring_leaves_no_trace_until_a_commit(models):
    lm = started(models["llama"], TREE7_PROMPT)
    first = lm.score(TREE7)
    lm.score(random_tree(np.random.default_rng(1), 3, 40, 64))
    assert lm.n_committed == 9
    assert worst(lm.score(TREE7), first) == 0.0


@every_way
def test_what_earlier_requests_left_changes_no_row_and_nothing_is_non_finite(models, way):
    """Other requests left NaN; then large numbers lie in every free row, so one that should be hidden shows."""
    model = models["llama"]
    lm = started(model, P0, **way)
    with torch.inference_mode():
        for block in lm._cache._blocks:
            block.fill_(torch.nan)
        lm.prefill(TREE7_PROMPT, 9)
        for block in lm._cache._blocks:
            block[..., len(TREE7_PROMPT) :, :] = 1e4
    scored = lm.score(TREE7)
    assert scored.shape == (7, 64)
    assert worst(scored, expected_rows(model, TREE7_PROMPT, TREE7)) < 1e-4
    lm.commit([0, 2, 5])
    for tree in (single_node(61), TREE7):
        assert worst(lm.score(tree), expected_rows(model, [*TREE7_PROMPT, 20, 35, 35], tree)) < 1e-4
    assert all(torch.isfinite(block).all() for block in lm._cache._blocks)


# --- committing


@every_way
@pytest.mark.parametrize("family", DENSE_FAMILIES)
def test_after_a_branch_is_accepted_every_layer_equals_the_forward_of_the_kept_tokens(models, family, way):
    """Nodes 0, 2, 5 accepted, then token 61 at position 12."""
    model, layers = models[family], []
    lm = started(model, TREE7_PROMPT, **way)
    lm.score(TREE7)
    lm.commit([0, 2, 5])
    assert lm.n_committed == 12
    hooks = [layer.register_forward_hook(lambda *a: layers.append(a[2][0, 0])) for layer in model.model.layers]
    try:
        logits = lm.score(single_node(61))
    finally:
        [hook.remove() for hook in hooks]
    kept = [*TREE7_PROMPT, 20, 35, 35, 61]
    with torch.no_grad():
        plain = model(input_ids=torch.tensor([kept]), output_hidden_states=True, use_cache=True)
    assert worst(logits[0], plain.logits[0, -1]) < 1e-4
    assert worst(layers[0], plain.hidden_states[1][0, -1]) < 1e-4
    for layer, (keys, values) in enumerate(lm._cache._layers):
        assert worst(keys[:, :, :13], plain.past_key_values.layers[layer].keys) < 1e-4
        assert worst(values[:, :, :13], plain.past_key_values.layers[layer].values) < 1e-4


@pytest.mark.parametrize("path", [[0], [0, 1, 2, 3, 4]], ids=["none accepted", "all accepted"])
def test_none_and_all_accepted_leave_the_right_number_committed(models, path):
    lm = started(models["llama"], TREE7_PROMPT)
    lm.score(chain(20, [23, 23, 6, 35], CONTEXT, 5))
    lm.commit(path)
    kept = [*TREE7_PROMPT, *[20, 23, 23, 6, 35][: len(path)]]
    assert lm.n_committed == len(kept)
    assert worst(lm.score(TREE7), expected_rows(models["llama"], kept, TREE7)) < 1e-4


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", DENSE_FAMILIES)
def test_many_random_trees_and_paths_in_a_row_stay_exact(models, family, engine):
    """Past 256 rows in one go, so that engine "graph" changes its length bucket on the way."""
    rng = np.random.default_rng(3)
    prompt = rng.integers(64, size=230).tolist() if engine == "graph" else [1]
    lm, kept = started(models[family], prompt, reserve=400, engine=engine), prompt
    for n_nodes in (1, 30, 2, 12, 50, 7):
        tree = random_tree(rng, int(rng.integers(64)), n_nodes, 64)
        assert worst(lm.score(tree), expected_rows(models[family], kept, tree)) < 1e-4
        path = np.flatnonzero(tree.ancestor_mask[rng.integers(tree.n_nodes)]).tolist()
        lm.commit(path)
        kept += tree.tokens[path].tolist()
        assert lm.n_committed == len(kept)


def test_two_lms_over_one_model_do_not_see_each_other(models):
    model = models["llama"]
    a, b = started(model, TREE7_PROMPT), started(model, P0)
    for lm, prompt in ((a, TREE7_PROMPT), (b, P0), (a, TREE7_PROMPT)):
        assert worst(lm.score(TREE7), expected_rows(model, prompt, TREE7)) < 1e-4


def test_a_tree_that_does_not_fit_the_reserved_rows_is_refused(models):
    lm = started(models["llama"], TREE7_PROMPT, reserve=6)
    with pytest.raises(ValueError, match=r"9 committed \+ 7 nodes exceed the cache's 15 rows"):
        lm.score(TREE7)


# --- prompt rows


@pytest.mark.parametrize("k", [1, 10, 64, 100])
def test_prompt_top_k_equals_topk_of_a_plain_forward_and_a_softmax_over_those_alone(models, k):
    prompt = list(np.random.default_rng(4).integers(64, size=300))  # more than two pieces
    ids, scores = started(models["qwen2"], prompt).prompt_top_k(k)
    values, expected = plain_logits(models["qwen2"], prompt).topk(min(k, 64), dim=-1)
    assert ids.shape == scores.shape == (300, min(k, 64))
    assert ids[:, 0].tolist() == expected[:, 0].tolist()
    assert np.abs(scores - values.softmax(-1).numpy()).max() < 1e-4
    assert [sorted(row) for row in ids[:50].tolist()] == [sorted(row) for row in expected[:50].tolist()]
    wanted = list(range(3, 300, 2))
    some_ids, some_scores = started(models["qwen2"], prompt).prompt_top_k(k, wanted)
    assert (some_ids[:, 0] == ids[wanted, 0]).all()
    assert np.abs(some_scores - scores[wanted]).max() < 1e-4


def test_prompt_rows_are_gone_once_a_tree_is_scored(models):
    lm = TreeLM(models["llama"])
    with pytest.raises(RuntimeError, match="call prefill first"):
        lm.prompt_top_k(3)
    lm.prefill(TREE7_PROMPT, 9)
    assert (lm.prompt_top_k(3)[0] == lm.prompt_top_k(3)[0]).all()
    lm.score(single_node(3))
    with pytest.raises(RuntimeError, match="until the first tree is scored"):
        lm.prompt_top_k(3)


# --- the model stays its owner's


@pytest.mark.parametrize("own", ["sdpa", "eager"])
@every_way
def test_the_models_own_attention_and_generate_are_untouched(way, own):
    model = tiny_model(attn_implementation=own)
    options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None}
    before = model.generate(torch.tensor([P0]), **options)
    parameters = {name: parameter.clone() for name, parameter in model.state_dict().items()}
    lm = started(model, P0, **way)
    assert model.config._attn_implementation == own
    lm.score(TREE7)
    assert model.config._attn_implementation == own
    lm.commit([0])
    assert torch.equal(model.generate(torch.tensor([P0]), **options), before)
    assert all(torch.equal(parameters[name], parameter) for name, parameter in model.state_dict().items())
    model(input_ids=torch.tensor([P0]), labels=torch.tensor([P0])).loss.backward()  # not left in inference mode


def test_the_models_own_attention_comes_back_after_a_failure(models):
    lm = started(models["llama"], TREE7_PROMPT)
    with pytest.raises(IndexError):
        lm.score(single_node(64))  # beyond the vocabulary
    assert models["llama"].config._attn_implementation == "sdpa"
    assert worst(lm.score(TREE7), expected_rows(models["llama"], TREE7_PROMPT, TREE7)) < 1e-4


# --- engines


def test_auto_is_the_fastest_engine_that_can_be_had(models):
    model = models["llama"]
    assert TreeLM(model).engine == "fused"
    assert TreeLM(model, attention="sdpa").engine == "eager"
    odd = tiny_model()
    odd.model.layers[1].mlp.up_proj = Wrapped(odd.model.layers[1].mlp.up_proj)
    assert TreeLM(odd).engine == "eager"
    assert worst(started(odd, TREE7_PROMPT).score(TREE7), expected_rows(model, TREE7_PROMPT, TREE7)) < 1e-4
    with pytest.raises(ValueError, match="products are Wrapped, where plain linear layers are expected"):
        TreeLM(odd, engine="fused")
    with pytest.raises(ValueError, match="engine 'graph' cannot run this model: attention 'sdpa'"):
        TreeLM(model, engine="graph", attention="sdpa")
    with pytest.raises(ValueError, match="choose auto, eager, fused, graph"):
        TreeLM(model, engine="compiled")


class Wrapped(torch.nn.Module):
    """A linear layer of another class, as quantised or adapted checkpoints have them."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, x):
        return self.linear(x)


def test_preparing_makes_room_and_every_static_forward_and_leaves_nothing_committed(models):
    lm = TreeLM(models["qwen3"], engine="graph", node_buckets=(1, 4, 8, 16))
    lm.prepare(300, n_nodes=7)
    assert sorted(lm._static) == [(w, w, length) for w in (1, 4, 8) for length in (256, 384)]
    assert lm._cache.capacity == 384
    lm.prefill(TREE7_PROMPT, 60)
    assert worst(lm.score(TREE7), expected_rows(models["qwen3"], TREE7_PROMPT, TREE7)) < 1e-4
    assert len(lm._static) == 6  # the prepared one was used
    lm.reserve(500)
    assert not lm._static  # the memory they stand on has moved


def test_fused_layers_are_away_when_no_forward_of_ours_runs(models):
    model = models["qwen2"]
    lm = started(model, TREE7_PROMPT)
    with pytest.raises(IndexError):
        lm.score(single_node(64))
    assert all("mlp" not in layer.__dict__ and "self_attn" not in layer.__dict__ for layer in model.model.layers)
    assert "norm" not in model.model.__dict__


def test_fused_layers_are_shared_by_the_lms_of_a_model_and_follow_its_weights():
    model = tiny_model()
    assert TreeLM(model)._fused is TreeLM(model, engine="graph")._fused
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.mul_(0.5)
    assert worst(started(model, TREE7_PROMPT).score(TREE7), expected_rows(model, TREE7_PROMPT, TREE7)) < 1e-4


def test_length_buckets_hold_their_rows_and_read_at_most_half_as_many_again():
    assert [length_bucket(n) for n in (1, 256, 257, 384, 385, 513, 769, 1025)] == [
        256,
        256,
        384,
        384,
        512,
        768,
        1024,
        1536,
    ]
    for n in range(256, 20_000, 7):
        assert n <= length_bucket(n) <= 1.5 * n
