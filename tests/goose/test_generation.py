"""generate_with inside transformers' generate: the same tokens, the same limits, and a word on what it ignores."""

import warnings

import pytest
import torch
from transformers import DynamicCache

import goose
from baselines.autoregressive import AutoregressiveDrafter
from baselines.pld import PromptLookupDrafter
from toy import DENSE_FAMILIES, P0, TREE7_PROMPT, tiny_model

DRAFTERS = {"ar": AutoregressiveDrafter, "pld": PromptLookupDrafter, "goose": goose.GooseDrafter}
REPEATING = [4, 5, 6, 7, 8, 4, 5, 6, 7, 8, 4, 5, 6]
GREEDY = {"do_sample": False, "max_new_tokens": 40, "eos_token_id": None}


@pytest.fixture(scope="module")
def models():
    return {family: tiny_model(family) for family in DENSE_FAMILIES}


@pytest.fixture(autouse=True)
def _no_unexpected_warning():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="goose ignores")
        yield


def generated(model, prompt, drafter=None, **options) -> list[int]:
    """The new tokens; of plain generate without a drafter."""
    if drafter is not None:
        options["custom_generate"] = goose.generate_with(drafter)
    out = model.generate(torch.tensor([prompt]), **{**GREEDY, **options})
    assert out.shape[0] == 1
    assert out[0, : len(prompt)].tolist() == prompt
    return out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("drafter", DRAFTERS.values(), ids=DRAFTERS)
@pytest.mark.parametrize("family", DENSE_FAMILIES)
def test_the_output_is_greedy_generates_own(models, family, drafter):
    for prompt in ([3], TREE7_PROMPT, P0, REPEATING):
        expected = generated(models[family], prompt)
        assert len(expected) == 40
        assert generated(models[family], prompt, drafter()) == expected


def test_one_callable_serves_many_prompts_and_models(models):
    run = goose.generate_with(goose.GooseDrafter())
    for family in ("llama", "qwen3", "llama"):
        for prompt in (P0, [3], REPEATING * 3, P0):
            out = models[family].generate(torch.tensor([prompt]), custom_generate=run, **GREEDY)
            assert out[0, len(prompt) :].tolist() == generated(models[family], prompt)


def test_the_result_has_the_prompts_type_and_device(models):
    prompt = torch.tensor([P0])
    out = models["llama"].generate(prompt, custom_generate=goose.generate_with(goose.GooseDrafter()), **GREEDY)
    assert (out.dtype, out.device, tuple(out.shape)) == (prompt.dtype, prompt.device, (1, len(P0) + 40))


@pytest.mark.parametrize("n", [1, 2, 5, 17])
@pytest.mark.parametrize("budget", [1, 60])
def test_both_length_limits_are_met(models, n, budget):
    run = goose.generate_with(goose.GooseDrafter(), node_budget=budget)
    expected = generated(models["llama"], P0)[:n]
    for limit in ({"max_new_tokens": n}, {"max_new_tokens": None, "max_length": len(P0) + n}):
        out = models["llama"].generate(torch.tensor([P0]), custom_generate=run, **{**GREEDY, **limit})
        assert out[0, len(P0) :].tolist() == expected


def test_an_eos_id_a_list_of_them_or_none_end_the_output_as_in_generate(models):
    model = models["llama"]
    tokens = generated(model, P0)
    early, late = tokens[6], tokens[20]
    for eos in (early, late, [late], [late, early], [99, early], tokens[0], None):
        expected = generated(model, P0, eos_token_id=eos)
        assert generated(model, P0, goose.GooseDrafter(), eos_token_id=eos) == expected
    assert generated(model, P0, goose.GooseDrafter(), eos_token_id=early)[-1] == early


def test_the_generation_configs_own_eos_is_read(models):
    model = models["llama"]
    eos = generated(model, P0)[6]
    run, before = goose.generate_with(goose.GooseDrafter()), model.generation_config.eos_token_id
    try:
        for model.generation_config.eos_token_id in (eos, [eos]):
            out = model.generate(torch.tensor([P0]), custom_generate=run, max_new_tokens=40, do_sample=False)
            assert out[0, -1] == eos
            assert out[0, len(P0) :].tolist() == generated(model, P0, eos_token_id=eos)
    finally:
        model.generation_config.eos_token_id = before


def test_goose_samples_with_its_own_temperature_and_seed(models):
    model = models["llama"]

    def sampled(drafter, seed):
        run = goose.generate_with(drafter, temperature=8.0, seed=seed)
        return model.generate(torch.tensor([P0]), custom_generate=run, **GREEDY)[0].tolist()

    assert sampled(goose.GooseDrafter(), 1) == sampled(AutoregressiveDrafter(), 1) != sampled(goose.GooseDrafter(), 2)


# --- settings that would make "greedy" something else are ignored, and said to be


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"do_sample": True, "top_k": 0}, "sampling settings"),  # no logits processor comes of it
        ({"do_sample": True}, "TopKLogitsWarper"),
        ({"do_sample": True, "temperature": 0.3, "top_p": 0.9, "top_k": 0}, "TemperatureLogitsWarper"),
        ({"repetition_penalty": 1.5}, "RepetitionPenaltyLogitsProcessor"),
        ({"no_repeat_ngram_size": 2}, "NoRepeatNGramLogitsProcessor"),
    ],
)
@pytest.mark.parametrize("where", ["call", "config"])
def test_sampling_settings_and_penalties_are_ignored_with_a_warning(options, named, where):
    model = tiny_model()
    expected = generated(model, P0)
    call = {"max_new_tokens": 40, "eos_token_id": None}
    if where == "config":
        for name, value in options.items():
            setattr(model.generation_config, name, value)
    else:
        call |= options
    with pytest.warns(UserWarning, match=f"goose ignores .*{named}"):
        out = model.generate(torch.tensor([P0]), custom_generate=goose.generate_with(goose.GooseDrafter()), **call)
    assert out[0, len(P0) :].tolist() == expected


# --- refusals


def refused(model, message, prompt=(P0,), **options):
    before, run = model.config._attn_implementation, goose.generate_with(goose.GooseDrafter())
    with pytest.raises(ValueError, match=message):
        model.generate(torch.tensor(prompt), custom_generate=run, **{**GREEDY, **options})
    assert model.config._attn_implementation == before


def test_a_padded_prompt_is_refused(models):
    mask = torch.ones(1, len(P0), dtype=torch.long)
    mask[0, :2] = 0
    refused(models["llama"], "one unpadded sequence", attention_mask=mask)
    mask[:] = 1
    assert generated(models["llama"], P0, goose.GooseDrafter(), attention_mask=mask) == generated(models["llama"], P0)


def test_a_batch_and_several_sequences_a_prompt_are_refused(models):
    refused(models["llama"], "batch size must be 1, got 2 sequences", prompt=(P0, P0))
    refused(models["llama"], "no beam search, got num_beams=3", num_beams=3)


def test_arguments_that_would_change_the_answer_are_refused(models):
    model = models["llama"]
    ids = torch.tensor([P0])
    refused(model, "pass input_ids alone", inputs_embeds=model.get_input_embeddings()(ids).detach())
    refused(model, "numbers positions from 0", position_ids=torch.arange(len(P0))[None] + 3)
    refused(model, "returns ids only", return_dict_in_generate=True, output_scores=True)


def test_a_model_that_was_moved_between_calls_is_taken_as_it_is_now():
    model, run = tiny_model(), goose.generate_with(goose.GooseDrafter())
    for dtype in (torch.float32, torch.bfloat16):
        model.to(dtype)
        out = model.generate(torch.tensor([P0]), max_new_tokens=4, do_sample=False, custom_generate=run)
        assert out.shape == (1, len(P0) + 4)


def test_foreign_stopping_criteria_are_refused_by_name(models):
    refused(models["llama"], "MaxTimeCriteria", max_time=60.0)
    refused(models["llama"], "function", stopping_criteria=[lambda *_, **__: torch.tensor([False])])


@pytest.mark.filterwarnings("ignore::FutureWarning")  # the argument is called `cache` from 5.2x on
def test_a_cache_that_holds_tokens_is_refused(models):
    model = models["llama"]
    with torch.no_grad():
        filled = model(input_ids=torch.tensor([P0[:5]]), use_cache=True).past_key_values
    refused(model, "cannot continue from", past_key_values=filled)
    assert generated(model, P0, goose.GooseDrafter(), past_key_values=DynamicCache()) == generated(model, P0)


def test_a_model_that_cannot_be_verified_is_refused(models):
    refused(tiny_model("mistral", sliding_window=8), "sliding-window")


# goose_opt, which learns what a forward costs by itself


def test_goose_opt_works_in_three_lines_and_measures_once_for_a_shape(models, tmp_path, monkeypatch):
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path))
    monkeypatch.setattr("goose.engine.timing.MAX_VISITS", 1)
    run = goose.generate_with(goose.GooseOptDrafter())
    for prompt in (P0, REPEATING):
        out = models["llama"].generate(torch.tensor([prompt]), custom_generate=run, **GREEDY)
        assert out[0, len(prompt) :].tolist() == generated(models["llama"], prompt)
    (kept,) = (tmp_path / "cost").iterdir()
    before = kept.stat().st_mtime_ns
    drafter = goose.GooseOptDrafter()
    found = goose.decode(models["llama"], P0, drafter, max_new_tokens=40)
    assert found.output_ids == generated(models["llama"], P0)
    assert kept.stat().st_mtime_ns == before
    assert drafter.sized_by.startswith("quickly measured verify cost of this llama of shape ")


def test_a_drafter_is_prepared_once_for_a_model_and_outside_the_clock(models, monkeypatch):
    prepared = []

    class Preparing(AutoregressiveDrafter):
        def prepare(self, lm):
            prepared.append(lm)
            clock[0] += 1000.0

    clock = [0.0]
    monkeypatch.setattr("goose.engine.decode.perf_counter", lambda: clock[0])
    lm = goose.TreeLM(models["llama"])
    found = goose.decode(lm, P0, Preparing(), max_new_tokens=4)
    assert prepared == [lm]
    assert (found.prefill_s, found.decode_s) == (0.0, 0.0)


def test_goose_opt_learns_a_cost_anew_for_another_model_only(models):
    class Cost:
        def __init__(self):
            self.seen = []

        def prepare(self, lm):
            self.seen.append(lm)

        def __call__(self, n, context):
            return 1.0 if self.seen[-1] is first else n

    first, second = (goose.TreeLM(models[family]) for family in ("llama", "qwen3"))
    cost = Cost()
    drafter = goose.GooseOptDrafter(cost=cost)
    trees = [goose.decode(lm, REPEATING, drafter, max_new_tokens=20).steps.trees for lm in (first, first, second)]
    assert cost.seen == [first, second]
    assert max(tree.n_nodes for tree in trees[0]) > 1
    assert [tree.n_nodes for tree in trees[2]] == [1] * len(trees[2])  # a node never pays there
