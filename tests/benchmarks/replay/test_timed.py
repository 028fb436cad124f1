"""A recording forced through real forwards: its text comes out, and the steps are the exact replay's."""

import gzip
import json
import runpy

import numpy as np
import pytest
import torch
from conf_files import model_spec

from baselines.autoregressive import AutoregressiveDrafter
from baselines.pld import PromptLookupDrafter
from baselines.suffix import SuffixDrafter
from benchmarks import metrics
from benchmarks.cost.measure import roofline
from benchmarks.errors import UserError
from benchmarks.models.load import ModelSpec
from benchmarks.replay.count import replay
from benchmarks.replay.recordings import Recording
from benchmarks.replay.tables import time_on
from benchmarks.replay.timed import TeacherForcedLM, timed_replay
from goose.drafters.goose import GooseDrafter
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from goose.engine.tree import DraftTree
from goose.engine.verify import Sampling, fetch
from paths import REPO
from toy import ScriptedDrafter, random_tree, tiny_model

ROOT = REPO
STOP = 63
B = 16


def recording(prompt, output, name: str = "a-1") -> Recording:
    return Recording(id=name, dataset="a", category="x", turn=0, prompt_ids=prompt, output_ids=output)


def made_up(n: int = 4, seed: int = 2) -> list[Recording]:
    """Texts that repeat themselves, so that there is something to copy; every other one ends with STOP."""
    rng = np.random.default_rng(seed)
    texts = []
    for i in range(n):
        motif = rng.integers(1, 5, 6).tolist()
        output = [*motif, *rng.integers(1, 5, 10).tolist(), *motif, *motif, *([STOP] if i % 2 == 0 else [])]
        texts.append(recording([*motif, *rng.integers(1, 5, 8).tolist()], output, f"a-{i}"))
    return [*texts, recording([1, 2], [3], "no step")]


def random_drafter() -> ScriptedDrafter:
    rng = np.random.default_rng(5)
    return ScriptedDrafter(lambda context, budget: random_tree(rng, context[-1], budget, 5))


DRAFTERS = {
    "ar": AutoregressiveDrafter,
    "pld": PromptLookupDrafter,
    "suffix": SuffixDrafter,
    "suffix chain, warm": lambda: SuffixDrafter("chain", state="warm"),
    "goose context only": lambda: GooseDrafter(use_adjacency=False),
    "random": random_drafter,
}


@pytest.fixture(scope="module")
def lm() -> TreeLM:
    return TreeLM(tiny_model())


def test_steps_and_text_are_the_exact_replays(lm):
    texts = made_up()
    timed = timed_replay(lm, texts, DRAFTERS, B, [STOP])
    for name, make in DRAFTERS.items():
        exact = replay(texts, name, make(), B, [STOP])
        assert metrics.mean_acceptance_length(timed[name]) == metrics.mean_acceptance_length(exact)
        for line, other, text in zip(timed[name], exact, texts, strict=True):
            assert line["output_ids"] == other["output_ids"] == text.output_ids
            for column in ("context", "emitted", "tokens", "parents", "sources"):
                assert line["steps"][column] == other["steps"][column]
            # After the recording's end the model's own token follows; no metric reads that far.
            paths = zip(line["steps"]["path"], other["steps"]["path"], line["steps"]["emitted"], strict=True)
            assert all(own[: n + 1] == theirs[: n + 1] for own, theirs, n in paths)
            assert {key: value for key, value in other.items() if key != "steps"}.items() <= line.items()
            assert min(line["steps"]["forward_s"], default=1) > 0
            assert line["decode_s"] > 0
    assert metrics.mean_acceptance_length(timed["ar"]) == 1.0
    assert metrics.mean_acceptance_length(timed["suffix"]) > 1.2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_follows_the_recording_too(dtype):
    half = TreeLM(tiny_model().to(dtype))
    text = made_up(1)[0]
    for make in DRAFTERS.values():
        generation = decode(TeacherForcedLM(half, text), text.prompt_ids, make(), max_new_tokens=len(text.output_ids))
        assert generation.output_ids == text.output_ids


def test_only_rows_on_the_recorded_path_are_touched(lm):
    text = recording([7, 8, 9], [4, 5, 6])
    forced = TeacherForcedLM(lm, text)
    first = forced.prefill(text.prompt_ids, reserve=10)
    assert first.argmax(-1).tolist() == [4]
    #        0: root 4 - 1: 5 (recorded) - 3: 6, the recording's end
    #                  - 2: 6 (not)
    tree = DraftTree.from_lists([4, 5, 6, 6], [-1, 0, 0, 1])
    logits = forced.score(tree).clone()
    assert logits[:2].argmax(-1).tolist() == [5, 6]
    own = lm.score(tree)
    differ = (logits != own).nonzero().tolist()
    assert differ == [[0, 5], [1, 6]]
    assert fetch(logits, np.arange(4), Sampling(), top_k=0).next_tokens[:2] == [5, 6]  # finite


def test_each_forward_is_run_once(lm):
    scored = []

    class Counting:
        device, dtype, vocab_size, max_positions = lm.device, lm.dtype, lm.vocab_size, lm.max_positions
        reserve, prefill, commit = lm.reserve, lm.prefill, lm.commit
        n_committed = property(lambda self: lm.n_committed)

        def score(self, tree):
            scored.append(tree.n_nodes)
            return lm.score(tree)

    text = made_up(1)[0]
    n_new = len(text.output_ids)
    generation = decode(TeacherForcedLM(Counting(), text), text.prompt_ids, PromptLookupDrafter(), max_new_tokens=n_new)
    assert generation.output_ids == text.output_ids
    assert scored == [tree.n_nodes for tree in generation.steps.trees]


def test_methods_take_turns_and_each_drafter_meets_every_turn_in_order(lm):
    seen = []
    timed_replay(lm, made_up(3), {"ar": AutoregressiveDrafter, "pld": PromptLookupDrafter}, B, on_turn=seen.append)
    assert [(line["prompt_id"], line["method"]) for line in seen] == [
        ("a-0", "ar"), ("a-0", "pld"), ("a-1", "pld"), ("a-1", "ar"), ("a-2", "ar"), ("a-2", "pld"),
        ("no step", "pld"), ("no step", "ar"),
    ]  # fmt: skip


def test_what_cannot_be_forced_is_refused(lm):
    def refused(text: Recording, make=AutoregressiveDrafter) -> str:
        with pytest.raises(UserError) as caught:
            timed_replay(lm, [text], {"m": make}, B, [STOP])
        return str(caught.value)

    assert "m learns from the target's scores" in refused(recording([1], [2]), GooseDrafter)
    assert "a-1 takes 601 positions and the model has 512" in refused(recording([1] * 600, [2]))
    assert "has id 64 and the model's vocabulary ends at 63" in refused(recording([1], [64]))
    assert "a stop id stands inside" in refused(recording([1], [2, STOP, 2]))
    forced = TeacherForcedLM(lm, recording([1, 2], [3]))
    with pytest.raises(ValueError, match="the prompt is not the recording's"):
        forced.prefill([1, 3], reserve=1)
    with pytest.raises(UserError, match="top_k = 0"):
        forced.prompt_top_k(3)


# The table and the script

TINY = ModelSpec("tiny", "tiny")


def test_the_table_has_the_exact_rates_and_its_label():
    texts = made_up()
    makers = {name: DRAFTERS[name] for name in ("pld", "suffix")}
    exact = {name: replay(texts, name, make(), B, [STOP]) for name, make in makers.items()}
    table = time_on(TINY, texts, makers, B, [STOP], exact, device="cpu")
    ((title, rows),) = table.blocks.items()
    assert title == "teacher-forced timed replay: text recorded, weights random"
    assert [row["method"] for row in rows] == ["ar", "pld", "suffix"]
    assert rows[0]["speed-up"] == "1.00x"
    for row in rows[1:]:
        assert row["MAL"] == f"{metrics.mean_acceptance_length(exact[row['method']]):.3f}"
    assert "engine fused" in table.conditions


def test_steps_that_are_not_the_replays_are_an_error():
    texts = made_up(1)
    exact = {"pld": replay(texts, "pld", AutoregressiveDrafter(), B, [STOP])}
    with pytest.raises(RuntimeError, match="not the replay's"):
        time_on(TINY, texts, {"pld": PromptLookupDrafter}, B, [STOP], exact, device="cpu")


SCRIPT = runpy.run_path(str(ROOT / "scripts" / "replay.py"))


@pytest.fixture
def run_script(tmp_path, monkeypatch, capsys):
    path = tmp_path / "model.jsonl.gz"
    with gzip.open(path, "wt") as out:
        for text in made_up():
            out.write(json.dumps(vars(text)) + "\n")

    def run(*arguments) -> str:
        monkeypatch.setattr("sys.argv", ["replay.py", str(path), "--methods", "pld", *map(str, arguments)])
        SCRIPT["main"]()
        return " ".join(capsys.readouterr().out.split())

    return run


def test_the_script_times_on_a_model_and_projects_onto_a_curve(run_script, tmp_path):
    shape = model_spec("llama3").shape
    a40 = roofline(shape, 6.96e11, 1.5e14, model="llama3", device="A40", dtype=torch.float16)
    curve = a40.save(tmp_path)
    printed = run_script("--time-on", "tiny", "--device", "cpu", "--cost", curve)
    for text in (
        "teacher-forced timed replay: text recorded, weights random",
        "ar ",
        "1.00x",
        "projected",
        "the roofline verify cost of llama3 in float16 on A40",
    ):
        assert text in printed
    assert "teacher-forced" not in run_script()


def test_the_script_refuses_a_model_that_it_cannot_have(run_script):
    with pytest.raises(UserError, match="there is no model 'nope'"):
        run_script("--time-on", "nope")
    with pytest.raises(UserError, match="tiny has no shape"):
        run_script("--time-on", "tiny", "--weights", "random")
    with pytest.raises(UserError, match="there is no cost curve at nowhere"):
        run_script("--cost", "nowhere")
