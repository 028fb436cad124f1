"""goose_opt: its tree is the best of all, and its size, by the chances and costs that it is given."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from goose.drafters.goose_opt import FIRST_STEPS, MIN_PATH_PROB, GooseOptDrafter
from goose.drafters.probabilities import AcceptanceProbabilities
from goose.engine.contract import Prefill
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from goose.engine.verify import Sampling
from goose.sources.draft_model import DraftModelCandidates
from goose.sources.evidence import N_CELLS
from toy import tiny_model

CONTEXT = [0, 0, 0]
PREFILL = Prefill(0, frozenset(), lambda k, n: (np.empty((2, 0), dtype=np.int64), np.empty((2, 0), dtype=np.float32)))


class FixedEvidence:
    """Candidates by path, for trees small enough to enumerate. A cell is one candidate's own."""

    top_k, state = 0, "cold"

    def __init__(self, children: dict[tuple[int, ...], list[tuple[int, int]]]):
        self.children = children

    def begin(self, prompt_ids, prefill):
        pass

    def root(self, context, draft=None):
        return ()

    def child(self, place, token):
        return (*place, token)

    def candidates(self, place, chances, least, is_root):
        assert is_root == (place == ())
        return [(token, cell) for token, cell in self.children.get(place, []) if chances[cell] >= least]


def drafter_of(tree: list[tuple[int, float]], **options) -> tuple[GooseOptDrafter, list[float]]:
    """A drafter that sees node i + 1 with (parent, chance) = tree[i], and every node's path probability."""
    paths, w, children, prior = [()], [1.0], {}, np.full(N_CELLS, 0.5)
    for cell, (parent, chance) in enumerate(tree):
        prior[cell] = chance
        children.setdefault(paths[parent], []).append((cell, cell))
        paths.append((*paths[parent], cell))
        w.append(w[parent] * chance)
    drafter = GooseOptDrafter(FixedEvidence(children), AcceptanceProbabilities.of_prior(prior, "prior"), **options)
    drafter.begin([0, 0], PREFILL)
    return drafter, w


@st.composite
def trees(draw) -> list[tuple[int, float]]:
    n = draw(st.integers(1, 8))
    return [(draw(st.integers(0, i)), draw(st.floats(0.01, 1.0))) for i in range(n)]


def best_of_all(tree: list[tuple[int, float]], w: list[float], n_nodes: int) -> float:
    """The greatest E of all ancestor-closed sets of n_nodes nodes, the root's included."""
    best = 0.0
    for chosen in combinations(range(1, len(w)), n_nodes - 1):
        if all(tree[node - 1][0] in (0, *chosen) for node in chosen):
            best = max(best, 1 + sum(w[node] for node in chosen))
    return best


@given(trees(), st.integers(1, 9))
@example([(0, 0.01), (1, 0.01), (2, 0.01), (3, 0.01)], 5)  # the last one's chance is too small to be drafted
def test_no_tree_of_the_same_size_has_a_greater_expectation(tree, budget):
    drafter, w = drafter_of(tree, size="budget")
    drafted = drafter.draft(CONTEXT, budget)
    assert drafted.n_nodes == min(budget, sum(chance >= MIN_PATH_PROB for chance in w))
    assert drafter.expected[-1] == pytest.approx(best_of_all(tree, w, drafted.n_nodes))
    assert drafter.expected[-1] == pytest.approx(float(drafted.scores.sum()), rel=1e-5)


costs = st.lists(st.floats(0.0, 2.0), min_size=9, max_size=9).map(lambda steps: np.cumsum([1.0, *steps]).tolist())


def expectations(tree: list[tuple[int, float]]) -> list[float]:
    """E(n) of the best tree of each size from 1 to the whole."""
    _, w = drafter_of(tree, size="budget")
    return [1.0, *(1 + sum(sorted(w[1:], reverse=True)[:n]) for n in range(1, len(w)))]


@settings(max_examples=200)
@given(trees(), costs)
def test_the_size_is_the_best_of_all_sizes_by_the_steps_own_rate(tree, seconds):
    drafter, _ = drafter_of(tree, size="cost", cost=lambda n, _: seconds[n - 1], host_s=0.0)
    drafted = drafter.draft(CONTEXT, 9)
    expected = expectations(tree)
    best = max(e / seconds[i] for i, e in enumerate(expected))
    assert drafter.expected[-1] / seconds[drafted.n_nodes - 1] == pytest.approx(best, rel=1e-6)


@settings(max_examples=200)
@given(trees(), costs)
def test_the_size_is_the_best_of_all_sizes_by_the_requests_rate(tree, seconds):
    drafter, _ = drafter_of(tree, size="cost", cost=lambda n, _: seconds[n - 1], host_s=0.0, rate="request")
    drafter._emitted, drafter._seconds = 30.0, 20.0  # as if so much had been emitted in that time
    rate = (FIRST_STEPS + 30.0) / (FIRST_STEPS * seconds[0] + 20.0)
    drafted = drafter.draft(CONTEXT, 9)
    best = max(e - rate * seconds[i] for i, e in enumerate(expectations(tree)))
    assert drafter.expected[-1] - rate * seconds[drafted.n_nodes - 1] == pytest.approx(best, abs=1e-6)


def test_where_nothing_pays_the_step_is_plain():
    drafter, _ = drafter_of([(0, 0.3), (1, 0.3)], size="cost", cost=lambda n, _: float(n), host_s=0.0)
    assert drafter.draft(CONTEXT, 9).n_nodes == 1


def test_nodes_that_cost_nothing_are_all_taken():
    drafter, _ = drafter_of([(0, 0.02)] * 8, size="cost", cost=lambda n, _: 1.0)
    assert drafter.draft(CONTEXT, 9).n_nodes == 9


def test_a_dip_in_a_measured_curve_is_not_believed():
    """A size that a larger one undercuts costs what the larger one costs."""
    drafter, _ = drafter_of([(0, 0.5)], size="cost", cost=lambda n, _: {1: 3.0, 2: 1.0}.get(n, 9.0), host_s=0.0)
    assert drafter._seconds_by_size(0, 3).seconds == [1.0, 1.0, 1.0, 9.0]
    assert drafter.draft(CONTEXT, 3).n_nodes == 2


def test_a_cost_of_nothing_is_refused():
    drafter, _ = drafter_of([(0, 0.5)], size="cost", cost=lambda n, _: 0.0, host_s=0.0)
    with pytest.raises(ValueError, match="seconds above 0"):
        drafter.draft(CONTEXT, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"size": "large"}, {"rate": "day"}, {"size": "budget", "cost": lambda n, _: 1.0}, {"host_s": -1.0},
        {"host_s": float("inf")}, {"draft_nodes": 0}, {"draft_depth": 0},
    ],
)  # fmt: skip
def test_bad_settings_are_refused(options):
    with pytest.raises(ValueError, match="must be"):
        GooseOptDrafter(**options)


# Over a draft model


def mal(drafter) -> tuple[float, int]:
    """Tokens a step on the tiny model, and the most nodes of a tree from the draft."""
    lm = TreeLM(tiny_model())
    found = decode(lm, [5, 6, 7, 8], drafter, max_new_tokens=40, node_budget=24, sampling=Sampling())
    n_drafted = max(int((tree.sources == 3).sum()) for tree in found.steps.trees)
    return sum(found.steps.emitted) / len(found.steps), n_drafted


def over_a_copy(**options) -> GooseOptDrafter:
    return GooseOptDrafter(size="budget", fill=DraftModelCandidates(TreeLM(tiny_model())), **options)


def test_a_perfect_draft_is_followed_to_its_depth():
    rate, n_drafted = mal(over_a_copy(draft_depth=4))
    assert rate > 2.0
    assert n_drafted > 0
    assert mal(over_a_copy(draft_depth=1))[0] < rate
    assert mal(over_a_copy(draft_depth=4, draft_nodes=1))[0] < rate


def test_a_second_request_is_drafted_like_a_fresh_drafters_first():
    used, lm = GooseOptDrafter(size="budget"), TreeLM(tiny_model())
    decode(lm, [9, 8, 7], used, max_new_tokens=20)
    again, fresh = (
        decode(lm, [5, 6, 7, 8], drafter, max_new_tokens=20) for drafter in (used, GooseOptDrafter(size="budget"))
    )
    assert [tree.tokens.tolist() for tree in again.steps.trees] == [t.tokens.tolist() for t in fresh.steps.trees]


def test_drafting_a_step_twice_gives_the_same_tree_and_one_expectation():
    drafter = GooseOptDrafter(size="budget")
    drafter.begin(
        [5, 6, 5, 6], Prefill(5, frozenset(), lambda k, rows: (np.full((2, k), 9), np.ones((2, k), np.float32)))
    )
    first, second = (drafter.draft([5, 6, 5, 6, 5], 8) for _ in range(2))
    assert first.tokens.tolist() == second.tokens.tolist()
    assert len(drafter.expected) == 1
