"""scripts/device_check.py and its parts, on a CPU: the same code paths and static shapes, no recorded graph."""

import gzip
import json
import runpy

import numpy as np
import pytest

from benchmarks.check import engine
from benchmarks.cost.curve import load_curve
from benchmarks.models.shapes import forward_work
from goose.engine.lm import TreeLM
from paths import REPO
from toy import P0, tiny_model

ROOT = REPO


def test_the_two_engines_agree_and_the_check_says_so():
    found = engine.exactness("cpu", n_trees=12)
    assert found.max_difference < 1e-4 < found.logit_spread
    assert (found.equal_choices, found.equal_outputs) == (1.0, True)
    assert found.n_rows > 100


def test_a_wrong_engine_is_seen(monkeypatch):
    score = TreeLM.score

    def shifted(lm, tree):
        logits = score(lm, tree)
        return logits.roll(1, 0) if lm.engine == "graph" else logits

    monkeypatch.setattr(TreeLM, "score", shifted)
    found = engine.exactness("cpu", n_trees=6)
    assert found.max_difference > 1e-2
    assert found.equal_choices < 1
    assert not found.equal_outputs


def test_scattered_trees_are_trees_of_the_asked_size():
    rng = np.random.default_rng(0)
    for n in (1, 2, 128):
        tree = engine.scattered_tree(rng, n, 1024)
        assert tree.n_nodes == n
        assert len(set(tree.tokens.tolist())) == n


def test_plain_speed_is_held_against_the_bytes_that_must_be_read():
    lm = TreeLM(tiny_model())
    speed = engine.plain_speed(lm, bandwidth=1e9, context=32, n_new=16)
    n_bytes = forward_work(lm.model.config, 1, 40, 4).n_bytes
    assert speed.limit_tokens_per_s == pytest.approx(1e9 / n_bytes)
    assert speed.share_of_limit == speed.tokens_per_s / speed.limit_tokens_per_s > 0


def test_host_work_is_given_by_part_and_as_a_share_of_a_step_with_a_full_tree():
    lm = TreeLM(tiny_model())
    found = engine.host_work(lm, [engine.repeating_prompt(lm.vocab_size), P0], n_new=24, node_budget=20)
    assert set(found) == {
        "draft_ms", "walk_ms", "observe_ms", "host_ms", "mask_ms", "launch_ms", "step_ms", "host_share", "n_steps",
    }  # fmt: skip
    assert min(found.values()) > 0
    assert max(found[f"{part}_ms"] for part in ("draft", "walk", "observe")) < found["host_ms"] < found["step_ms"]
    assert found["host_share"] == found["host_ms"] / found["step_ms"]


def test_host_work_of_no_full_tree_is_none():
    assert engine.host_work(TreeLM(tiny_model()), [[1, 2, 3]], n_new=1, node_budget=60) == {}


def test_commit_is_timed_on_the_models_own_shape():
    lm = TreeLM(tiny_model())
    lm.prefill(P0, reserve=8)
    assert engine.commit_us(lm, context=100, n_path=5, repeats=3) > 0
    assert lm.n_committed < 100  # on a cache of its own


def test_rows_are_aligned():
    assert engine.as_text([{"a": 1, "bb": 0.123456}, {"a": 10, "bb": 2.0}]) == " a      bb\n 1  0.1235\n10       2"
    assert engine.as_text([]) == "(none)"


def test_the_script_runs_every_part_and_keeps_what_it_prints(monkeypatch, capsys, tmp_path):
    recordings = tmp_path / "model.jsonl.gz"
    text = [5, 6, 7, 8, 9, 10] * 20
    with gzip.open(recordings, "wt") as file:
        for name in ("a", "b"):
            line = {"id": name, "dataset": "d", "category": "c", "turn": 0, "prompt_ids": text[:30],
                    "output_ids": [*text, 11]}  # fmt: skip
            file.write(json.dumps(line) + "\n")
    arguments = ["--device", "cpu", "--size", "small", "--lengths", "32", "--repeats", "1", "--turns", "1"]
    monkeypatch.setattr("sys.argv", ["x", *arguments, "--recordings", str(recordings), "--out", str(tmp_path / "out")])
    runpy.run_path(str(ROOT / "scripts" / "device_check.py"), run_name="__main__")
    printed = capsys.readouterr().out
    kept = json.loads((tmp_path / "out" / "check.json").read_text())
    for name in ("exactness, graph against eager in fp32", "machine", "verify cost, graph", "plain decoding, eager",
                 "host work at B = 60, graph",
                 "teacher-forced timed replay, text recorded, weights random"):  # fmt: skip
        assert f"== {name} (" in printed
        assert name in kept
    assert [row["method"] for row in kept["teacher-forced timed replay, text recorded, weights random"]] == [
        "ar", "pld", "goose_context_only",
    ]  # fmt: skip
    recordings.unlink()
    with pytest.raises(SystemExit, match=r"error: .*model\.jsonl\.gz"):  # before any work, and the figures stay
        runpy.run_path(str(ROOT / "scripts" / "device_check.py"), run_name="__main__")
    assert json.loads((tmp_path / "out" / "check.json").read_text()) == kept
    assert {load_curve(file).engine for file in (tmp_path / "out").glob("llama-small-*.json")} == {"eager", "graph"}
