"""GOOSE's propositions against the slow, obvious way: every allocation enumerated, every walk simulated; and the
drafter's `allocation` switch with its running a_s and a_t.
"""

from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goose.drafters.allocation import (
    balanced_yield,
    best_balanced_tree,
    best_harmonic_tree,
    best_spine_tree,
    expected_yield,
    harmonic_allocation,
    linear_allocation,
    optimal_allocation,
)
from goose.drafters.goose import GooseDrafter, tried_nodes
from goose.engine.contract import Prefill
from goose.engine.tree import ADJACENCY, CONTEXT, ROOT, DraftTree
from goose.engine.verify import Scored, Verdict
from goose.sources.context import ContextMatcher
from goose.sources.transition import AdjacencyTable

PROBABILITIES = (0.0, 0.05, 0.3, 0.5, 0.8, 1.0)
probabilities = st.one_of(st.sampled_from(PROBABILITIES), st.floats(0.001, 0.999))
spine_lengths, branch_counts = st.integers(0, 30), st.integers(0, 60)
allocations = pytest.mark.parametrize("allocate", [linear_allocation, optimal_allocation])


def every_allocation(n_branches: int, n_depths: int) -> list[tuple[int, ...]]:
    return [a for a in product(range(n_branches + 1), repeat=n_depths) if sum(a) == n_branches]


def spine_tree(branches: list[int]) -> list[tuple[int, bool]]:
    """(parent, is spine) of nodes 1.., the spine first, then the leaves of depth 0, 1, .."""
    spine = [(i, True) for i in range(len(branches) - 1)]
    return spine + [(depth, False) for depth, b in enumerate(branches) for _ in range(b)]


def simulated_emitted(parents: list[int], acceptance: list[float], n_walks: int, seed: int = 0) -> np.ndarray:
    """int[n_walks]: tokens emitted by walks that go to the first acceptable child while there is one.

    parents and acceptance are those of nodes 1, 2, ..; acceptable or not is drawn for every node, reached or not.
    """
    rng = np.random.default_rng(seed)
    children = {}
    for node, parent in enumerate(parents, 1):
        children.setdefault(parent, []).append(node)
    emitted = np.ones(n_walks, dtype=int)  # the bonus
    for walk, acceptable in enumerate(rng.random((n_walks, len(parents))) < acceptance):
        node = 0
        while node is not None:
            node = next((child for child in children.get(node, []) if acceptable[child - 1]), None)
            emitted[walk] += node is not None
    return emitted


def assert_mean(sample: np.ndarray, expected: float) -> None:
    standard_error = sample.std() / len(sample) ** 0.5
    assert abs(sample.mean() - expected) <= 4 * standard_error


@pytest.mark.parametrize(
    ("a_s", "a_t", "branches"),
    [
        (0.8, 0.1, [5, 3, 2, 1, 0, 4]),
        (0.5, 0.4, [0, 2]),
        (0.3, 0.7, [2]),
        (0.95, 0.05, [1] * 12),
        (0.6, 0.3, [0, 0, 0]),
    ],
)
def test_yield_of_proposition_1_is_the_mean_of_simulated_walks(a_s, a_t, branches):
    tree = spine_tree(branches)
    acceptance = [a_s if is_spine else a_t for _, is_spine in tree]
    emitted = simulated_emitted([parent for parent, _ in tree], acceptance, 20_000)
    assert_mean(emitted, expected_yield(len(branches) - 1, branches, a_s, a_t))


@pytest.mark.parametrize(("k", "n_nodes", "p"), [(1, 8, 0.7), (2, 7, 0.5), (2, 10, 0.6), (3, 30, 0.3), (5, 4, 0.2)])
def test_balanced_yield_is_the_mean_of_simulated_walks(k, n_nodes, p):
    parents = [(node - 1) // k for node in range(1, n_nodes)]
    assert_mean(simulated_emitted(parents, [p] * len(parents), 20_000), balanced_yield(k, n_nodes, p))


def test_yields_by_hand():
    assert expected_yield(0, [0], 0.5, 0.5) == 1  # the root alone: the bonus
    assert expected_yield(0, [3], 0.9, 0.5) == 1 + 0.875  # a_s without a spine plays no part
    assert expected_yield(2, [1, 0, 2], 0.5, 0.5) == 1 + 0.5 + 0.25 + 0.5 * 0.5 + 0.25 * 0.75
    assert expected_yield(3, [9, 9, 9, 9], 1.0, 0.0) == 4
    assert expected_yield(3, [0, 0, 0, 1], 1.0, 1.0) == 5
    assert balanced_yield(2, 7, 0.5) == 1 + 0.75 + 0.75**2  # full levels pass on 1 - (1-p)^k
    assert balanced_yield(2, 5, 0.5) == 1 + 0.75 + 0.5 * 0.75  # the last level stands below the first sibling
    assert balanced_yield(10**6, 3, 0.5) == 1.75
    assert best_balanced_tree(0.3, 1).emitted == best_spine_tree(0.7, 0.3, 1).emitted == 1


@pytest.mark.parametrize(("a_s", "a_t"), list(product(PROBABILITIES, PROBABILITIES)))
def test_optimal_allocation_equals_the_best_of_all(a_s, a_t):
    for n_branches, spine_length in [(0, 2), (1, 0), (4, 0), (5, 1), (6, 3), (4, 5)]:
        every = every_allocation(n_branches, spine_length + 1)
        assert len(every) == comb(n_branches + spine_length, spine_length)
        best = max(expected_yield(spine_length, list(a), a_s, a_t) for a in every)
        ours = optimal_allocation(spine_length, n_branches, a_s, a_t)
        assert expected_yield(spine_length, ours, a_s, a_t) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize(("a_s", "a_t"), [(0.7, 0.2), (0.4, 0.3), (0.9, 0.05), (0.2, 0.6)])
def test_best_spine_tree_equals_the_best_of_all_lengths_and_allocations(a_s, a_t):
    budget = 7
    every = [list(a) for d in range(budget) for a in every_allocation(budget - 1 - d, d + 1)]
    best = max(expected_yield(len(a) - 1, a, a_s, a_t) for a in every)
    tree = best_spine_tree(a_s, a_t, budget)
    assert tree.emitted == pytest.approx(best, abs=1e-12)
    assert 1 + tree.spine_length + sum(tree.branches) == budget
    assert best_harmonic_tree(a_s, a_t, budget).emitted <= tree.emitted


@allocations
@given(spine_lengths, branch_counts, probabilities, probabilities)
def test_an_allocation_hands_out_every_branch_and_never_rises_with_depth(allocate, spine_length, n_branches, a_s, a_t):
    branches = allocate(spine_length, n_branches, a_s, a_t)
    assert len(branches) == spine_length + 1
    assert sum(branches) == n_branches
    assert min(branches) >= 0
    # The optimum may give the spine's last node more: the walk stops there with a_s^d, not a_s^d (1-a_s).
    falling = branches if allocate is linear_allocation else branches[:-1]
    assert falling == sorted(falling, reverse=True)


@given(spine_lengths, probabilities, probabilities)
@settings(max_examples=50)
def test_each_further_branch_adds_something_and_never_more_than_the_one_before(spine_length, a_s, a_t):
    yields = [expected_yield(spine_length, optimal_allocation(spine_length, n, a_s, a_t), a_s, a_t) for n in range(25)]
    gains = np.diff(yields)
    assert (gains >= -1e-12).all()
    assert (np.diff(gains) <= 1e-12).all()


@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.integers(1, 40))
@settings(max_examples=30)
def test_best_yields_never_fall_with_the_budget_and_spines_gain_with_p_s(a_s, a_t, budget):
    spine = best_spine_tree(a_s, a_t, budget).emitted
    assert best_spine_tree(a_s, a_t, budget + 1).emitted >= spine - 1e-12
    assert best_spine_tree(min(1.0, a_s + 0.04), a_t, budget).emitted >= spine - 1e-12
    assert best_balanced_tree(a_t, budget + 1).emitted >= best_balanced_tree(a_t, budget).emitted - 1e-12


@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.integers(0, 60))
def test_linear_is_the_optimum_within_rounding_where_the_spine_never_ends(a_s, a_t, n_branches):
    # A spine so long that its last node, which proposition 2 treats like the others, gets nothing.
    spine_length = 400
    linear, optimal = (a(spine_length, n_branches, a_s, a_t) for a in (linear_allocation, optimal_allocation))
    assert max(abs(a - b) for a, b in zip(linear, optimal, strict=True)) <= 1


def test_linear_misses_the_last_nodes_share_on_a_short_spine():
    assert linear_allocation(4, 30, 0.7, 0.1) == [13, 9, 6, 2, 0]
    assert optimal_allocation(4, 30, 0.7, 0.1) == [11, 7, 4, 0, 8]  # |ln 0.3| / |ln 0.9| = 11.4 branches more


def test_linear_by_hand_and_at_the_ends_of_both_probabilities():
    # a_s = 1/4 and 1 - a_t = 1/2: two branches less a depth.
    assert linear_allocation(3, 12, 0.25, 0.5) == [6, 4, 2, 0]
    assert linear_allocation(3, 13, 0.25, 0.5) == [7, 4, 2, 0]  # 19/3, 13/3, 7/3: equal remainders, the first gets it
    assert linear_allocation(3, 3, 0.25, 0.5) == [3, 0, 0, 0]  # 5/2 and 1/2: the first of equal remainders
    for a_t in PROBABILITIES:
        assert linear_allocation(3, 10, 1.0, a_t) == [3, 3, 2, 2]
        assert linear_allocation(3, 10, 0.0, a_t) == optimal_allocation(3, 10, 0.0, a_t) == [10, 0, 0, 0]
    assert linear_allocation(3, 10, 0.5, 0.0) == optimal_allocation(3, 10, 0.5, 0.0) == [10, 0, 0, 0]
    assert linear_allocation(3, 10, 0.5, 1.0) == [3, 3, 2, 2]
    assert optimal_allocation(3, 10, 1.0, 0.3) == [0, 0, 0, 10]  # a sure spine is left at its end only
    assert linear_allocation(0, 4, 0.5, 0.5) == optimal_allocation(0, 4, 0.5, 0.5) == [4]


@pytest.mark.parametrize(
    ("budget", "a_t", "least_a_s"),
    [
        *[(8, 0.1, 0.11), (8, 0.3, 0.31), (8, 0.6, 0.61)],
        *[(16, 0.1, 0.11), (16, 0.3, 0.34), (16, 0.5, 0.53), (16, 0.8, 0.81)],
        *[(60, 0.05, 0.06), (60, 0.1, 0.11), (60, 0.2, 0.36), (60, 0.3, 0.47), (60, 0.5, 0.63), (60, 0.7, 0.74)],
    ],
)
def test_where_proposition_3_holds_and_where_it_does_not(budget, a_t, least_a_s):
    balanced = best_balanced_tree(a_t, budget).emitted
    assert best_spine_tree(least_a_s, a_t, budget).emitted > balanced  # and above, since it grows with a_s
    below = round(least_a_s - 0.01, 2)
    assert below == a_t or best_spine_tree(below, a_t, budget).emitted <= balanced


@pytest.mark.parametrize(
    "call",
    [
        lambda: expected_yield(2, [1, 1], 0.5, 0.5),
        lambda: expected_yield(1, [1, -1], 0.5, 0.5),
        lambda: linear_allocation(-1, 3, 0.5, 0.5),
        lambda: optimal_allocation(2, -1, 0.5, 0.5),
        lambda: optimal_allocation(2, 1, 1.1, 0.5),
        lambda: linear_allocation(2, 1, 0.5, float("nan")),
        lambda: best_spine_tree(0.5, 0.5, 0),
        lambda: balanced_yield(0, 5, 0.5),
        lambda: harmonic_allocation(-3, 2),
        lambda: harmonic_allocation(3, -2),
        lambda: best_harmonic_tree(0.5, 0.2, 8, rho=1.5),
        lambda: GooseDrafter(allocation="greedy"),
    ],
)
def test_impossible_requests_are_refused(call):
    with pytest.raises(ValueError):
        call()


# Root 0; spine 1, 2, 3; branches 4, 5 of the root, 6, 7 of node 1, 8 of node 2; 9 below branch 6, 10 below branch 5.
PARENTS = [-1, 0, 1, 2, 0, 0, 1, 1, 2, 6, 5]
SPINE3 = DraftTree.from_lists(list(range(11)), PARENTS, [ROOT] + [CONTEXT] * 3 + [ADJACENCY] * 7)


@pytest.mark.parametrize(
    ("path", "tried"),
    [
        ([0], [1, 4, 5]),
        ([0, 1], [1, 2, 6, 7]),  # 4 and 5 had no turn: the spine's node came before them
        ([0, 1, 6], [1, 2, 6, 9]),  # nor had 7, after 6
        ([0, 1, 2, 3], [1, 2, 3]),
        ([0, 5], [1, 4, 5, 10]),
    ],
)
def test_nodes_whose_turn_came(path, tried):
    assert np.flatnonzero(tried_nodes(SPINE3, path)).tolist() == tried


def drafter_of(allocation: str) -> GooseDrafter:
    """A drafter that knows ten successors of every token; (1, 2) was followed by 3, 4, 5, 9, 1, 2."""
    drafter = GooseDrafter(ContextMatcher((2,)), AdjacencyTable(10, prefill_harvest=False), allocation=allocation)
    drafter.begin([0], Prefill(0, frozenset(), None))
    drafter.table.learn(list(range(10)), [None] * 10, *equal_rows(10))
    return drafter


def equal_rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.tile(np.arange(50, 60), (n, 1)), np.full((n, 10), 0.1, dtype=np.float32)


def drafted(drafter: GooseDrafter) -> DraftTree:
    return drafter.draft([1, 2, 3, 4, 5, 9, 1, 2], 24)


def spine_widths(tree: DraftTree) -> list[int]:
    """Branches of spine nodes 1 to 6."""
    on = tree.parents[tree.sources == ADJACENCY]
    return [int((on == node).sum()) for node in range(1, 7)]


def told(drafter: GooseDrafter, tree: DraftTree, path: list[int]) -> None:
    drafter.observe(tree, Verdict(path, 0), Scored([0] * tree.n_nodes, *equal_rows(tree.n_nodes)))


def test_the_switch_shares_the_spines_branches_by_the_running_probabilities():
    # 24 nodes, 6 on the spine, 17 branches, half of them on the spine: 8. Priors: a_s = 1/2, a_t = 1/4.
    trees = {name: drafted(drafter_of(name)) for name in ("harmonic", "linear", "optimal")}
    assert {name: spine_widths(tree) for name, tree in trees.items()} == {
        "harmonic": harmonic_allocation(8, 6),
        "linear": linear_allocation(5, 8, 1 / 2, 1 / 4),
        "optimal": optimal_allocation(5, 8, 1 / 2, 1 / 4),
    }
    assert len({tuple(spine_widths(tree)) for tree in trees.values()}) > 1
    assert len({int((tree.parents == 0).sum()) for tree in trees.values()}) == 1  # the root's share is rho's

    drafter = drafter_of("optimal")
    first = drafted(drafter)
    told(drafter, first, [0, 1, 2, 3, 4, 5, 6])
    n_below_the_last = spine_widths(first)[5]  # all the branches whose turn came, and none was accepted
    again = optimal_allocation(5, 8, (1 + 6) / (2 + 6), 1 / (4 + n_below_the_last))
    assert spine_widths(drafted(drafter)) == again != spine_widths(first)
    drafter.begin([0], Prefill(0, frozenset(), None))
    assert (drafter._n_accepted[CONTEXT], drafter._n_tried[CONTEXT]) == (1, 2)  # per request


def test_a_chain_without_adjacency_data_teaches_the_probabilities_nothing():
    drafter = drafter_of("optimal")
    chain = drafter.draft([1, 60, 3, 4, 1, 60], 24)  # nothing is known of 60
    assert chain.is_chain
    told(drafter, chain, [0, 1])
    assert (drafter._n_accepted[CONTEXT], drafter._n_tried[CONTEXT]) == (1, 2)
