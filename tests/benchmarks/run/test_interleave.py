"""The harness on stub targets: what runs in which order, what a line holds, and that no prompt touches another."""

import itertools
import json

import pytest
import torch

from baselines.autoregressive import AutoregressiveDrafter
from baselines.balanced import BalancedDrafter
from baselines.pld import PromptLookupDrafter
from benchmarks.metrics import empty_draft_share, losslessness, mean_acceptance_length
from benchmarks.metrics.lossless import divergences
from benchmarks.record.run_folder import RunFolder
from benchmarks.run.interleave import CellPrompt, Settings, run_cell, schedule
from goose import AdjacencyTable, GooseDrafter, Sampling, TreeLM
from goose.drafters.oracle import OracleDrafter
from goose.engine.tree import single_node
from toy import P0, ScriptedDrafter, StubLM, chain_of, counter, tiny_model

METHODS = {"ar": AutoregressiveDrafter, "pld": PromptLookupDrafter, "goose": GooseDrafter, "iso3": BalancedDrafter}
COLUMNS = ("context", "emitted", "path", "tokens", "parents", "sources")
SECONDS = ("draft_s", "forward_s", "fetch_s", "walk_s", "commit_s", "observe_s")
KEYS = ("prompt_id", "turn", "group", "method", "repeat", "place", "prompt_sha256", "n_prompt", "error")
RESULTS = ("output_ids", "stop_reason", "prefill_s", "decode_s", "begin_s", "steps")
WARM_UP = [1, 2, 3, 1, 2]


def prompt(name: str, ids=P0) -> CellPrompt:
    return CellPrompt(name, tuple(ids), f"sha of {name}")


def settings(**fields) -> Settings:
    base = {"node_budget": 20, "max_new_tokens": 12, "stop_ids": frozenset(), "sampling": Sampling(), "repeats": 1}
    return Settings(**{**base, **fields})


@pytest.fixture
def new_folder(tmp_path):
    return lambda: RunFolder.create(tmp_path, "test", {})


def run(folder: RunFolder, prompts, methods=METHODS, lm=None, **fields) -> list[dict]:
    run_cell(folder, lm or counter(), prompts, methods, settings(**fields), WARM_UP)
    return folder.lines()


def by_key(lines: list[dict]) -> dict[tuple, dict]:
    return {(x["prompt_id"], x["method"], x["repeat"]): x for x in lines}


# Schedule


def test_every_prompt_method_and_repeat_has_exactly_one_job():
    jobs = list(schedule([prompt(q) for q in "ABCDE"], ["ar", "m", "n"], repeats=3))
    assert sorted((j.prompt.id, j.method, j.repeat) for j in jobs) == sorted(
        itertools.product("ABCDE", ["ar", "m", "n"], range(3))
    )
    assert len({j.key for j in jobs}) == len(jobs) == 45


def test_methods_run_side_by_side_and_none_always_goes_first():
    jobs = list(schedule([prompt(q) for q in "ABCD"], ["ar", "m", "n"], repeats=2))
    assert [(j.prompt.id, j.method, j.place) for j in jobs[:6]] == [
        ("A", "ar", 0), ("A", "m", 1), ("A", "n", 2), ("B", "m", 0), ("B", "n", 1), ("B", "ar", 2),
    ]  # fmt: skip
    firsts = [j.method for j in jobs if j.place == 0]
    assert firsts == ["ar", "m", "n", "ar", "m", "n", "ar", "m"]  # the second repeat begins with another method
    assert [j.repeat for j in jobs] == [0] * 12 + [1] * 12


# Lines


def test_a_line_holds_what_was_measured_in_columns_of_one_length(new_folder):
    folder = new_folder()
    lines = run(folder, [prompt("A")])
    assert len(lines) == 4
    for x in lines:
        assert tuple(x) == KEYS + RESULTS
        assert (x["prompt_id"], x["turn"], x["repeat"], x["n_prompt"]) == ("A", 0, 0, len(P0))
        assert (x["prompt_sha256"], x["error"], x["stop_reason"]) == ("sha of A", None, "length")
        assert x["output_ids"] == list(range(12, 24))
        steps = x["steps"]
        assert tuple(steps) == COLUMNS + SECONDS
        assert len({len(column) for column in steps.values()}) == 1
        assert 1 + sum(steps["emitted"]) == len(x["output_ids"])
        for tokens, parents, sources, path in zip(
            *(steps[c] for c in ("tokens", "parents", "sources", "path")), strict=True
        ):
            assert len(tokens) == len(parents) == len(sources)
            assert parents[0] == -1
            assert path[0] == 0
            assert all(parents[child] == node for node, child in itertools.pairwise(path))
        assert steps["context"][0] == len(P0)  # the forward's K/V length: the prompt, the root not in it yet
        assert all(isinstance(s, float) and s >= 0 for name in SECONDS for s in steps[name])
        assert x["decode_s"] >= sum(sum(steps[name]) for name in SECONDS) - 1e-3
    assert mean_acceptance_length([by_key(lines)["A", "ar", 0]]) == 1.0
    assert mean_acceptance_length([by_key(lines)["A", "pld", 0]]) > 3


def test_lines_are_on_the_disk_as_they_were_given(new_folder):
    folder, given = new_folder(), []
    run_cell(folder, counter(), [prompt("A"), prompt("B")], METHODS, settings(), WARM_UP, on_turn=given.append)
    assert json.loads(json.dumps(given)) == folder.lines() == RunFolder.open(folder.path).lines()


def test_a_resumed_cell_measures_nothing_twice_and_ends_with_the_same_outputs(new_folder):
    prompts = [prompt("A"), prompt("B", range(20, 40))]
    whole = by_key(run(new_folder(), prompts, repeats=2))
    half = new_folder()

    def stop_after_five(line, seen=[]):  # noqa: B006
        seen.append(line)
        if len(seen) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cell(half, counter(), prompts, METHODS, settings(repeats=2), WARM_UP, on_turn=stop_after_five)
    half.close()
    again, measured = RunFolder.open(half.path), []
    run_cell(again, counter(), prompts, METHODS, settings(repeats=2), WARM_UP, on_turn=measured.append)
    resumed = again.lines()
    assert (len(measured), len(resumed)) == (11, 16)
    assert {key: x["output_ids"] for key, x in by_key(resumed).items()} == {
        k: x["output_ids"] for k, x in whole.items()
    }
    assert {key: x["place"] for key, x in by_key(resumed).items()} == {key: x["place"] for key, x in whole.items()}
    measured.clear()
    run_cell(again, None, prompts, METHODS, settings(repeats=2), WARM_UP, on_turn=measured.append)  # nothing to do
    assert measured == []


# Prompts do not touch each other


class Recording(ScriptedDrafter):
    """Plain decoding that remembers which prompts this very instance has seen."""

    made: list["Recording"]

    def __init__(self):
        super().__init__(lambda context, budget: single_node(context[-1]))
        self.prompts, self.n_observed = [], 0
        Recording.made.append(self)

    def begin(self, prompt_ids, prefill):
        super().begin(prompt_ids, prefill)
        self.prompts.append(list(prompt_ids))

    def observe(self, tree, verdict, scored):
        self.n_observed += 1


def test_warm_up_uses_drafters_of_its_own(new_folder):
    Recording.made = []
    run(new_folder(), [prompt("A"), prompt("B", [3, 4])], {"ar": AutoregressiveDrafter, "m": Recording}, repeats=2)
    warm, measured = Recording.made
    assert warm.prompts == [WARM_UP]
    assert measured.prompts == [P0, [3, 4]] * 2
    assert measured.n_observed == 4 * 10  # 12 tokens: the prefill's, then 11 steps, the last of which is not observed


ALPHABET = {"A": [5, 6, 7, 8, 9, 10, 11, 7, 8], "B": [50, 41, 32, 50, 41, 32, 7, 8, 9]}


@pytest.mark.parametrize("state", ["cold", "warm"])
def test_a_prompt_leaves_nothing_for_the_next_one_when_cold(new_folder, state):
    # A, B, A. The warm control shows that the test can see a difference.
    prompts = [prompt("A1", ALPHABET["A"]), prompt("B", ALPHABET["B"]), prompt("A2", ALPHABET["A"])]
    methods = {
        "ar": AutoregressiveDrafter,
        "pld": lambda: PromptLookupDrafter(min_ngram=1),
        "goose": lambda: GooseDrafter(table=AdjacencyTable(state=state)),
        "elastic": lambda: GooseDrafter(table=AdjacencyTable(state=state), budget_mode="elastic"),
        "iso3": lambda: BalancedDrafter(table=AdjacencyTable(state=state)),
    }
    lines = by_key(run(new_folder(), prompts, methods, TreeLM(tiny_model()), max_new_tokens=24, node_budget=40))
    differing = set()
    for method in methods:
        first, again = lines["A1", method, 0], lines["A2", method, 0]
        assert first["output_ids"] == again["output_ids"] == lines["A1", "ar", 0]["output_ids"]
        if any(first["steps"][column] != again["steps"][column] for column in COLUMNS):
            differing.add(method)
    assert differing == (set() if state == "cold" else {"goose", "elastic", "iso3"})


# Who is told the answer


def test_what_needs_the_answer_runs_last_and_has_this_prompts(new_folder):
    jobs = list(schedule([prompt(q) for q in "ABC"], ["oracle", "ar", "m"], repeats=2, needs_answer=["oracle"]))
    assert [job.method for job in jobs[2::3]] == ["oracle"] * 6
    assert sorted({job.place for job in jobs}) == [0, 1, 2]
    lines = run(
        new_folder(), [prompt("A"), prompt("B", [3, 4])], {"ar": AutoregressiveDrafter, "oracle": OracleDrafter}
    )
    assert all(line["error"] is None for line in lines)
    outputs = {(line["prompt_id"], line["method"]): line["output_ids"] for line in lines}
    assert all(outputs[q, "oracle"] == outputs[q, "ar"] for q in "AB")


def test_without_an_answer_there_is_none_to_draft_with(new_folder):
    lines = run(
        new_folder(), [prompt("A")], {"ar": AutoregressiveDrafter, "oracle": OracleDrafter}, lm=breaks_on(P0[-1])
    )
    assert "no answer to draft with" in next(line["error"] for line in lines if line["method"] == "oracle")


# Failures


def breaks_on(*poisons: int) -> StubLM:
    """COUNTER, but every row is NaN once one of `poisons` is in the context."""
    whole = counter()

    def next_logits(ids):
        return torch.full((64,), torch.nan) if set(poisons) & set(ids) else whole._next_logits(ids)

    return StubLM(next_logits, 64)


def test_a_prompt_with_nan_logits_fails_without_timings_and_the_others_go_on(new_folder):
    # At the prefill (B), and in the middle of decoding (C reaches 50 after five tokens).
    prompts = [prompt("A"), prompt("B", [50, 1, 2]), prompt("C", [43, 44, 45]), prompt("D")]
    lines = by_key(run(new_folder(), prompts, lm=breaks_on(50)))
    assert len(lines) == 16
    for (prompt_id, method, _), x in lines.items():
        if prompt_id in "AD":
            assert x["error"] is None
            assert x["output_ids"] == list(range(12, 24)), method
        else:
            assert tuple(x) == KEYS
            assert x["error"].startswith("NonFiniteLogits: non-finite logits after position")


def test_a_model_that_breaks_on_the_warm_up_too_ends_in_failed_lines(new_folder):
    # A checkpoint that gives NaN in half precision gives it on every text.
    lines = run(new_folder(), [prompt("A")], lm=breaks_on(WARM_UP[0], P0[0]))
    assert [tuple(x) for x in lines] == [KEYS] * 4
    assert all(x["error"].startswith("NonFiniteLogits: ") for x in lines)


def test_a_prompt_too_long_for_the_model_fails_alone(new_folder):
    lines = by_key(run(new_folder(), [prompt("A"), prompt("B", range(30)), prompt("C")], lm=counter(max_positions=30)))
    assert {q: x["error"] for (q, m, _), x in lines.items() if m == "ar" and q != "B"} == {"A": None, "C": None}
    assert lines["B", "goose", 0]["error"].startswith("ValueError: the prompt's 30 tokens leave no room")
    assert [lines["A", m, 0]["stop_reason"] for m in METHODS] == ["positions"] * 4
    assert [len(lines["A", m, 0]["output_ids"]) for m in METHODS] == [8] * 4


def test_an_error_without_a_message_is_recorded_too(new_folder):
    def propose(context, budget):
        if context[: len(P0)] == P0:
            raise ValueError
        return single_node(context[-1])  # the warm-up's

    lines = by_key(
        run(new_folder(), [prompt("A")], {"ar": AutoregressiveDrafter, "m": lambda: ScriptedDrafter(propose)})
    )
    assert lines["A", "m", 0]["error"].startswith("ValueError")


# The arms are counted and stopped alike


@pytest.mark.parametrize(
    ("fields", "n_tokens", "reason"),
    [({}, 12, "length"), ({"stop_ids": frozenset({18, 60})}, 7, "stop"), ({"max_new_tokens": 1}, 1, "length")],
)
def test_every_arm_counts_ids_and_stops_at_the_same_token(new_folder, fields, n_tokens, reason):
    lines = run(new_folder(), [prompt("A")], **fields)
    assert {x["stop_reason"] for x in lines} == {reason}
    assert {tuple(x["output_ids"]) for x in lines} == {tuple(range(12, 12 + n_tokens))}
    assert {sum(x["steps"]["emitted"]) for x in lines} == {n_tokens - 1}
    assert divergences(lines, "ar", {("A", 0): P0}, judge=None) == []


def test_an_arm_that_stopped_elsewhere_is_flagged(new_folder):
    lines = run(new_folder(), [prompt("A")], {"ar": AutoregressiveDrafter, "pld": PromptLookupDrafter})
    for x in lines:
        if x["method"] == "pld":
            x["output_ids"] = x["output_ids"][:-2]
    found = divergences(lines, "ar", {("A", 0): P0}, judge=None)
    assert [(d["method"], d["index"], d["verdict"]) for d in found] == [("pld", 10, "broken")]
    assert losslessness([x for x in lines if x["method"] == "pld"], "pld", found).broken


def test_a_method_that_drafts_nothing_shows_its_empty_share_and_rejected_drafts_are_not_empty(new_folder):
    # A method that drafts nothing
    methods = {
        "ar": AutoregressiveDrafter,
        "pld": PromptLookupDrafter,
        "wrong": lambda: ScriptedDrafter(lambda context, budget: chain_of(context, [0, 0], budget)),
    }
    lines = by_key(run(new_folder(), [prompt("A", range(10, 22))], methods))
    assert empty_draft_share([lines["A", "pld", 0]]) == 1.0
    assert empty_draft_share([lines["A", "wrong", 0]]) == 0.0
    assert mean_acceptance_length([lines["A", "wrong", 0]]) == 1.0
