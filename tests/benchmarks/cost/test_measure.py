"""Verify-cost curves hold every size asked for, fairly interleaved; the roofline by hand. No time is asserted."""

import runpy

import numpy as np
import pytest
import torch

from benchmarks.cost import measure as measuring
from benchmarks.cost.curve import CHAIN, TREE, load_curve
from benchmarks.cost.machine import measure_machine
from benchmarks.cost.measure import bushy_tree, measure, roofline
from benchmarks.errors import UserError
from benchmarks.models.shapes import forward_work
from goose.engine.lm import TreeLM
from paths import REPO
from toy import counter, shown, tiny_model

ROOT = REPO
SIZES, LENGTHS = (1, 3, 8), (5, 20)
LABEL = {"model": "tiny", "weights": "random"}


@pytest.fixture(scope="module")
def curve():
    lm = TreeLM(tiny_model())
    curve = measure(lm, SIZES, LENGTHS, repeats=3, top_k=4, **LABEL)
    assert lm.n_committed == LENGTHS[-1]  # scoring commits nothing
    return curve


def test_every_size_and_length_is_measured_for_trees_and_chains(curve):
    assert (curve.node_counts, curve.context_lengths) == (SIZES, LENGTHS)
    assert len(curve.points) == 2 * len(SIZES) * len(LENGTHS)
    for point in curve.points:
        assert 0 < point.low_s <= point.seconds <= point.high_s
        assert point.launch_s is None  # a CPU
        work = forward_work(tiny_model().config, point.n_nodes, point.context, 4)
        assert (point.n_bytes, point.n_flops) == (work.n_bytes, work.n_flops)


def test_a_curve_says_what_was_measured(curve):
    shown = (curve.kind, curve.model, curve.weights, curve.device, curve.dtype, curve.engine, curve.attention)
    assert shown == ("measured", "tiny", "random", "cpu", "float32", "fused", "grouped")
    assert curve.versions["torch"] == torch.__version__
    assert curve.file_name == "tiny-cpu-float32-fused.json"


class Watched:
    """TreeLM's interface over COUNTER; keeps the size and shape of every scored tree."""

    def __init__(self):
        self._lm = counter()
        self.model, self.dtype = tiny_model(), torch.float32
        self.engine, self.attention = "eager", "grouped"
        self.device, self.vocab_size, self.max_positions = self._lm.device, self._lm.vocab_size, 100
        self.scored: list[tuple[int, int, bool]] = []

    @property
    def n_committed(self) -> int:
        return self._lm.n_committed

    def reserve(self, n_rows):
        self._lm.reserve(n_rows)

    def prefill(self, ids, reserve):
        assert reserve >= max(SIZES)
        return self._lm.prefill(ids, reserve)

    def score(self, tree):
        assert "depths" not in vars(tree)  # deriving depths and mask is part of the time
        self.scored.append((self.n_committed, tree.n_nodes, tree.is_chain))
        return self._lm.score(tree)


def test_sizes_take_turns_within_each_repeat_and_none_always_goes_first():
    lm = Watched()
    measure(lm, SIZES, (5,), repeats=4, top_k=0, **LABEL)
    assert lm.scored[::2] == lm.scored[1::2]  # each is timed after one of its own size
    n_kinds, timed = 2 * len(SIZES), lm.scored[1::2]
    rounds = [timed[i : i + n_kinds] for i in range(0, len(timed), n_kinds)]
    assert len(rounds) == 4 + measuring.WARM_UP_ROUNDS
    for one in rounds:
        assert sorted(one) == sorted(rounds[0])
        assert {(length, n) for length, n, _ in one} == {(5, n) for n in SIZES}
    assert len({one[0] for one in rounds}) > 2


@pytest.mark.parametrize(
    ("sizes", "lengths", "repeats", "message"),
    [
        ([], [5], 1, "at least 1"),
        ([0, 1], [5], 1, "at least 1"),
        ([1], [0], 1, "at least 1"),
        ([1], [5], 0, "at least 1"),
        ([1, 8], [93], 1, "93 committed tokens and 8 nodes exceed the model's 100 positions"),
    ],
)
def test_what_cannot_be_measured_is_refused(sizes, lengths, repeats, message):
    with pytest.raises(UserError, match=message):
        measure(Watched(), sizes, lengths, repeats, 0, **LABEL)


def test_the_timed_tree_has_a_spine_and_branches_along_it():
    assert shown(bushy_tree(7, range(7))) == ["0", "0 1", "0 1 2", "0 1 2 3", "0 4", "0 1 5", "0 1 2 6"]
    assert shown(bushy_tree(1, [0])) == ["0"]
    for n in measuring.NODE_COUNTS:
        tree = bushy_tree(n, range(n))
        assert tree.n_nodes == n
        assert tree.depths.max() == n // 2


# Roofline


def test_a_roofline_by_hand():
    # d = 2. A layer: q 4 x 4, k and v 4 x 2 each, o 4 x 4, three of 4 x 8: 144. Two layers and the head of 4 x 10:
    # W = 328 elements of 2 bytes, 656 bytes at 100 bytes/s: 6.56 s, against 2 n 328 operations at 1000 a second.
    shape = {
        "model_type": "llama", "hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2, "vocab_size": 10,
        "max_position_embeddings": 64, "tie_word_embeddings": False,
    }  # fmt: skip
    made = roofline(
        shape, 100.0, 1000.0, model="m", device="A40", dtype=torch.float16, node_counts=[1, 16], context_lengths=[10]
    )
    # One node: 656 operations fit into the 6.56 s. K and V: 2 layers x 2 x 2 x 11 rows x 2 bytes = 176: 1.76 s.
    assert made.seconds(1, 10) == pytest.approx(6.56 + 1.76)
    # Sixteen: 10496 operations, 10.496 s. Attention: 4 x 2 layers x 2 heads x 2 x 26 rows x 16 = 13312: 13.312 s.
    assert made.seconds(16, 10) == pytest.approx(10.496 + 13.312)
    assert (made.kind, made.weights, made.engine, made.versions) == ("roofline", "none", "none", {})
    assert {(p.shape, p.low_s == p.seconds == p.high_s, p.launch_s) for p in made.points} == {(TREE, True, None)}
    assert made.seconds(16, 10, True) == made.seconds(16, 10)


def test_a_machines_limits_are_positive_numbers_in_the_dtype_asked_for():
    limits = measure_machine("cpu", torch.bfloat16, buffer_bytes=2**16, matrix_size=16, repeats=2)
    assert min(limits.copy_bytes_per_s, limits.read_bytes_per_s, limits.flops_per_s) > 0
    assert limits.dtype == "bfloat16"


# The script

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "measure_cost.py"))


def run_script(monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["measure_cost.py", *arguments])
    monkeypatch.setitem(
        SCRIPT["measured"].__globals__,
        "measure_machine",
        lambda *_: measure_machine("cpu", torch.float32, buffer_bytes=2**16, matrix_size=16, repeats=1),
    )
    SCRIPT["main"]()


def test_the_script_prints_a_table_and_keeps_the_curve(monkeypatch, capsys, tmp_path):
    run_script(
        monkeypatch, "model=tiny", "nodes=[1,8]", "lengths=[16]", "repeats=2", "dtype=bfloat16", f"out={tmp_path}"
    )
    printed = " ".join(capsys.readouterr().out.split())
    for text in ("measured verify cost of tiny in bfloat16 on cpu", "GB/s", "t(n)/t(1)", "launch", CHAIN, "1.00"):
        assert text in printed
    kept = load_curve(tmp_path / "tiny-cpu-bfloat16-fused.json")
    assert (kept.weights, kept.node_counts, kept.context_lengths) == ("random", (1, 8), (16,))
    assert kept.machine.copy_bytes_per_s > 0


def test_the_script_computes_the_roofline_of_another_device(monkeypatch, capsys, tmp_path):
    device = ["device=NVIDIA A40", "bandwidth=6.96e11", "flops=1.5e14"]
    run_script(monkeypatch, "model=llama3", *device, "nodes=[1,60]", "lengths=[256]", f"out={tmp_path}")
    kept = load_curve(tmp_path / "llama3-nvidia-a40-float16-roofline.json")
    # 7.5e9 weights of 2 bytes, and K/V of 257 tokens, at 696 GB/s.
    assert kept.seconds(1, 256) == pytest.approx((2 * 7_504_658_432 + 257 * 131_072) / 6.96e11)
    assert "roofline verify cost of llama3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model=nope"], "there is no model 'nope'"),
        (["nonsense=1"], "the keys are model, weights"),
        (["nodes=8"], "the keys are model"),
        (["model=tiny", "weights=random"], "has no shape"),
        (["model=llama3", "bandwidth=1e12"], "a roofline needs bandwidth=, flops= and device=NAME"),
        (["model=tiny", "lengths=[4096]"], "exceed the model's 2048 positions"),
    ],
)
def test_the_script_refuses_in_one_sentence(monkeypatch, tmp_path, arguments, message):
    with pytest.raises(UserError, match=message) as caught:
        run_script(monkeypatch, *arguments, f"out={tmp_path}")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_kept_curves_can_be_read():
    files = sorted((ROOT / "results" / "cost").glob("*.json"))
    assert files
    for file in files:
        kept = load_curve(file)
        assert kept.file_name == file.name
        assert np.isfinite(kept.seconds(60, 512))
