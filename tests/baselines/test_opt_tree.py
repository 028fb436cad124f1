"""OPT-Tree: against all ancestor-closed sets and against the paper's algorithm without shortcuts; ties, delta, E.

Trees are shown as one string a node, its path from the root in the order drafted.
"""

import numpy as np
import pytest
import torch

from baselines.adjacency import AdjacencyCandidates
from baselines.autoregressive import AutoregressiveDrafter
from baselines.opt_tree import OptTreeDrafter, grow
from goose.engine.contract import Prefill
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from goose.engine.tree import ADJACENCY, DRAFT_MODEL, DraftTree
from goose.engine.verify import Sampling
from goose.sources.transition import AdjacencyTable
from toy import P0, counter, tiny_model


class Scripted:
    """A source that proposes tokens 0, 1, ... with log q = log_q(path from the root's child down), as a model would."""

    top_k, width, source = 0, 10, DRAFT_MODEL

    def __init__(self, log_q):
        self.log_q = log_q
        self.layers: list[int] = []  # how many nodes each call expanded

    def expand(self, tokens, parents, nodes):
        self.layers.append(len(nodes))
        return [enumerate(self.log_q(path_of(tokens, parents, node))) for node in nodes]


def path_of(tokens, parents, node) -> tuple[int, ...]:
    path = []
    while node:
        path.append(tokens[node])
        node = parents[node]
    return tuple(reversed(path))


def random_q(seed: int, n_vocab: int, sharpness: float = 1.0):
    """log q as a function of the path, best first."""

    def log_q(path: tuple[int, ...]) -> list[float]:
        rng = np.random.default_rng([seed, len(path), *path])
        return np.log(np.sort(rng.dirichlet(np.full(n_vocab, 1 / sharpness)))[::-1] + 1e-12).tolist()

    return log_q


def paths(tree: DraftTree) -> set[tuple[int, ...]]:
    return {path_of(tree.tokens.tolist(), tree.parents.tolist(), node) for node in range(1, tree.n_nodes)}


def weight(log_q, path) -> float:
    return sum(log_q(path[:i])[path[i]] for i in range(len(path)))


def shown(tree: DraftTree) -> list[str]:
    return [" ".join(str(tree.tokens[node]) for node in np.flatnonzero(row)) for row in tree.ancestor_mask]


def level_sizes(tree: DraftTree) -> list[int]:
    return np.bincount(tree.depths).tolist()


def closed_sets(n: int, n_vocab: int, max_depth: int, chosen=(), frontier=None):
    """All sets of n paths that hold the parent of each."""
    if frontier is None:
        frontier = [(token,) for token in range(n_vocab)]
    if n == 0:
        yield chosen
        return
    for i, path in enumerate(frontier):  # frontier[:i] stays out for good, so no set comes twice
        below = [(*path, token) for token in range(n_vocab)] if len(path) < max_depth else []
        yield from closed_sets(n - 1, n_vocab, max_depth, (*chosen, path), frontier[i + 1 :] + below)


@pytest.mark.parametrize(
    ("n_vocab", "n_nodes", "max_depth"), [(3, n, 10) for n in range(2, 7)] + [(2, 7, 10), (2, 8, 10), (2, 8, 3)]
)
def test_the_tree_is_the_best_of_all_ancestor_closed_sets(n_vocab, n_nodes, max_depth):
    sets = list(closed_sets(n_nodes - 1, n_vocab, max_depth))
    assert len({frozenset(s) for s in sets}) == len(sets)
    for seed in range(5):
        log_q = random_q(seed, n_vocab)
        w = {path: np.exp(weight(log_q, path)) for path in {path for s in sets for path in s}}
        best = max(sets, key=lambda s: sum(w[path] for path in s))
        tree = grow(Scripted(log_q), 7, n_nodes, delta=0.0, max_depth=max_depth)
        assert paths(tree) == set(best)
        assert tree.scores.sum() == pytest.approx(1 + sum(w[path] for path in best), rel=1e-6)


def by_the_paper(log_q, n: int, delta: float, max_depth: int) -> tuple[set, int]:
    """Algorithm 1 word for word: each layer the best n of all children of the layer before. The set and the layers."""

    def rank(path):
        return -weight(log_q, path), len(path), path

    layer, everything, expected, n_layers = [()], [], 0.0, 0
    while n_layers < max_depth:
        n_layers += 1
        layer = sorted(((*path, t) for path in layer for t in range(len(log_q(path)))), key=rank)[:n]
        everything += layer
        before, expected = expected, sum(np.exp(weight(log_q, p)) for p in sorted(everything, key=rank)[:n])
        if expected - before <= delta:
            break
    return set(sorted(everything, key=rank)[:n]), n_layers


@pytest.mark.parametrize("delta", [0.0, 0.2, 0.5, 0.8])
@pytest.mark.parametrize("sharpness", [0.5, 2.0, 8.0])
def test_expanding_the_best_nodes_alone_gives_the_papers_tree(delta, sharpness):
    for seed in range(3):
        log_q = random_q(seed, 11, sharpness)  # as many successors as the tree has nodes: the first layer fills it
        expected, n_layers = by_the_paper(log_q, 11, delta, max_depth=6)
        source = Scripted(log_q)
        assert paths(grow(source, 7, 12, delta, max_depth=6)) == expected
        assert len(source.layers) <= n_layers + (delta == 0.0)
        assert max(source.layers) <= 11


def test_a_worked_tree():
    # 0.6 | 0.3 ; below: 0.36 0.18 | 0.18 0.09 ; 0.216 below the best. Best five: .6 .36 .3 .216 .18 (the earlier one).
    tree = grow(Scripted(lambda path: np.log([0.6, 0.3]).tolist()), 7, 6, delta=0.0, max_depth=3)
    assert shown(tree) == ["7", "7 0", "7 1", "7 0 0", "7 0 1", "7 0 0 0"]
    np.testing.assert_allclose(tree.scores, [1, 0.6, 0.3, 0.36, 0.18, 0.216], rtol=1e-6)
    assert tree.sources.tolist() == [0] + [DRAFT_MODEL] * 5


def test_equal_scores_go_to_the_shallower_then_to_the_earlier_node():
    uniform = Scripted(lambda path: np.log([0.5, 0.5]).tolist())
    assert shown(grow(uniform, 7, 6, 0.0, 9)) == ["7", "7 0", "7 1", "7 0 0", "7 0 1", "7 1 0"]
    certain = Scripted(lambda path: [0.0, 0.0, 0.0])  # every node ties with every other
    assert level_sizes(grow(certain, 7, 6, 0.0, 9)) == [1, 3, 2]


def test_near_deterministic_q_still_fills_the_tree():
    # q = 1 on the first successor: a chain of ten and, all tied at e^-30, 9 + 18 + 22 nodes on levels 1 to 3.
    peaked = Scripted(lambda path: [0.0] + [-30.0] * 9)
    tree = grow(peaked, 7, 60, delta=0.5, max_depth=10)
    assert level_sizes(tree) == [1, 10, 19, 23, 1, 1, 1, 1, 1, 1, 1]
    DraftTree.from_lists(tree.tokens.tolist(), tree.parents.tolist())


def test_near_deterministic_rows_of_the_table_still_fill_the_tree():
    # In the table's half precision a share of e^-30 is 0.
    scores = torch.softmax(torch.tensor([30.0, *[0.0] * 9]), dim=0).numpy()[None]
    drafter = OptTreeDrafter(AdjacencyCandidates(AdjacencyTable(10, prefill_harvest=False)))
    drafter.begin([0], Prefill(0, frozenset(), None))
    for token in range(20):
        drafter.candidates.table.learn([token], [None], np.array([[(token + i) % 20 for i in range(1, 11)]]), scores)
    tree = drafter.draft([3, 5], 60)
    assert tree.n_nodes == 60
    assert tree.depths.max() == 10
    assert drafter.expected == [pytest.approx(11.0)]


@pytest.mark.parametrize(("delta", "n_layers"), [(0.97, 1), (0.85, 2), (0.75, 3), (0.5, 7), (0.0, 10)])
def test_another_layer_has_to_earn_more_than_delta(delta, n_layers):
    # E gains 0.96 (0.9 and the best 58 of the rest), then about 0.81, 0.73, ...: a layer more after each gain > delta.
    source = Scripted(lambda path: np.log([0.9, *[0.1 / 99] * 99]).tolist())
    grow(source, 7, 60, delta, max_depth=10)
    assert len(source.layers) == n_layers


def test_a_tree_that_lacks_candidates_grows_whatever_a_layer_earns():
    assert level_sizes(grow(Scripted(lambda path: [-5.0, -6.0]), 7, 20, delta=0.5, max_depth=10)) == [1, 2, 4, 8, 5]
    assert level_sizes(grow(Scripted(lambda path: [-5.0, -6.0]), 7, 20, delta=0.5, max_depth=2)) == [1, 2, 4]
    assert level_sizes(grow(Scripted(lambda path: [-5.0] if len(path) < 3 else []), 7, 20, 0.5, 10)) == [1, 1, 1, 1]


def drafter_knowing(successors: dict, **settings) -> OptTreeDrafter:
    """A drafter whose table holds `successors`: token or (previous, token) -> {successor: score}, best first."""
    drafter = OptTreeDrafter(AdjacencyCandidates(AdjacencyTable(4, prefill_harvest=False)), **settings)
    drafter.begin([0], Prefill(0, frozenset(), None))
    for key, row in successors.items():
        previous, token = key if isinstance(key, tuple) else (None, key)
        ids, scores = np.array([list(row)]), np.array([list(row.values())], dtype=np.float32)
        drafter.candidates.table.learn([token], [previous], ids, scores)
    return drafter


def test_the_table_is_asked_by_bigram_first_and_its_scores_are_multiplied():
    known = {(9, 5): {6: 0.75, 7: 0.25}, 5: {1: 1.0}, (5, 6): {8: 0.5, 7: 0.5}, 6: {2: 1.0}, 7: {3: 1.0}}
    tree = drafter_knowing(known).draft([9, 5], 6)
    # .75 | .375 .375 | .375 (below the second 7) | .25; the .25 below that is one too many.
    assert shown(tree) == ["5", "5 6", "5 7", "5 6 8", "5 6 7", "5 6 7 3"]
    assert tree.scores.tolist() == [1, 0.75, 0.25, 0.375, 0.375, 0.375]
    assert set(tree.sources[1:].tolist()) == {ADJACENCY}


EVERY = {token: {0: 0.5, 1: 0.25, 2: 0.125, 3: 0.125} for token in range(30)}


@pytest.mark.parametrize("budget", range(1, 101))
def test_every_budget_is_kept_and_used(budget):
    assert drafter_knowing(EVERY).draft([9, 5], budget).n_nodes == budget


def test_a_root_the_table_does_not_know_is_a_plain_step():
    drafter = drafter_knowing({})
    assert drafter.draft([9, 5], 60).n_nodes == 1
    assert drafter.expected == [1.0]


@pytest.mark.parametrize("settings", [{"max_depth": 0}, {"delta": -0.1}, {"delta": float("nan")}])
def test_invalid_settings_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        OptTreeDrafter(**settings)


REPEATING = [5, 6, 7, 8, 9, 10, 11, 7, 8, 9, 5, 6, 7]
TINY_LM = TreeLM(tiny_model())


def test_expected_has_one_entry_a_step_however_often_a_step_is_asked():
    drafter = OptTreeDrafter()
    steps = decode(TINY_LM, REPEATING, drafter, max_new_tokens=30).steps
    assert drafter.expected == [pytest.approx(float(tree.scores.sum()), rel=1e-5) for tree in steps.trees]
    n = len(drafter.expected)
    for _ in range(2):
        drafter.draft([1] * 1000, 60)
    assert len(drafter.expected) == n + 1
    decode(TINY_LM, REPEATING, drafter, max_new_tokens=1)  # no step
    assert drafter.expected == []


def test_cold_forgets_between_requests_and_warm_does_not():
    def trees(drafter, prompt=REPEATING):
        return [shown(tree) for tree in decode(TINY_LM, prompt, drafter, max_new_tokens=30).steps.trees]

    cold, warm = (OptTreeDrafter(AdjacencyCandidates(AdjacencyTable(state=state))) for state in ("cold", "warm"))
    first = trees(cold)
    trees(cold, [9, 8, 7, 9, 8])
    assert trees(cold) == first == trees(warm)
    assert trees(warm) != first


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("lm", "prompt"), [(counter(), P0), (TINY_LM, REPEATING)], ids=["counter", "tiny"])
def test_output_equals_plain_decodings(lm, prompt, temperature):
    settings = {"sampling": Sampling(temperature, seed=5), "max_new_tokens": 30}
    plain = decode(lm, prompt, AutoregressiveDrafter(), **settings)
    for budget in (1, 7, 60, 100):
        assert decode(lm, prompt, OptTreeDrafter(), node_budget=budget, **settings).output_ids == plain.output_ids
