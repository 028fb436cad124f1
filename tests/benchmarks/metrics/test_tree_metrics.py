"""The metrics of trees, expectations and times on lines made by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import metrics
from benchmarks.metrics import NodeCounts, tree_metrics
from benchmarks.metrics.tree_metrics import Expectation
from goose.engine.tree import ADJACENCY, CONTEXT, ROOT
from handmade import chain_step, line, plain, tree_step
from paper_runs import GOOSE_STEP, ISO3_STEP

WITH_SOURCES = [line("Q1", "goose", [GOOSE_STEP] * 2)]


def with_expected(steps: list[dict], expected: list) -> dict:
    one = line("Q1", "m", steps)
    one["steps"]["expected"] = expected
    return one


# Acceptance


def test_acceptance_by_depth_begins_at_the_children_of_the_root():
    # The tree has 4 nodes at depth 1, of which the spine's is accepted, then one at each of the depths 2 to 5.
    assert tree_metrics.acceptance_by_depth(WITH_SOURCES) == [NodeCounts(8, 8, 2)] + [NodeCounts(2, 2, 2)] * 4


def test_acceptance_by_rank_counts_the_order_among_siblings():
    # Rank 0: the five nodes of the spine and its end; ranks 1 to 3: the root's other children.
    expected = [NodeCounts(10, 10, 10), *[NodeCounts(2, 2, 0)] * 3]
    assert tree_metrics.acceptance_by_rank(WITH_SOURCES) == expected
    second = tree_metrics.acceptance_by_rank([line("Q1", "iso3", [ISO3_STEP])])
    assert second == [NodeCounts(2, 2, 1), NodeCounts(2, 2, 1), NodeCounts(2, 2, 0)]


def test_nothing_drafted_has_no_depth_and_no_rank_with_nodes():
    assert tree_metrics.acceptance_by_depth([plain("Q1", 3, 1.0)]) == []
    assert tree_metrics.acceptance_by_depth([]) == []
    assert all(c.drafted == 0 for c in tree_metrics.acceptance_by_rank([plain("Q1", 3, 1.0)]))


def test_the_ratio_of_the_sources_is_of_accepted_over_drafted():
    assert tree_metrics.acceptance_ratio(metrics.acceptance_by_source(WITH_SOURCES)) == pytest.approx(1.0 / 0.25)
    chain_alone = metrics.acceptance_by_source([line("Q1", "pld", [chain_step(4, 2)])])
    assert tree_metrics.acceptance_ratio(chain_alone) is None
    none_accepted = metrics.acceptance_by_source(
        [line("Q1", "m", [tree_step([-1, 0, 0], [ROOT, CONTEXT, ADJACENCY], [0, 1])])]
    )
    assert tree_metrics.acceptance_ratio(none_accepted) is None  # nothing to divide by


# E(A) beside A


def test_expectation_is_over_the_steps_that_recorded_one_and_accepted_is_uncut():
    steps = [chain_step(5, 5, emitted=2), chain_step(5, 1), chain_step(5, 3)]
    assert tree_metrics.expectation([with_expected(steps, [4.0, 3.0, None])]) == Expectation(2, 3.5, (6 + 2) / 2)
    assert tree_metrics.expectation([with_expected(steps, [None] * 3)]) is None
    assert tree_metrics.expectation([line("Q1", "m", steps)]) is None
    assert tree_metrics.expectation([]) is None


def test_the_curve_has_equal_shares_and_keeps_equal_expectations_together():
    steps = [chain_step(9, n) for n in (0, 1, 2, 3, 4, 5, 6, 7)]
    curve = tree_metrics.expectation_curve([with_expected(steps, [1, 2, 3, 4, 5, 6, 7, 8])], n_bins=4)
    assert curve == [Expectation(2, e, e) for e in (1.5, 3.5, 5.5, 7.5)]
    equal = tree_metrics.expectation_curve([with_expected(steps, [3.0] * 8)], n_bins=4)
    assert equal == [Expectation(8, 3.0, 4.5)]
    assert tree_metrics.expectation_curve([]) == []


@given(st.lists(st.tuples(st.floats(1, 20), st.integers(0, 9)), min_size=1, max_size=40), st.integers(1, 9))
def test_the_shares_of_the_curve_together_are_the_mean(pairs, n_bins):
    turn = with_expected([chain_step(9, accepted) for _, accepted in pairs], [expected for expected, _ in pairs])
    curve, whole = tree_metrics.expectation_curve([turn], n_bins), tree_metrics.expectation([turn])
    assert sum(share.n_steps for share in curve) == whole.n_steps == len(pairs)
    assert [share.expected for share in curve] == sorted(share.expected for share in curve)
    for name in ("expected", "accepted"):
        total = sum(share.n_steps * getattr(share, name) for share in curve)
        assert total / len(pairs) == pytest.approx(getattr(whole, name))


# The average tree


def test_the_average_tree_of_equal_trees_is_the_tree():
    tree = tree_metrics.average_tree(WITH_SOURCES)
    # Depth by depth, siblings by rank: the spine's node first, its three siblings, then the spine.
    assert tree.parents.tolist() == [-1, 0, 0, 0, 0, 1, 5, 6, 7]
    assert tree.ranks.tolist() == [0, 0, 1, 2, 3, 0, 0, 0, 0]
    assert tree.drafted.sum(axis=1).tolist() == [1.0] * 9
    assert tree.accepted.sum(axis=1).tolist() == [1, 1, 0, 0, 0, 1, 1, 1, 1]
    assert tree.accepted[1, CONTEXT] == tree.accepted[8, ADJACENCY] == 1.0


def test_the_average_tree_has_as_many_places_as_a_step_has_nodes_and_takes_the_most_frequent():
    # Three steps of a chain of 2, one of a star of 4: 3 x 3 + 5 = 14 nodes in 4 steps, so 4 places with the root's.
    steps = [chain_step(2, 2)] * 3 + [tree_step([-1, 0, 0, 0, 0], [ROOT] + [ADJACENCY] * 4, [0, 1])]
    tree = tree_metrics.average_tree([line("Q1", "m", steps)])
    assert tree.n_nodes == 4
    assert tree.parents.tolist() == [-1, 0, 0, 1]  # places (0), (1), (0, 0): the shallower of the two rare ones... (1)
    assert tree.drafted[1, [CONTEXT, ADJACENCY]].tolist() == [0.75, 0.25]
    assert tree.accepted[1, [CONTEXT, ADJACENCY]].tolist() == [0.75, 0.25]
    assert tree.drafted[2].sum() == 0.25
    assert tree.drafted[3].sum() == 0.75


@given(st.lists(st.integers(0, 2**31), min_size=1, max_size=5), st.integers(1, 30))
def test_the_average_tree_hangs_together_and_no_place_is_used_more_than_its_parent(seeds, n_nodes):
    steps = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 25))
        parents = [-1, *(int(rng.integers(0, i)) for i in range(1, n))]
        steps.append(tree_step(parents, [ROOT, *rng.integers(1, 3, n - 1).tolist()], [0]))
    tree = tree_metrics.average_tree([line("Q1", "m", steps)], n_nodes)
    drafted = tree.drafted.sum(axis=1)
    assert 1 <= tree.n_nodes <= max(1, n_nodes)
    for node in range(1, tree.n_nodes):
        assert tree.parents[node] < node
        assert drafted[node] <= drafted[tree.parents[node]] + 1e-9  # sums of shares
    places = list(zip(tree.parents.tolist(), tree.ranks.tolist(), strict=True))
    assert len(set(places)) == len(places)


def test_no_step_has_no_average_tree_and_plain_decoding_s_is_the_root():
    assert tree_metrics.average_tree([line("Q1", "m", [])]) is None
    assert tree_metrics.average_tree([plain("Q1", 3, 1.0)]).parents.tolist() == [-1]


# Synergy, changes, means


def test_synergy_is_against_the_better_of_the_two_and_none_without_one():
    assert tree_metrics.synergy(6.0, 5.0, 2.0) == pytest.approx(1.2)
    assert tree_metrics.synergy(1.8, 1.5, 2.0) == pytest.approx(0.9)
    assert tree_metrics.synergy(6.0, None, 2.0) is None
    assert tree_metrics.synergy(None, 5.0, 2.0) is None


def test_change_is_relative_and_none_without_a_reference():
    assert tree_metrics.change(2.4, 3.0) == pytest.approx(-0.2)
    assert tree_metrics.change(None, 3.0) is tree_metrics.change(2.4, None) is None


def test_means_and_medians_leave_out_what_is_not_known():
    assert tree_metrics.mean_known([1.0, None, 3.0]) == 2.0
    assert tree_metrics.median_known([1.0, None, 9.0, 2.0]) == 2.0
    assert tree_metrics.mean_known([None]) is tree_metrics.median_known([]) is None


# Times


def test_the_parts_of_a_step_sum_to_decoding():
    parts = {"draft_s": 0.01, "forward_s": 0.1, "fetch_s": 0.02, "walk_s": 0.001, "commit_s": 0.002, "observe_s": 0.003}
    one = line("Q1", "m", [chain_step(3, 3)] * 2, decode_s=0.3, parts=parts, begin_s=0.02)
    seconds = tree_metrics.mean_step_seconds([one])
    assert {part: seconds[part] for part in parts} == pytest.approx(parts)
    assert seconds["other_s"] == pytest.approx(0.3 / 2 - sum(parts.values()))
    assert sum(seconds.values()) == pytest.approx(0.15)
    assert tree_metrics.mean_step_seconds([]) == {}


def test_acceptance_and_cost_explain_the_speed_up():
    # 4 tokens a step; t(1) = 0.1 + 0.02; the method's step takes 0.2 in all: 4 x 0.12 / 0.2.
    forward = {"forward_s": 0.1, "fetch_s": 0.02, "draft_s": 0, "walk_s": 0, "commit_s": 0, "observe_s": 0}
    baseline = [line("Q1", "ar", [chain_step(0, 0)] * 8, decode_s=0.96, parts=forward)]
    own = [line("Q1", "m", [chain_step(3, 3)] * 2, decode_s=0.4, parts=forward)]
    assert tree_metrics.decomposed_speed_up(own, baseline) == pytest.approx(4 * 0.12 / 0.2)
    assert tree_metrics.decomposed_speed_up(own, baseline) == pytest.approx(metrics.speed_up(own, baseline))
    assert tree_metrics.decomposed_speed_up([], baseline) is None
    assert tree_metrics.decomposed_speed_up(own, []) is None
