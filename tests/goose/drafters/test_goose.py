"""The GOOSE drafter: allocation, whole trees worked by hand, budgets, routes, running acceptance. A tree is shown as
one string a node, its path from the root in the order drafted: `2 3 4` is token 4 below 3 below 2."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goose.drafters.allocation import harmonic_allocation
from goose.drafters.goose import BUDGET_MODES, BYPASSES, GooseDrafter, spine_share
from goose.engine.contract import Prefill
from goose.engine.tree import ADJACENCY, CONTEXT, DraftTree
from goose.engine.verify import Scored, Verdict
from goose.sources.context import ContextMatcher
from goose.sources.transition import AdjacencyTable
from toy import begun_knowing, level_sizes, shown


def drafter_knowing(successors: dict, context: ContextMatcher | None = None, top_k=4, **settings) -> GooseDrafter:
    """A drafter knowing `successors`: token or (previous, token) -> {successor: score}, best first; later rows win."""
    drafter = GooseDrafter(context, AdjacencyTable(top_k, prefill_harvest=False), **settings)
    return begun_knowing(drafter, successors)


def spine(tree: DraftTree) -> list[int]:
    return tree.tokens[tree.sources == CONTEXT].tolist()


def says(tree: DraftTree, path: list[int]) -> tuple[DraftTree, Verdict, Scored]:
    """What observe() is told when the target accepts `path`."""
    n = tree.n_nodes
    top_ids = np.tile(np.arange(90, 94), (n, 1))
    return tree, Verdict(path, 0), Scored([0] * n, top_ids, np.full((n, 4), 0.25, dtype=np.float32))


WORKED = [(19, 20, [5, 2] + [1] * 12 + [0] * 6), (24, 10, [8, 4, 2, 2] + [1] * 6), (34, 5, [14, 7, 4, 3, 2])]
EDGES = [(1, 3, [1, 0, 0]), (0, 2, [0, 0]), (7, 1, [7]), (7, 0, [])]


@pytest.mark.parametrize(("n_branches", "n_spine", "allocation"), WORKED + EDGES)
def test_harmonic_allocation(n_branches, n_spine, allocation):
    assert harmonic_allocation(n_branches, n_spine) == allocation


@given(st.integers(0, 200), st.integers(0, 120))
def test_allocation_never_hands_out_more_than_there_is_and_never_rises_with_depth(n_branches, n_spine):
    allocation = harmonic_allocation(n_branches, n_spine)
    assert len(allocation) == n_spine
    assert sum(allocation) <= n_branches
    assert allocation == sorted(allocation, reverse=True)
    assert min(allocation, default=0) >= 0


def test_spine_share_tiers():
    shares = {0.0: 0.15, 0.19: 0.15, 0.2: 0.30, 0.39: 0.30, 0.4: 0.50, 1.0: 0.50}
    assert {ema: spine_share(ema, (0.15, 0.30, 0.50)) for ema in shares} == shares


# (1, 2) was followed by 3 4 5 9 1 2: one occurrence of 6 tokens, so c = 0.6 x 6 / 8 = 0.45 and no extension.
ONE_MATCH = [1, 2, 3, 4, 5, 9, 1, 2]


def pairs() -> ContextMatcher:
    return ContextMatcher(lengths=(2,))


SUCCESSORS = {
    2: {3: 0.5, 20: 0.25, 21: 0.125, 22: 0.0078125},
    3: {4: 0.5, 30: 0.25, 31: 0.25},
    4: {40: 0.5, 5: 0.25},
    20: {25: 0.5, 26: 0.5},
}


def test_whole_tree_by_hand():
    # r = 0.5 + 0.45 x 0.5 = 0.725; spine min(6, int(12 x 0.725) = 8) = 6; 5 branches: 2 on the spine, 3 at the root.
    tree = drafter_knowing(SUCCESSORS, pairs()).draft(ONE_MATCH, 12)
    assert shown(tree) == [
        "2",
        *["2 3", "2 3 4", "2 3 4 5", "2 3 4 5 9", "2 3 4 5 9 1", "2 3 4 5 9 1 2"],  # spine
        *["2 20", "2 21"],  # root branches without 3, the spine's first; 22 scores below 0.01, so one node is left
        "2 3 30",  # 4 is the next spine token
        "2 3 4 40",  # the two spine branches go to the first two nodes
        "2 20 25",  # the node that was left: breadth-first growth of the branches
    ]
    assert tree.sources.tolist() == [0] + [CONTEXT] * 6 + [ADJACENCY] * 5


def test_every_branch_is_asked_for_by_its_parents_pair():
    by_pair = {(1, 2): {3: 0.5, 20: 0.25}, (2, 3): {33: 1.0}, (3, 4): {44: 1.0}, (2, 20): {27: 0.5, 28: 0.5}}
    tree = drafter_knowing(by_pair | SUCCESSORS, pairs()).draft(ONE_MATCH, 12)
    assert shown(tree)[7:] == ["2 20", "2 3 33", "2 3 4 44", "2 20 27"]


def test_spine_branches_leave_out_the_next_spine_token_only():
    # spine int(4 x 0.725) = 2: 3 and 4. The one branch left hangs on the spine's first node, none at the root.
    assert shown(drafter_knowing(SUCCESSORS, pairs()).draft(ONE_MATCH, 4)) == ["2", "2 3", "2 3 4", "2 3 30"]
    # r = 0.45: spine int(4 x 0.45) = 1. Its last node is its first, no spine token follows, so 4 is a branch.
    low = drafter_knowing(SUCCESSORS, pairs(), spine_tiers=(0, 0, 0))
    assert shown(low.draft(ONE_MATCH, 4)) == ["2", "2 3", "2 20", "2 3 4"]


def test_a_chain_that_gets_no_share_of_the_budget_leaves_its_first_token_to_the_branches():
    low = drafter_knowing(SUCCESSORS, pairs(), spine_tiers=(0, 0, 0))
    assert shown(low.draft(ONE_MATCH, 2)) == ["2", "2 3"]  # int(2 x 0.45) = 0 spine nodes
    assert low.draft(ONE_MATCH, 2).sources.tolist() == [0, ADJACENCY]


def test_without_spine_branches_the_whole_branch_budget_is_the_roots():
    tree = drafter_knowing(SUCCESSORS, pairs(), rho=0.0).draft(ONE_MATCH, 12)
    assert shown(tree)[7:] == ["2 20", "2 21", "2 20 25"]  # ceil(3 left x 0.25) = 1
    on_spine = drafter_knowing(SUCCESSORS, pairs(), rho=1.0).draft(ONE_MATCH, 12)
    assert shown(on_spine)[7:] == ["2 3 30", "2 3 31", "2 3 4 40"]  # 2, 1, 1, 1, 0, 0: the others know none


HALVES = {token: {10: 0.5, 11: 0.25, 12: 0.125, 13: 0.125} for token in range(14)}


def test_growth_is_breadth_first_with_width_by_score():
    # root: 4 children; 9 - 4 = 5 left of 10: ceil(5 x 0.5) = 3, then ceil(2 x 0.25) = 1, ceil(1 x 0.125) = 1.
    tree = drafter_knowing(HALVES).draft([0, 1], 10)
    assert shown(tree) == [
        "1",
        *["1 10", "1 11", "1 12", "1 13"],
        "1 10 10",
        "1 10 11",
        "1 10 12",
        "1 11 10",
        "1 12 10",
    ]


def test_width_follows_the_score_of_the_node_that_grows():
    # Two left when 20 grows: ceil(2 x 0.5) = 1, though its parent's score would give it two.
    successors = {1: {10: 1.0}, 10: {20: 0.5, 21: 0.25}, 20: {30: 0.5, 31: 0.5}, 21: {40: 1.0}}
    tree = drafter_knowing(successors).draft([0, 1], 6)
    assert shown(tree) == ["1", "1 10", "1 10 20", "1 10 21", "1 10 20 30", "1 10 21 40"]


def test_growth_is_capped_by_top_k_over_depth_and_ends_at_the_depth_limit():
    # 4 successors at depth 1, 4 // 2 = 2 at depth 2, 4 // 3 = 1 at depth 3, then always 1.
    assert level_sizes(drafter_knowing(HALVES, max_depth=4).draft([0, 1], 500)) == [1, 4, 16, 32, 32]
    assert level_sizes(drafter_knowing(HALVES, max_depth=2).draft([0, 1], 500)) == [1, 4, 16]
    assert level_sizes(drafter_knowing(HALVES, max_depth=1).draft([0, 1], 500)) == [1, 4]


def test_min_score_ends_every_row():
    assert level_sizes(drafter_knowing(HALVES, min_score=0.25, max_depth=3).draft([0, 1], 500)) == [1, 2, 4, 8]
    assert drafter_knowing(HALVES, min_score=0.6).draft([0, 1], 500).n_nodes == 1


def test_a_chain_grows_by_matching_again_from_its_own_end():
    # L = 3 >= long_match: c = 0.7; (4, 5) gives 6 7 8, (7, 8) gives 9 1 2: past the limit int(10 x 0.7) = 7.
    matcher = ContextMatcher(lengths=(2,), max_match=3, long_match=3)
    context = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2]
    grown = drafter_knowing({2: {3: 1.0}}, matcher, max_chain=10)
    assert spine(grown.draft(context, 60)) == [3, 4, 5, 6, 7, 8, 9, 1, 2]
    assert spine(drafter_knowing({2: {3: 1.0}}, matcher, max_chain=5).draft(context, 60)) == [3, 4, 5]
    assert spine(drafter_knowing({2: {3: 1.0}}, ContextMatcher((2,), 3)).draft(context, 60)) == [3, 4, 5]  # c <= 0.6


def test_an_agreed_chain_ends_after_the_first_proposal_without_agreement():
    # (1, 2) always gave 3; (2, 3) gave 4 and 5: 4 is kept and nothing follows it.
    matcher = ContextMatcher(lengths=(2,), max_match=1)
    assert spine(drafter_knowing({2: {9: 1.0}}, matcher).draft([1, 2, 3, 4, 1, 2, 3, 5, 1, 2], 60)) == [3, 4]


# 0 1 2 ... 29 four times: every n-gram was always followed by the same token.
AGREED = [*range(30)] * 4
KNOWS_ALL = {token: {(token + 1) % 30: 0.5, 40: 0.25, 41: 0.25} for token in range(30)}


@pytest.mark.parametrize("budget", [1, 2, 3, 16, 60, 99, 100])
def test_elastic_reaches_101_nodes_on_a_long_agreed_match_whatever_the_budget(budget):
    tree = drafter_knowing(KNOWS_ALL, budget_mode="elastic").draft(AGREED, budget)
    assert tree.n_nodes == 101
    assert tree.is_chain


@pytest.mark.parametrize("budget", [1, 2, 3, 16, 60])
def test_strict_spends_the_budget_on_the_spine_there_and_nothing_more(budget):
    tree = drafter_knowing(KNOWS_ALL).draft(AGREED, budget)
    assert tree.n_nodes == budget
    assert tree.is_chain


def test_bypass():
    short = ContextMatcher(max_match=8)  # a long, agreed match of 8 tokens; max_chain = 8 keeps it from growing
    trees = {b: drafter_knowing(KNOWS_ALL, short, bypass=b, max_chain=8).draft(AGREED, 60) for b in BYPASSES}
    assert {b: len(spine(tree)) for b, tree in trees.items()} == {"saturate": 8, "linear": 8, "off": 8}
    assert trees["linear"].is_chain
    assert trees["linear"].n_nodes == 9
    assert shown(trees["saturate"]) == shown(trees["off"]) != shown(trees["linear"])
    # With 12 nodes c shows: it takes what the chain asks for, without it the tier's half: int(12 x 0.5) = 6.
    trees = {b: drafter_knowing(KNOWS_ALL, short, bypass=b, max_chain=8).draft(AGREED, 12) for b in BYPASSES}
    assert {b: len(spine(tree)) for b, tree in trees.items()} == {"saturate": 8, "linear": 8, "off": 6}
    # An agreed match shorter than long_match is no bypass, and bypass off never extends a chain.
    shorter = ContextMatcher(max_match=7)
    assert not drafter_knowing(KNOWS_ALL, shorter, bypass="linear", max_chain=7).draft(AGREED, 60).is_chain
    assert len(spine(drafter_knowing(KNOWS_ALL, bypass="off").draft(AGREED, 60))) == 20


def test_without_adjacency_data_at_the_root_the_bare_match_is_verified_and_the_running_acceptance_left_alone():
    drafter = drafter_knowing({}, budget_mode="elastic")
    tree = drafter.draft(AGREED, 60)
    assert tree.is_chain
    assert spine(tree) == list(range(20))  # one match, not extended
    assert drafter.draft(AGREED, 5).n_nodes == 5
    drafter.observe(*says(tree, [0]))
    assert drafter.ema == 0.5
    assert drafter_knowing({}).draft([5, 6], 60).n_nodes == 1  # no match either: a plain step


def test_running_acceptance_follows_the_accepted_share_of_the_spine():
    drafter = drafter_knowing(SUCCESSORS, pairs())
    tree = drafter.draft(ONE_MATCH, 12)  # six spine nodes: 1 to 6; node 9 is a branch of spine node 1
    drafter.observe(*says(tree, [0, 1, 9]))
    assert drafter.ema == pytest.approx(0.3 * (1 / 6) + 0.7 * 0.5)
    without_spine = drafter.draft([*ONE_MATCH, 20], 12)
    drafter.observe(*says(without_spine, [0]))
    assert drafter.ema == pytest.approx(0.4)
    drafter.begin([0], Prefill(0, frozenset(), None))
    assert drafter.ema == 0.5
    assert spine(drafter.draft([1, 2], 12)) == []  # the text is forgotten too


def knows_pair(table: AdjacencyTable, previous: int, token: int) -> bool:
    """Whether the pair has a row of its own: then a new unigram row does not reach it."""
    table.learn([token], [None], np.array([[99]]), np.array([[1.0]], dtype=np.float32))
    return table.successors(previous, token)[0] != [99]


@pytest.mark.parametrize(("root", "learns"), [(2, False), (50, True), (60, True)])
def test_a_tree_does_not_teach_the_roots_own_bigram_and_a_plain_step_does(root, learns):
    drafter = drafter_knowing(SUCCESSORS | {60: {61: 0.001}}, use_context=False)  # 50 unknown, 61 below min_score
    drafter.observe(*says(drafter.draft([1, root], 12), [0]))
    assert knows_pair(drafter.table, 1, root) == learns


def random_drafter(rng: np.random.Generator, context: list[int], **settings) -> GooseDrafter:
    """A drafter that was shown a random row of 10 of 12 tokens for every prompt position."""

    def top_k(k, _):
        ids = np.stack([rng.permutation(12)[:k] for _ in context[:-1]])
        scores = rng.dirichlet(np.full(k, 0.5), len(ids)).astype(np.float32)
        return ids, -np.sort(-scores, axis=1)

    drafter = GooseDrafter(ContextMatcher((3, 2, 1)), **settings)
    drafter.begin(context[:-1], Prefill(context[-1], frozenset(), top_k))
    return drafter


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 5), min_size=2, max_size=40),
    st.integers(1, 80),
    st.sampled_from(BUDGET_MODES),
    st.sampled_from(BYPASSES),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_random_trees_keep_to_budget_depth_and_shape(seed, context, budget, budget_mode, bypass, rho):
    drafter = random_drafter(np.random.default_rng(seed), context, budget_mode=budget_mode, bypass=bypass, rho=rho)
    tree = drafter.draft(context, budget)
    assert tree.n_nodes <= (budget if budget_mode == "strict" else 101)
    assert tree.tokens[0] == context[-1]
    DraftTree.from_lists(tree.tokens.tolist(), tree.parents.tolist())  # raises on equal siblings and late parents
    n_spine = len(spine(tree))
    assert tree.sources[1 : n_spine + 1].tolist() == [CONTEXT] * n_spine  # drafted first, so walked first
    assert tree.parents[1 : n_spine + 1].tolist() == list(range(n_spine))
    for node in np.flatnonzero(tree.sources == ADJACENCY):
        on_spine = 1 <= tree.parents[node] <= n_spine  # the depth limit holds for growth, not for these
        assert tree.depths[node] <= drafter.max_depth or on_spine
        assert rho > 0 or not on_spine
        assert tree.scores[node] >= drafter.min_score


REFUSED = [
    *[{"budget_mode": "loose"}, {"bypass": "on"}, {"allocation": "even"}, {"rho": -0.1}, {"rho": 1.1}],
    *[{"spine_tiers": (0.1, 0.2)}, {"use_context": False, "use_adjacency": False}],
    *[{"max_chain": 0}, {"max_depth": 0}, {"spine_tiers": (-1, 0, 1)}, {"ema_alpha": 1.5}],
]


@pytest.mark.parametrize("settings", REFUSED)
def test_invalid_settings_are_refused(settings):
    with pytest.raises(ValueError):
        GooseDrafter(**settings)
