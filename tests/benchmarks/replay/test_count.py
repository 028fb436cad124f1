"""Replays count what goose.decode counts on a model that writes the recorded text, and reach the known rates."""

import gzip
import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from conf_files import drafter_config

from baselines.autoregressive import AutoregressiveDrafter
from baselines.pld import VARIANTS, PromptLookupDrafter
from baselines.suffix import SuffixDrafter
from benchmarks import metrics
from benchmarks.errors import UserError
from benchmarks.replay.count import STARTS, replay, replay_table
from benchmarks.replay.recordings import Recording, load_recordings, recorded_next_tokens, usual_stop_ids
from goose.drafters.goose import GooseDrafter
from goose.engine.decode import decode
from goose.engine.tree import DraftTree
from paths import REPO
from toy import ScriptedDrafter, StubLM, random_tree

ROOT = REPO
REPLAYS = ROOT.parent / "shared" / "data" / "replay"
V = 8
STOP = V - 1


def recording(prompt, output, **fields) -> Recording:
    return Recording(
        **{"id": "a-1", "dataset": "a", "category": "x", "turn": 0, **fields}, prompt_ids=prompt, output_ids=output
    )


def written_by(target: Recording) -> StubLM:
    """A model that writes the recording from its prompt, and token 0 after any other text."""
    text = target.prompt_ids + target.output_ids

    def next_logits(ids):
        logits = torch.zeros(V)
        logits[text[len(ids)] if ids == text[: len(ids)] and len(ids) < len(text) else 0] = 1.0
        return logits

    return StubLM(next_logits, V)


# What the target says


def test_the_targets_token_is_recorded_only_behind_a_path_that_equals_the_recording():
    #        0: root 9 - 1: 4 (recorded) - 3: 5 (recorded) - 5: 6, the recording's end: nothing after it
    #                  - 2: 5 (not)      - 4: 5 (its parent is off the record)
    tree = DraftTree.from_lists([9, 4, 5, 5, 5, 6], [-1, 0, 0, 1, 2, 3])
    assert recorded_next_tokens(tree, [4, 5, 6]) == [4, 5, -1, 6, -1, -1]
    assert recorded_next_tokens(tree, [7]) == [7, -1, -1, -1, -1, -1]


def test_a_worked_replay():
    # The prefill gives 1. After 1 the context holds 2 3 4 1: 2 3 are right, bonus 9. Nothing is known after 9: 1.
    # Then 1 drafts 2 3 4 1 2 3 9 1: 2 is right, bonus 7 ends the output.
    target = recording([1, 2, 3, 4], [1, 2, 3, 9, 1, 2, 7])
    (line,) = replay([target], "pld", PromptLookupDrafter(), node_budget=60)
    assert line["steps"]["emitted"] == [3, 1, 2]
    assert [len(tokens) for tokens in line["steps"]["tokens"]] == [5, 1, 9]
    assert metrics.mean_acceptance_length([line]) == 2.0
    assert metrics.tau([line]) == 7 / 4
    assert metrics.draft_acceptance([line]) == 3 / 12


def test_from_the_bare_prompt_the_first_token_is_a_steps():
    (line,) = replay([recording([1, 2, 1], [2, 1, 5])], "pld", PromptLookupDrafter(), 60, start="prompt")
    assert line["steps"]["emitted"] == [3]  # after 1 the prompt holds 2 1, bonus 5
    with pytest.raises(ValueError, match="start"):
        replay([recording([1, 2, 1], [2, 1, 5])], "pld", PromptLookupDrafter(), 60, start="middle")


def random_drafter():
    rng = np.random.default_rng(5)
    return ScriptedDrafter(lambda context, budget: random_tree(rng, context[-1], budget, 4))


DRAFTERS = {
    "ar": AutoregressiveDrafter,
    **{f"pld {variant}": lambda variant=variant: PromptLookupDrafter(variant) for variant in VARIANTS},
    "suffix": lambda: SuffixDrafter(max_spec_offset=20),
    "suffix chain, warm": lambda: SuffixDrafter("chain", state="warm"),
    "goose context only": lambda: GooseDrafter(use_adjacency=False),
    "random": random_drafter,
}


@pytest.mark.parametrize("make", DRAFTERS.values(), ids=DRAFTERS.keys())
def test_a_replay_equals_decoding_with_a_model_that_writes_the_recording(make):
    rng = np.random.default_rng(2)
    targets = []
    for end in ([STOP], [], [STOP]):
        motif = rng.integers(1, 4, 6).tolist()
        output = [*motif, *rng.integers(1, 4, 10).tolist(), *motif, *motif, *end]
        targets.append(recording([*motif, *rng.integers(1, 4, 8).tolist()], output))
    targets.append(recording([1, STOP, 1], [2]))  # the prefill ends it: no step
    for budget in (2, 16):
        drafter = make()
        for target, line in zip(targets, replay(targets, "m", make(), budget, [STOP]), strict=True):
            limits = {"max_new_tokens": len(target.output_ids), "stop_ids": [STOP], "node_budget": budget}
            generation = decode(written_by(target), target.prompt_ids, drafter, **limits)
            steps, replayed = generation.steps, line["steps"]
            assert generation.output_ids == line["output_ids"]
            assert (steps.emitted, steps.paths) == (replayed["emitted"], replayed["path"])
            for column in ("tokens", "parents", "sources"):
                assert [getattr(tree, column).tolist() for tree in steps.trees] == replayed[column]


def test_a_prompt_of_one_token_is_replayed_from_either_start():
    for start in STARTS:
        for drafter in (GooseDrafter(use_adjacency=False), SuffixDrafter(), PromptLookupDrafter()):
            (line,) = replay([recording([5], [6, 7, 8, 6, 7, 8, 6, 7])], "any", drafter, 60, start=start)
            assert sum(line["steps"]["emitted"]) == 8 - (start == "prefill")


def test_a_drafter_that_needs_logits_is_refused():
    with pytest.raises(UserError, match="goose learns from the target's scores"):
        replay([recording([1], [2])], "goose", GooseDrafter(), 60)


# Files and the table


@pytest.fixture
def mixed_file(tmp_path) -> Path:
    kinds = [("mt_bench", "coding"), ("gsm8k", "math"), ("gsm8k", "math_reasoning"), ("spec_bench_other", "qa")]
    lines = [
        {
            "id": f"{i}",
            "dataset": d,
            "category": c,
            "turn": 0,
            "ref": i,
            "prompt_ids": [1, 2, 1],
            "output_ids": [2, 1, 2, STOP],
        }
        for i, (d, c) in enumerate(kinds)
    ]
    path = tmp_path / "model.jsonl.gz"
    with gzip.open(path, "wt") as out:
        out.write("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_turns_of_one_dataset_or_of_spec_bench(mixed_file):
    def ids(**chosen):
        return [turn.id for turn in load_recordings(mixed_file, **chosen)]

    assert ids() == ["0", "1", "2", "3"]
    assert ids(limit=3) == ["0", "1", "2"]
    assert ids(dataset="gsm8k") == ["1", "2"]
    assert ids(dataset="spec_bench") == ["0", "2", "3"]
    with pytest.raises(UserError, match="it has gsm8k, mt_bench, spec_bench_other"):
        ids(dataset="mbpp")


def test_a_file_of_something_else_is_refused(tmp_path):
    for name, content in (("absent", None), ("plain", b"{}"), ("other", gzip.compress(b'{"id": 1}\n'))):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UserError, match="recorded turns"):
            load_recordings(path)


def test_a_torn_file_is_refused(mixed_file, tmp_path):
    whole = mixed_file.read_bytes()
    for name, content in (("cut", whole[:-12]), ("corrupt", b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 20)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match="recorded turns"):
            load_recordings(tmp_path / name)


@pytest.mark.parametrize(
    "changed",
    [{"output_ids": "text"}, {"output_ids": 3}, {"output_ids": [1.5]}, {"prompt_ids": []}, {"prompt_ids": [-1]},
     {"output_ids": [2**70]}, {"dataset": None}],
)  # fmt: skip
def test_a_turn_that_is_no_turn_is_named(tmp_path, changed):
    turn = {"id": "t7", "dataset": "d", "category": "c", "turn": 0, "prompt_ids": [1], "output_ids": [2]}
    path = tmp_path / "model.jsonl.gz"
    path.write_bytes(gzip.compress((json.dumps(turn) + "\n" + json.dumps(turn | changed) + "\n").encode()))
    with pytest.raises(UserError, match="turn t7 has no prompt or no output"):
        load_recordings(path)


@pytest.mark.parametrize("line", [b"[1, 2]", b"null", b"", b'{"id": "\xff"}'])
def test_a_line_that_is_no_turn_is_refused(tmp_path, line):
    path = tmp_path / "model.jsonl.gz"
    path.write_bytes(gzip.compress(line + b"\n"))
    with pytest.raises(UserError, match="lines that are not recorded turns"):
        load_recordings(path)


def test_the_usual_stop_id_is_the_one_that_ends_most_turns():
    ended, cut = recording([1], [3, STOP]), recording([1], [3, 4])
    assert usual_stop_ids([ended, cut, ended]) == {STOP}
    assert usual_stop_ids([recording([1], [3]), cut, ended]) == frozenset()


def test_the_table_has_every_method_and_every_category():
    targets = [recording([1, 2, 1], [2, 1, 2]), recording([3, 4], [5, 6], dataset="b", category="y")]
    lines = {name: replay(targets, name, DRAFTERS[name](), 60) for name in ("ar", "pld hf")}
    table = replay_table(lines, "conditions")
    methods, groups = table.blocks.values()
    assert [row["method"] for row in methods] == ["ar", "pld hf"]
    assert (
        methods[0] | {"MAL": "1.000", "accepted": "n/a", "nodes": "1.0", "empty": "1.000", "steps": "3"} == methods[0]
    )
    assert [(row["dataset"], row["turns"], row["ar"], row["pld hf"]) for row in groups] == [
        ("a", "1", "1.000", "2.000"), ("b", "1", "1.000", "1.000"),
    ]  # fmt: skip


# The script

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "replay.py"))


def run_script(monkeypatch, *arguments) -> None:
    monkeypatch.setattr("sys.argv", ["replay.py", *map(str, arguments)])
    SCRIPT["main"]()


def test_the_script_prints_both_blocks_and_its_conditions(mixed_file, monkeypatch, capsys):
    run_script(monkeypatch, mixed_file, "--dataset", "gsm8k", "--budget", 7)
    printed = capsys.readouterr().out
    for text in ("MAL", "goose_context_only", "suffix", "math_reasoning", "B = 7", "2 turns", f"stop ids [{STOP}]"):
        assert text in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "pld,eagle"], "there is no method 'eagle'"),
        (["--methods", "goose"], "learns from the target's scores"),
        (["--methods", "pld,goose_opt"], "goose_opt learns from the target's scores, which a recording"),
        (["--methods", "sequoia_draft"], "sequoia_draft asks the draft model of a target"),
        (["--budget", "0"], "--budget must be at least 1"),
        (["--limit", "0"], "--limit must be at least 1"),
    ],
)
def test_the_script_refuses_in_one_sentence(mixed_file, monkeypatch, arguments, message):
    with pytest.raises(UserError, match=message):
        run_script(monkeypatch, mixed_file, *arguments)


def test_the_scripts_method_files_are_read_over_their_bases():
    elastic = drafter_config("goose_elastic")
    assert elastic["budget_mode"] == "elastic"
    assert elastic["context"]["lengths"] == [5, 4, 3]
    sequoia_draft = drafter_config("sequoia_draft")
    assert sequoia_draft["candidates"]["target"]["name"] == "smollm2"  # a run's settings are resolved


# Known rates


@pytest.mark.skipif(not REPLAYS.exists(), reason="the recorded token ids (shared/data/replay) are not here")
@pytest.mark.parametrize(
    ("model", "dataset", "documented"),
    [
        ("vicuna-7b-v1.3", "spec_bench", 1.746),
        ("vicuna-13b-v1.3", "mt_bench", 1.617),
        ("vicuna-33b-v1.3", "mt_bench", 1.483),
    ],
)
def test_prompt_lookup_reaches_the_documented_rates(model, dataset, documented):
    turns = load_recordings(REPLAYS / f"{model}.jsonl.gz", dataset)
    stop_ids = usual_stop_ids(turns)
    assert stop_ids == {2}
    pld = SCRIPT["make_drafter"]("pld")
    bare = replay(turns, "pld", pld, 60, stop_ids, start="prompt")  # how the documented rates were counted
    assert metrics.mean_acceptance_length(bare) == pytest.approx(documented, abs=0.002)
    if model == "vicuna-13b-v1.3":  # after the prefill's token, as goose.decode counts; test_pld.py has the same pair
        emitted = metrics.steps(replay(turns, "pld", pld, 60, stop_ids), "emitted")
        assert (sum(emitted), len(emitted)) == (44100, 27237)
