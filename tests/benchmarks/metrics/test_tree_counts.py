"""Counting the trees of a line at once equals counting them node by node, and survives the dropping of the trees."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import metrics
from benchmarks.metrics import NodeCounts, tree_metrics
from benchmarks.metrics.tree_counts import ACCEPTED, DRAFTED, TESTED, count_trees, merged_places, with_tree_counts
from goose.engine.tree import ADJACENCY, CONTEXT, DRAFT_MODEL, ROOT
from handmade import chain_step, failed, line, tree_step


@st.composite
def recorded_steps(draw) -> dict:
    n = draw(st.integers(1, 12))
    parents = [-1, *(draw(st.integers(0, i - 1)) for i in range(1, n))]
    sources = [ROOT, *(draw(st.sampled_from([CONTEXT, ADJACENCY, DRAFT_MODEL])) for _ in range(1, n))]
    path = [0]
    while (children := [i for i in range(n) if parents[i] == path[-1]]) and draw(st.booleans()):
        path.append(draw(st.sampled_from(children)))
    return tree_step(parents, sources, path, emitted=draw(st.integers(1, len(path))))


def place_of(parents: list[int], node: int) -> tuple[int, ...]:
    """The path of child ranks, one node at a time."""
    place: tuple[int, ...] = ()
    while parents[node] >= 0:
        siblings = [i for i in range(len(parents)) if parents[i] == parents[node]]
        place = (siblings.index(node), *place)
        node = parents[node]
    return place


def recount(steps: list[dict]) -> dict:
    """Every count of every node, the slow and obvious way: (kind, key) -> [drafted, tested, accepted]."""
    counts: dict = {}
    for step in steps:
        path = step["path"][: step["emitted"] + 1]
        for node in range(1, len(step["parents"])):
            place = place_of(step["parents"], node)
            found = (True, step["parents"][node] in path, node in path)
            source = step["sources"][node]
            keys = (("source", source), ("depth", len(place)), ("rank", place[-1]), ("place", place, source))
            for key in keys:
                row = counts.setdefault(key, [0, 0, 0])
                for i in (DRAFTED, TESTED, ACCEPTED):
                    row[i] += found[i]
    return counts


@given(st.lists(recorded_steps(), max_size=6))
def test_counts_equal_a_recount_node_by_node(steps):
    counts, slow = count_trees(line("Q1", "m", steps)["steps"]), recount(steps)
    sizes = [len(step["parents"]) for step in steps]
    assert (counts.n_steps, counts.n_nodes, counts.max_nodes) == (len(steps), sum(sizes), max(sizes, default=0))
    assert counts.n_empty == sizes.count(1)
    for name, array in (("source", counts.by_source), ("depth", counts.by_depth), ("rank", counts.by_rank)):
        fast = {(name, i): column.tolist() for i, column in enumerate(array.T) if column.any()}
        assert fast == {key: row for key, row in slow.items() if key[0] == name}


@given(st.lists(st.lists(recorded_steps(), max_size=4), min_size=1, max_size=3))
def test_places_of_several_lines_equal_a_recount(steps_of_lines):
    places = merged_places([count_trees(line("Q1", "m", steps)["steps"]).places for steps in steps_of_lines])
    slow = recount([step for steps in steps_of_lines for step in steps])
    path = {0: ()}
    for i in np.argsort(places.depths, kind="stable"):
        path[int(places.keys[i])] = (*path[int(places.parent_keys[i])], int(places.ranks[i]))
    fast = {}
    for i, key in enumerate(places.keys):
        for source in np.flatnonzero(places.drafted[i]):
            place = ("place", path[int(key)], int(source))
            fast[place] = [int(places.drafted[i, source]), int(places.accepted[i, source])]
    assert fast == {key: [row[DRAFTED], row[ACCEPTED]] for key, row in slow.items() if key[0] == "place"}


def projected(turns: list[dict]) -> float | None:
    return metrics.projected_speed_up(turns, lambda n, length, chain: n + length + 0.5 * chain)


@given(st.lists(st.lists(recorded_steps(), min_size=1, max_size=4), min_size=1, max_size=3))
def test_metrics_are_the_same_with_and_without_the_trees(steps_of_lines):
    whole = [line(f"Q{i}", "m", steps) for i, steps in enumerate(steps_of_lines)]
    short = [with_tree_counts(x) for x in whole]
    assert not any(name in x["steps"] for x in short for name in ("tokens", "parents", "sources", "path"))
    for metric in (
        metrics.tokens_per_second, metrics.mean_acceptance_length, metrics.tau, metrics.nodes_per_step,
        metrics.empty_draft_share, metrics.acceptance_by_source, metrics.draft_acceptance, metrics.draft_overhead,
        metrics.step_milliseconds, tree_metrics.acceptance_by_depth, tree_metrics.acceptance_by_rank,
        tree_metrics.mean_step_seconds, projected,
    ):  # fmt: skip
        assert metric(short) == metric(whole), metric


def test_a_line_keeps_what_projections_and_expectations_need():
    steps = [chain_step(3, 3, emitted=2), tree_step([-1, 0, 0], [ROOT, ADJACENCY, ADJACENCY], [0, 2]), chain_step(0, 0)]
    short = with_tree_counts(line("Q1", "m", steps))
    assert short["steps"]["n_nodes"].tolist() == [4, 3, 1]
    assert short["steps"]["is_chain"].tolist() == [True, False, True]
    assert short["steps"]["n_path"].tolist() == [4, 2, 1]  # uncut
    assert short["steps"]["emitted"].tolist() == [2, 2, 1]


def test_a_failed_line_and_a_line_without_steps_are_counted_too():
    assert with_tree_counts(failed("Q1", "m")) == failed("Q1", "m")
    none = with_tree_counts(line("Q1", "m", []))
    assert (none["trees"].n_steps, none["trees"].n_nodes, none["trees"].max_nodes) == (0, 0, 0)
    assert metrics.nodes_per_step([none]) == (None, 0)


def test_a_step_without_an_expectation_has_none():
    one = line("Q1", "m", [chain_step(1, 1)] * 3)
    one["steps"]["expected"] = [2.5, None, 3.5]
    assert np.array_equal(with_tree_counts(one)["steps"]["expected"], [2.5, np.nan, 3.5], equal_nan=True)


def test_a_deep_chain_and_a_wide_star_count_right():
    deep, wide = chain_step(200, 130), tree_step([-1] + [0] * 300, [ROOT] + [ADJACENCY] * 300, [0, 300])
    counts = count_trees(line("Q1", "m", [deep, wide])["steps"])
    assert counts.by_depth[:, 200].tolist() == [1, 0, 0]
    assert counts.by_depth[:, 130].tolist() == [1, 1, 1]
    assert counts.by_depth[:, 1].tolist() == [301, 301, 2]
    assert counts.by_rank[:, 299].tolist() == [1, 1, 1]
    assert counts.by_rank[:, 0].tolist() == [201, 132, 130]


@pytest.mark.parametrize("n", [1, 2, 7])
def test_pooling_adds_place_by_place(n):
    row = [NodeCounts(5, 4, 3), NodeCounts(2, 1, 0)]
    assert tree_metrics.pooled([row] * n + [row[:1]]) == [
        NodeCounts(5 * n + 5, 4 * n + 4, 3 * n + 3),
        NodeCounts(2 * n, n, 0),
    ]
    assert tree_metrics.pooled([]) == []
