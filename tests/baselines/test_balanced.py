"""Balanced k-ary trees: the shape by hand, its limits, and what strict and elastic budgets mean.

Trees are shown as one string a node, its path from the root in the order drafted.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.balanced import BalancedDrafter
from goose.engine.contract import Prefill
from goose.engine.tree import ADJACENCY, CONTEXT
from goose.engine.verify import Scored, Verdict
from goose.sources.transition import AdjacencyTable
from toy import begun_knowing, level_sizes, shown

# Every token is followed by 0, 1, 2, 3, scored 0.5, 0.25, 0.125, 0.125.
HALVES = {token: {0: 0.5, 1: 0.25, 2: 0.125, 3: 0.125} for token in range(30)}


def drafter_knowing(successors: dict, k: int = 3, **settings) -> BalancedDrafter:
    """A drafter whose table holds `successors`: token or (previous, token) -> {successor: score}, best first."""
    drafter = BalancedDrafter(k, AdjacencyTable(4, prefill_harvest=False), **settings)
    return begun_knowing(drafter, successors)


def test_every_node_gets_its_k_best_children_breadth_first_until_the_budget_is_used():
    tree = drafter_knowing(HALVES, k=2).draft([9, 5], 9)
    assert shown(tree) == ["5", "5 0", "5 1", "5 0 0", "5 0 1", "5 1 0", "5 1 1", "5 0 0 0", "5 0 0 1"]
    assert tree.sources.tolist() == [0] + [ADJACENCY] * 8


def test_the_bigram_of_parent_and_node_is_asked_first():
    successors = {5: {6: 1.0}, (5, 6): {7: 1.0}, 6: {8: 1.0}}  # the newer unigram row says 8
    assert shown(drafter_knowing(successors).draft([9, 5], 9)) == ["5", "5 6", "5 6 7"]


@pytest.mark.parametrize(
    ("k", "max_depth", "sizes"),
    [(1, 6, [1] * 7), (2, 3, [1, 2, 4, 8]), (3, 2, [1, 3, 9]), (5, 2, [1, 4, 16]), (3, 1, [1, 3])],
)
def test_k_and_the_depth_limit_shape_the_tree(k, max_depth, sizes):
    assert level_sizes(drafter_knowing(HALVES, k, max_depth=max_depth).draft([9, 5], 500)) == sizes


def test_default_three_and_five_ary_trees_of_sixty_nodes():
    assert level_sizes(drafter_knowing(HALVES, 3).draft([9, 5], 60)) == [1, 3, 9, 27, 20]
    wide = {token: dict.fromkeys(range(5), 0.2) for token in range(30)}
    assert level_sizes(drafter_knowing(wide, 5).draft([9, 5], 60)) == [1, 5, 25, 29]


def test_min_score_ends_a_row():
    assert level_sizes(drafter_knowing(HALVES, 3, min_score=0.25, max_depth=3).draft([9, 5], 500)) == [1, 2, 4, 8]
    assert drafter_knowing(HALVES, 3, min_score=0.6).draft([9, 5], 500).n_nodes == 1


@given(st.integers(1, 80), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_the_tree_is_what_a_plain_queue_of_paths_gives(budget, k, seed):
    rng = np.random.default_rng(seed)
    rows = {token: rng.permutation(8)[:4].tolist() for token in range(6)}  # 6 and 7 are never followed
    drafter = drafter_knowing({token: dict.fromkeys(row, 0.25) for token, row in rows.items()}, k)
    paths = [(5,)]
    for path in paths:  # grows while it is walked
        paths += [(*path, token) for token in rows.get(path[-1], [])[:k] if len(path) <= 6]
        if len(paths) >= budget:
            break
    assert shown(drafter.draft([9, 5], budget)) == [" ".join(map(str, path)) for path in paths[:budget]]


AGREED = [*range(10, 20)] * 4  # its newest token, 19, was always followed by 10


@pytest.mark.parametrize(("budget", "elastic"), [(1, 100), (16, 100), (60, 100), (120, 120)])
def test_elastic_enlarges_the_budget_by_the_confidence_of_a_match_it_does_not_draft(budget, elastic):
    tree = drafter_knowing(HALVES, budget_mode="elastic").draft(AGREED, budget)
    assert tree.n_nodes == elastic
    assert CONTEXT not in tree.sources
    assert drafter_knowing(HALVES).draft(AGREED, budget).n_nodes == budget


def test_elastic_adds_the_share_that_the_confidence_is():
    # (2, 3, 4) was once followed by 5 1 2 3 4: c = 0.6 x 5 / 8 = 0.375, 60 + int(40 x 0.375) = 75.
    context = [2, 3, 4, 5, 1, 2, 3, 4]
    assert drafter_knowing(HALVES, budget_mode="elastic").draft(context, 60).n_nodes == 75
    assert drafter_knowing(HALVES, budget_mode="elastic").draft([1, 2, 3, 4], 60).n_nodes == 60


def test_a_root_the_table_does_not_know_is_a_plain_step_and_in_elastic_mode_the_matched_chain():
    assert drafter_knowing({}).draft(AGREED, 60).n_nodes == 1
    chain = drafter_knowing({}, budget_mode="elastic").draft(AGREED, 60)
    assert chain.is_chain
    assert chain.tokens.tolist() == [19, *range(10, 20), *range(10, 20)]
    assert drafter_knowing({}, budget_mode="elastic").draft(AGREED, 5).n_nodes == 5


def test_a_verified_tree_teaches_every_node():
    drafter = drafter_knowing({5: {6: 1.0}})
    tree = drafter.draft([9, 5], 60)
    drafter.observe(tree, Verdict([0], 3), Scored([3, 3], np.array([[6], [8]]), np.ones((2, 1), dtype=np.float32)))
    assert shown(drafter.draft([9, 5], 60)) == ["5", "5 6", "5 6 8"]


@pytest.mark.parametrize(("root", "learns"), [(5, False), (50, True)])
def test_only_a_plain_step_teaches_the_roots_own_bigram(root, learns):
    drafter = drafter_knowing({5: {6: 1.0}})
    tree = drafter.draft([9, root], 60)
    rows = np.full((tree.n_nodes, 1), 70), np.ones((tree.n_nodes, 1), dtype=np.float32)
    drafter.observe(tree, Verdict([0], 3), Scored([3] * tree.n_nodes, *rows))
    drafter.table.learn([root], [None], np.array([[80]]), np.ones((1, 1), dtype=np.float32))
    assert drafter.table.successors(9, root)[0] == [70 if learns else 80]


def test_the_text_of_the_last_request_lends_no_confidence_to_the_next():
    warm = AdjacencyTable(4, prefill_harvest=False, state="warm")
    warm.learn(range(30), [None] * 30, np.tile(np.arange(4), (30, 1)), np.full((30, 4), 0.25, dtype=np.float32))
    drafter = BalancedDrafter(3, warm, budget_mode="elastic")
    for context, n_nodes in [(AGREED, 100), (AGREED[-5:], 60)]:
        drafter.begin(context[:-1], Prefill(context[-1], frozenset(), None))
        assert drafter.draft(context, 60).n_nodes == n_nodes


@pytest.mark.parametrize("settings", [{"k": 0}, {"budget_mode": "loose"}, {"max_depth": 0}, {"min_score": 2.0}])
def test_invalid_settings_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        BalancedDrafter(**settings)
