"""The figures: which are drawn from which runs, equal bytes from equal runs, and the layout of the average tree."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cost.curve import TREE, CostCurve, Point
from benchmarks.metrics.tree_metrics import AverageTree
from benchmarks.paper.compare import told_apart
from benchmarks.paper.figures import FIGURES, drafts_from, draw_all
from benchmarks.paper.runs import load_arms
from benchmarks.show.figure_average_tree import TreePanel, draw_average_trees, fishbone
from benchmarks.show.figure_curves import CurvePanel, _spread_out, draw_curves
from goose.engine.tree import ADJACENCY, CONTEXT, SOURCE_NAMES
from paper_runs import expecting, made_run, turns, usual_run

METHODS = ("ar", "pld", "tr", "iso3", "goose")


def loaded(tmp_path) -> list:
    return told_apart(load_arms([tmp_path])[0])


def curve() -> CostCurve:
    points = tuple(
        Point(TREE, length, n, ms / 1e3, ms / 1.1e3, ms / 0.9e3, None, 1, 1)
        for length in (256, 2048)
        for n, ms in ((1, 30.0 + length / 100), (16, 45.0), (64, 90.0))
    )
    return CostCurve("measured", "tiny", "random", "cpu", "float32", "eager", "sdpa", {}, "2026-01-01", points)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> tuple:
    """Runs that every figure has numbers of, and what was drawn of them."""
    runs, folder = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("figures")
    usual_run(runs, METHODS)
    usual_run(runs, METHODS, node_budget=16)
    usual_run(runs, METHODS, dataset="gsm8k", divergences=[{"method": "pld", "prompt_id": "Q1", "verdict": "broken"}])
    for delta in (0.2, 0.8):
        lines = {"ar": turns("ar"), "opt_tree": expecting(turns("opt_tree"), 3.5)}
        made_run(runs, lines, {"opt_tree": {"delta": delta}})
    arms = loaded(runs)
    return arms, *draw_all(arms, [curve()], folder)


def test_every_figure_is_drawn_as_png_and_pdf(drawn):
    _, files, missing = drawn
    names = {file.stem for file in files}
    assert missing == []
    for figure in (*FIGURES, "verify_cost"):
        assert any(name.startswith(figure) for name in names), figure
    assert {"average_tree_tiny_humaneval", "average_tree_tiny_gsm8k"} <= names
    for file in files:
        head = file.read_bytes()[:8]
        assert head.startswith(b"\x89PNG" if file.suffix == ".png" else b"%PDF"), file


def test_the_same_arms_give_the_same_bytes(drawn, tmp_path):
    arms, files, _ = drawn
    again, _ = draw_all(arms, [curve()], tmp_path)
    digest = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    assert {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in again} == digest


def test_a_figure_without_numbers_says_what_makes_them(tmp_path):
    usual_run(tmp_path / "runs", ("ar", "pld"))
    files, missing = draw_all(loaded(tmp_path / "runs"), [], tmp_path / "figures")
    assert {file.stem for file in files} == {"average_tree_tiny_humaneval", "speed_up", "step_times"}
    assert sorted(text.split(":")[0] for text in missing) == [
        f"figure {name}"
        for name in ("acceptance_gap", "delta", "expected_accepted", "topology", "tree_size", "verify_cost")
    ]
    assert all("make grid" in text or "measure_cost.py" in text for text in missing)


def test_the_colour_of_a_method_is_what_it_drafts_from(drawn):
    sources = {arm.stem: drafts_from(arm) for arm in drawn[0]}
    assert sources == {
        "ar": "nothing", "pld": "context", "tr": "adjacency", "iso3": "adjacency", "goose": "both",
        "opt_tree": "adjacency",
    }  # fmt: skip


def test_a_curve_that_stops_early_and_a_band_are_drawn(tmp_path):
    panel = CurvePanel(
        "t", {"a": ([1, 2, 4], [1, 2, 3]), "b": ([1], [2])}, "n", "ms", bands={"a": ([0, 1, 2], [2, 3, 4])}
    )
    assert [file.suffix for file in draw_curves([[panel, panel]], tmp_path / "curves")] == [".png", ".pdf"]


def test_ticks_keep_their_distance():
    assert _spread_out([1, 2, 4, 8, 16, 32, 48, 64]) == [1, 2, 4, 8, 16, 32, 64]


# The layout


def test_a_chain_is_straight_and_a_star_is_even():
    assert fishbone([-1, 0, 1, 2]).tolist() == [0, 0, 0, 0]
    assert sorted(fishbone([-1, 0, 0, 0, 0, 0]).tolist()) == [-2, -1, 0, 0, 1, 2]


def test_branches_of_a_spine_lie_beside_it():
    # A spine 0-1-2-3 with two branches at the root and one at node 1.
    rows = fishbone([-1, 0, 0, 0, 1, 1, 4])
    assert rows[[0, 1, 4, 6]].tolist() == [0, 0, 0, 0]
    assert sorted(rows[[2, 3]].tolist()) == [-1, 1]


@given(st.integers(0, 2**31), st.integers(1, 60))
def test_nodes_of_one_depth_are_a_row_apart_and_the_first_child_goes_straight_on(seed, n):
    rng = np.random.default_rng(seed)
    parents = [-1, *(int(rng.integers(0, i)) for i in range(1, n))]
    rows = fishbone(parents)
    depths = [0] * n
    for node in range(1, n):
        depths[node] = depths[parents[node]] + 1
    for depth in set(depths):
        own = np.sort(rows[np.array(depths) == depth])
        assert (np.diff(own) >= 1 - 1e-9).all()
    for node in range(n):
        children = [i for i in range(n) if parents[i] == node]
        if children:
            assert rows[children[0]] == rows[node]


def test_nodes_and_edges_of_one_kind_are_one_artist(tmp_path, monkeypatch):
    n = 40  # an artist a node takes matplotlib three seconds a figure
    accepted, drafted = np.zeros((2, n, len(SOURCE_NAMES)))
    drafted[:, CONTEXT] = 1
    accepted[: n // 2, CONTEXT] = 0.5
    accepted[1, ADJACENCY] = 0.1  # the only pie
    artists = []
    monkeypatch.setattr(
        "benchmarks.show.figure_average_tree.save_both", lambda figure, stem: artists.extend(figure.axes[0].collections)
    )
    tree = AverageTree(np.arange(-1, n - 1), np.zeros(n, dtype=int), drafted, accepted)
    draw_average_trees([TreePanel("m", "", tree)], "a tree", tmp_path / "t")
    assert len(artists) == 6  # edges, rims, rings, discs, and the two slices of the pie
