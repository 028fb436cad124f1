"""Conversations: every method is asked the second turn that plain decoding's first answer leads to, killed or not."""

import itertools
import json
import runpy
import sys

import pytest
import torch

from baselines.autoregressive import AutoregressiveDrafter
from baselines.pld import PromptLookupDrafter
from benchmarks.data.items import Item
from benchmarks.data.prompts import Prompt, render
from benchmarks.metrics import common_turns, losslessness, speed_up_interval, tau
from benchmarks.metrics.lossless import divergences
from benchmarks.models.tiny import tiny_tokenizer
from benchmarks.record.run_folder import RunFolder
from benchmarks.run.interleave import CellPrompt, Settings, asked_ids, longest_request, run_cell, schedule
from goose import GooseDrafter, Sampling
from paths import REPO
from tiny_sets import mt_bench, written
from toy import P0, ScriptedDrafter, StubLM, chain_of, counter

METHODS = {"ar": AutoregressiveDrafter, "pld": PromptLookupDrafter, "goose": GooseDrafter}
WARM_UP = [1, 2, 3, 1, 2]


def talk(name: str, ids=P0, n_turns: int = 2) -> CellPrompt:
    """Later turns: the first prompt, every answer so far, and [60, 10, 11], from which COUNTER goes on with 12."""

    def follow_up(outputs) -> Prompt:
        asked = [*ids, *itertools.chain(*outputs), 60, 10, 11]
        return Prompt(tuple(asked), f"sha of {name} {len(outputs)}", "chat")

    return CellPrompt(name, tuple(ids), f"sha of {name} 0", "writing", n_turns, follow_up)


def settings(**fields) -> Settings:
    base = {"node_budget": 20, "max_new_tokens": 6, "stop_ids": frozenset(), "sampling": Sampling(), "repeats": 1}
    return Settings(**{**base, **fields})


@pytest.fixture
def new_folder(tmp_path):
    return lambda: RunFolder.create(tmp_path, "test", {})


def run(folder, prompts, methods=METHODS, lm=None, on_turn=lambda line: None, **fields) -> list[dict]:
    run_cell(folder, lm or counter(), prompts, methods, settings(**fields), WARM_UP, on_turn)
    return folder.lines()


def keys(lines) -> list[tuple]:
    return [(x["prompt_id"], x["turn"], x["method"], x["repeat"]) for x in lines]


# Order


def test_turns_follow_each_other_and_methods_stay_side_by_side_and_rotate():
    prompts = [talk("A"), CellPrompt("B", (1,), ""), talk("C")]
    jobs = list(schedule(prompts, ["ar", "m", "n"], repeats=2))
    assert [(j.prompt.id, j.turn, j.method) for j in jobs[:9]] == [
        ("A", 0, "ar"), ("A", 0, "m"), ("A", 0, "n"),
        ("A", 1, "m"), ("A", 1, "n"), ("A", 1, "ar"),
        ("B", 0, "m"), ("B", 0, "n"), ("B", 0, "ar"),
    ]  # fmt: skip
    assert len({j.key for j in jobs}) == len(jobs) == 5 * 3 * 2
    assert {(j.prompt.id, j.turn) for j in jobs} == {("A", 0), ("A", 1), ("B", 0), ("C", 0), ("C", 1)}


# What is asked


def test_every_method_is_asked_the_turn_that_the_baselines_answer_leads_to(new_folder):
    wrong = {**METHODS, "m": lambda: ScriptedDrafter(lambda context, budget: chain_of(context, [0, 0], budget))}
    lines = run(new_folder(), [talk("A", n_turns=3)], wrong, repeats=2)
    assert len(lines) == 3 * 4 * 2
    for turn in range(3):
        asked = {(x["prompt_sha256"], x["n_prompt"]) for x in lines if x["turn"] == turn}
        assert asked == {(f"sha of A {turn}", len(P0) + turn * 6 + (3 if turn else 0))}
        assert {tuple(x["output_ids"]) for x in lines if x["turn"] == turn} == {tuple(range(12, 18))}
    assert {x["group"] for x in lines} == {"writing"}


def test_all_take_the_baselines_answer_even_where_a_methods_own_differs(new_folder):
    """As in half precision: a model that goes on differently after a drafted 40."""

    def follow_up(outputs):
        return Prompt((*P0, *outputs[0], 10, 11), "later", "chat")

    prompt = CellPrompt("A", tuple(P0), "first", None, 2, follow_up)
    lines = run(new_folder(), [prompt])
    lines[1]["output_ids"] = [40] * 6  # another method's first answer
    assert asked_ids([prompt], lines) == {("A", 0): tuple(P0), ("A", 1): (*P0, *range(12, 18), 10, 11)}


def test_the_longest_request_holds_every_answer_so_far():
    assert longest_request([talk("A"), CellPrompt("B", (1,) * 30, "")], 6) == len(P0) + 3 + 2 * 6
    assert longest_request([talk("A"), CellPrompt("B", (1,) * 40, "")], 6) == 40 + 6


# Killed and resumed


@pytest.mark.parametrize("n_before", [1, 2, 3, 4, 5, 7])
def test_a_cell_killed_anywhere_between_turns_ends_as_if_it_had_not_been(new_folder, n_before):
    prompts = [talk("A"), talk("B", range(20, 40))]
    whole = run(new_folder(), prompts)
    half, seen = new_folder(), []

    def stop(line):
        seen.append(line)
        if len(seen) == n_before:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(half, prompts, on_turn=stop)
    half.close()
    again = run(RunFolder.open(half.path), prompts)
    assert keys(again) == keys(whole)
    for field in ("prompt_sha256", "n_prompt", "output_ids", "place", "group"):
        assert [x[field] for x in again] == [x[field] for x in whole]


# Failures


def breaks_on(poison: int) -> StubLM:
    """COUNTER, but every row is NaN once `poison` is in the context."""
    whole = counter()
    return StubLM(lambda ids: torch.full((64,), torch.nan) if poison in ids else whole._next_logits(ids), 64)


def test_a_turn_that_follows_a_failed_baseline_is_a_failed_line_for_all_and_the_rest_goes_on(new_folder):
    prompts = [talk("A", [43, 44, 45]), talk("B")]  # A reaches 50 after five tokens
    folder = new_folder()
    lines = run(folder, prompts, lm=breaks_on(50), max_new_tokens=8)
    assert len(lines) == 12
    errors = {(x["prompt_id"], x["turn"]): x["error"] for x in lines}
    assert errors["A", 0].startswith("NonFiniteLogits")
    assert errors["A", 1] == "NoAnswer: ar failed turn 0 of this prompt, so turn 1 was not asked"
    assert (errors["B", 0], errors["B", 1]) == (None, None)
    assert {(x["prompt_sha256"], x["n_prompt"]) for x in lines if (x["prompt_id"], x["turn"]) == ("A", 1)} == {
        (None, None)
    }
    assert list(asked_ids(prompts, lines)) == [("A", 0), ("B", 0), ("B", 1)]
    assert run(RunFolder.open(folder.path), prompts, lm=None, max_new_tokens=8) == lines  # nothing is left to do


def test_a_method_that_fails_its_first_turn_is_still_asked_the_second(new_folder):
    def propose(context, budget):
        if len(context) < len(P0) + 4:
            raise ValueError("not yet")
        return chain_of(context, [0], budget)

    lines = run(new_folder(), [talk("A")], {**METHODS, "m": lambda: ScriptedDrafter(propose)})
    errors = {x["turn"]: x["error"] for x in lines if x["method"] == "m"}
    assert errors == {0: "ValueError: not yet", 1: None}


# Numbers


def test_turns_are_paired_and_judged_one_by_one_and_resampled_together(new_folder):
    lines = run(new_folder(), [talk("A"), talk("B", range(20, 40)), talk("C", range(5, 30))], repeats=2)
    turns = common_turns(lines, list(METHODS))
    assert {method: len(own) for method, own in turns.items()} == dict.fromkeys(METHODS, 3 * 2 * 2)
    assert losslessness(lines, "pld", []).n_outputs == 12
    assert divergences(lines, "ar", {}, judge=None) == []
    assert tau(turns["ar"]) == 1.0
    assert speed_up_interval(turns["pld"], turns["ar"]) is not None
    for x in lines:
        if x["method"] == "pld" and x["turn"] == 1:
            x["output_ids"] = [*x["output_ids"][:-1], 0]
    found = divergences(lines, "ar", {}, judge=None)
    assert {(d["turn"], d["index"], d["verdict"]) for d in found} == {(1, 5, "broken")}
    assert (len(found), losslessness(lines, "pld", found).n_equal) == (6, 6)


# From the command line


def test_mt_bench_in_chat_style_runs_both_turns_with_the_template(monkeypatch, tmp_path, capsys):
    written(tmp_path, "mtbench")
    arguments = [
        "model=tiny", "dataset=mtbench", f"data_dir={tmp_path}", "compare=[pld]", "limit=3", "max_new_tokens=8",
        "prompt_style=chat", f"runs_dir={tmp_path / 'runs'}",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(REPO / "run.py"), run_name="__main__")
    assert stop.value.code == 0, capsys.readouterr()
    (folder,) = (tmp_path / "runs").iterdir()
    lines = RunFolder.open(folder).lines()
    assert len(lines) == 3 * 2 * 2
    assert [x["group"] for x in lines[::4]] == ["writing", "roleplay", "reasoning"]
    record = json.loads((folder / "run.json").read_text())
    assert (record["chat_template"], record["config"]["prompt_style"]) == ("tokenizer", "chat")
    tokenizer, rows = tiny_tokenizer(), mt_bench()
    for x in lines:
        row = next(row for row in rows if str(row["question_id"]) == x["prompt_id"])
        plain = next(y for y in lines if y["prompt_id"] == x["prompt_id"] and y["method"] == "ar" and y["turn"] == 0)
        answer = tokenizer.decode(plain["output_ids"], skip_special_tokens=True).strip()
        expected = render(Item("", tuple(row["turns"]), {}), tokenizer, "chat", [answer] * x["turn"])
        assert (x["prompt_sha256"], x["n_prompt"]) == (expected.text_sha256, len(expected.ids))


def test_raw_style_asks_the_first_turn_alone(monkeypatch, tmp_path, capsys):
    written(tmp_path, "mtbench")
    arguments = ["model=tiny", "dataset=mtbench", f"data_dir={tmp_path}", "method=ar", "limit=3", "max_new_tokens=4"]
    monkeypatch.setattr(sys, "argv", ["run.py", *arguments, f"runs_dir={tmp_path / 'runs'}"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(REPO / "run.py"), run_name="__main__")
    assert stop.value.code == 0, capsys.readouterr()
    (folder,) = (tmp_path / "runs").iterdir()
    lines = RunFolder.open(folder).lines()
    assert [(x["turn"], x["n_prompt"]) for x in lines] == [(0, len(row["turns"][0])) for row in mt_bench()[::2]][:3]
    assert RunFolder.open(folder).header["chat_template"] is None
