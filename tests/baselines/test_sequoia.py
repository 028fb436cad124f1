"""Sequoia: the program against published values, exhaustive search and its own shapes; size by cost; filling by rank.

Trees are shown as one string a node, its path from the root in the order drafted.
"""

import json
import runpy
from functools import lru_cache

import numpy as np
import pytest

from baselines.adjacency import AdjacencyCandidates
from baselines.autoregressive import AutoregressiveDrafter
from baselines.sequoia import SequoiaDrafter, Shape, build_shape, choose_size, cost_curve, solve
from benchmarks.errors import UserError
from benchmarks.learn.acceptance import calibrate, count
from goose.engine.contract import Prefill
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from goose.engine.tree import ADJACENCY, DraftTree
from goose.engine.verify import Sampling
from goose.sources.transition import AdjacencyTable
from paths import REPO
from toy import P0, ScriptedDrafter, chain_of, counter, tiny_model

P = [0.6, 0.2, 0.1]
DRAFT_68M = [0.634, 0.108, 0.057, 0.0225, 0.0195, 0.015]  # published for a 68M draft


@pytest.mark.parametrize(
    ("n_nodes", "expected"), [(1, 1.0), (2, 1.6), (3, 1.96), (4, 2.176), (5, 2.376), (8, 2.7456), (16, 3.3026)]
)
def test_published_values(n_nodes, expected):
    assert build_shape(P, n_nodes, 6).expected == pytest.approx(expected, abs=5e-5)


@lru_cache
def all_trees(n_nodes: int, n_levels: int, max_arity: int) -> tuple:
    """Every ordered tree as the tuple of its root's subtrees."""
    if n_levels == 0:
        return ()
    return tuple(all_forests(n_nodes - 1, n_levels - 1, max_arity, max_arity))


def all_forests(n_nodes: int, n_levels: int, n_trees: int, max_arity: int):
    if n_nodes == 0:
        yield ()
    elif n_trees:
        for size in range(1, n_nodes + 1):
            for tree in all_trees(size, n_levels, max_arity):
                yield from ((tree, *rest) for rest in all_forests(n_nodes - size, n_levels, n_trees - 1, max_arity))


def value(tree, p) -> float:
    return 1 + sum(p_b * value(child, p) for p_b, child in zip(p, tree, strict=False))


def test_the_program_equals_exhaustive_search():
    assert [len(all_trees(m, 7, 7)) for m in range(1, 8)] == [1, 1, 2, 5, 14, 42, 132]
    rng = np.random.default_rng(0)
    vectors = [P, DRAFT_68M, [0.5, 0.0, 0.3], [1.0], [0.3, 0.3, 0.3], *rng.dirichlet(np.ones(5), 4).tolist()]
    for p in vectors:
        program = solve(p, 7, 7)
        for m in range(1, 8):
            for levels in range(1, 8):
                trees = all_trees(m, levels, len(p))
                best = max((value(tree, p) for tree in trees), default=-np.inf)
                assert program.best[levels, m] == pytest.approx(best, abs=1e-12), (p, m, levels)


def value_of(shape: Shape, p) -> float:
    """1 + the sum over nodes of the product of p along the path."""
    w = [1.0]
    for parent, rank in zip(shape.parents[1:], shape.ranks[1:], strict=True):
        w.append(w[parent] * p[rank])
    return sum(w)


@pytest.mark.parametrize("max_levels", [1, 2, 3, 6, 12])
@pytest.mark.parametrize("n_nodes", [1, 2, 17, 64, 100])
def test_the_shape_is_a_breadth_first_tree_worth_what_the_program_says(n_nodes, max_levels):
    shape = build_shape(DRAFT_68M, n_nodes, max_levels)
    depths = [0]
    for node, parent in enumerate(shape.parents[1:], 1):
        assert parent < node
        depths.append(depths[parent] + 1)
    assert depths == sorted(depths)
    assert max(depths) < max_levels
    assert [shape.parents[child] for nodes in shape.children for child in nodes] == shape.parents[1:]
    pairs = list(zip(shape.parents, shape.ranks, strict=True))
    assert len(set(pairs)) == len(pairs)
    assert all(rank == 0 or (parent, rank - 1) in pairs for parent, rank in pairs)
    assert shape.expected == pytest.approx(value_of(shape, DRAFT_68M))
    room = sum(len(DRAFT_68M) ** level for level in range(max_levels))
    assert len(pairs) == min(n_nodes, room)


def test_a_worked_shape():
    # .6 | .36 | .216 | .2 : the fifth node is worth .2 as the root's second child, .1296 as the chain's fourth.
    shape = build_shape(P, 5, 6)
    assert (shape.parents, shape.ranks) == ([-1, 0, 0, 1, 3], [0, 0, 1, 0, 0])
    assert [list(nodes) for nodes in shape.children] == [[1, 2], [3], [], [4], []]
    assert build_shape(P, 5, 2).parents == [-1, 0, 0, 0]  # two levels and three ranks hold four nodes
    assert build_shape([1.0], 9, 4).parents == [-1, 0, 1, 2]


def test_large_sizes_are_solved_with_more_ranks_than_needed():
    shape = build_shape([0.45, 0.2, 0.05, 0.05, *[0.005] * 28], 512, 12)
    assert len(shape.parents) == 512
    assert shape.expected == pytest.approx(value_of(shape, [0.45, 0.2, 0.05, 0.05, *[0.005] * 28]))


@pytest.mark.parametrize("p", [[], [-0.1], [0.6, 0.6], [float("nan")], [[0.5]]])
def test_what_is_no_acceptance_vector_is_refused(p):
    with pytest.raises(ValueError, match="acceptance"):
        solve(p, 4, 4)


def test_size_by_cost():
    best = solve(P, 40, 8).best
    assert choose_size(best, lambda n: 1.0) == (40, 8)  # a free node is always worth it
    assert choose_size(best, lambda n: float(n)) == (1, 1)
    stairs = [1.0] * 8 + [1.9] * 32  # the first eight nodes cost the same, the others nearly double
    assert choose_size(best, stairs)[0] == 8
    slope = [0.9 + 0.1 * n for n in range(1, 41)]
    for layer_cost in (0.0, 0.1, 0.5):
        n, levels = choose_size(best, slope, layer_cost)
        ratios = {
            (m, level): (slope[m - 1] + layer_cost * (level - 1)) / best[level, m]
            for m in range(1, 41)
            for level in range(1, 9)
            if np.isfinite(best[level, m])
        }
        assert ratios[n, levels] == min(ratios.values())
    assert choose_size(best, lambda n: 1.0, layer_cost=1.0) == (1, 1)  # a draft too dear for one layer
    with pytest.raises(ValueError, match="costs time"):
        choose_size(best, [0.0] * 40)


def test_a_cost_curve_is_straight_between_its_points_and_flat_outside():
    curve = cost_curve({16: 2.0, 1: 1.0})
    assert [curve(n) for n in (1, 4, 16, 64)] == [1.0, 1.2, 2.0, 2.0]


def drafter_knowing(successors: dict, p=P, **settings) -> SequoiaDrafter:
    """A drafter whose table holds `successors`: token or (previous, token) -> {successor: score}, best first."""
    drafter = SequoiaDrafter(p, candidates=AdjacencyCandidates(AdjacencyTable(4, prefill_harvest=False)), **settings)
    drafter.begin([0], Prefill(0, frozenset(), None))
    for key, row in successors.items():
        previous, token = key if isinstance(key, tuple) else (None, key)
        ids, scores = np.array([list(row)]), np.array([list(row.values())], dtype=np.float32)
        drafter.candidates.table.learn([token], [previous], ids, scores)
    return drafter


def shown(tree: DraftTree) -> list[str]:
    return [" ".join(str(tree.tokens[node]) for node in np.flatnonzero(row)) for row in tree.ancestor_mask]


EVERY = {token: {0: 0.5, 1: 0.25, 2: 0.125, 3: 0.125} for token in range(30)}


def test_a_worked_tree():
    tree = drafter_knowing({**EVERY, (9, 5): {8: 0.5, 7: 0.5}, (5, 8): {6: 1.0}}).draft([9, 5], 5)
    assert shown(tree) == ["5", "5 8", "5 7", "5 8 6", "5 8 6 0"]
    np.testing.assert_allclose(tree.scores, [1, 0.5, 0.5, 1, 0.5], rtol=1e-6)
    assert tree.sources.tolist() == [0] + [ADJACENCY] * 4


def test_a_missing_successor_takes_all_below_it_along():
    assert shown(drafter_knowing({5: {8: 1.0}, 8: {6: 1.0}}).draft([9, 5], 5)) == ["5", "5 8", "5 8 6"]
    assert shown(drafter_knowing({5: {8: 0.5, 7: 0.5}, 7: {6: 1.0}}).draft([9, 5], 8)) == ["5", "5 8", "5 7", "5 7 6"]
    assert drafter_knowing({}).draft([9, 5], 60).n_nodes == 1


@pytest.mark.parametrize("budget", range(1, 101))
def test_every_budget_is_kept_and_used(budget):
    tree = drafter_knowing(EVERY).draft([9, 5], budget)
    assert tree.n_nodes == budget
    DraftTree.from_lists(tree.tokens.tolist(), tree.parents.tolist())


def test_size_by_cost_draws_fewer_nodes_than_the_budget():
    stairs = {8: 1.0, 9: 1.9, 64: 1.9}
    assert drafter_knowing(EVERY, size="cost", cost=stairs).draft([9, 5], 60).n_nodes == 8
    assert drafter_knowing(EVERY, size="cost", cost=stairs).draft([9, 5], 4).n_nodes == 4
    assert drafter_knowing(EVERY, size="cost", cost=stairs, layer_cost=9.0).draft([9, 5], 60).n_nodes == 1


def test_max_levels_and_the_tables_successors_limit_the_shape():
    assert drafter_knowing(EVERY, max_levels=3).draft([9, 5], 10).depths.max() == 2
    assert drafter_knowing(EVERY, p=[0.1] * 9).acceptance == [0.1] * 4


def test_acceptance_from_a_calibration_record(tmp_path):
    file = tmp_path / "record.json"
    file.write_text(json.dumps({"acceptance": P, "tested": [10, 10, 10]}))
    made = SequoiaDrafter(acceptance_file=str(file), acceptance_of="another")
    assert (made.acceptance, made.acceptance_of) == (P, None)  # of a record that names no model none is known
    file.write_text(json.dumps({"acceptance": P, "model": {"name": "big"}}))
    assert SequoiaDrafter(acceptance_file=str(file), acceptance_of="another").acceptance_of == "big"
    assert SequoiaDrafter(P, acceptance_of="big").acceptance_of == "big"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"acceptance": P, "acceptance_file": "x"},
        {"acceptance": P, "size": "best"},
        {"acceptance": P, "size": "cost"},
        {"acceptance": P, "cost": {1: 1.0}},
        {"acceptance": P, "layer_cost": 1.0},
        {"acceptance": P, "size": "cost", "cost": {1: 1.0}, "layer_cost": -1.0},
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        SequoiaDrafter(**settings)


@pytest.mark.parametrize("cost", [{}, {1: 0.0}, {1: -1.0}, {1: 1.0, 8: float("nan")}])
def test_a_cost_that_no_step_can_have_is_refused_before_any_step(cost):
    with pytest.raises(ValueError, match="cost maps numbers of nodes to seconds > 0"):
        SequoiaDrafter(P, size="cost", cost=cost)


@pytest.mark.parametrize(
    "content",
    [
        None,
        "no json",
        "[1]",
        "{}",
        '{"acceptance": null}',
        '{"acceptance": [0.5], "model": {}}',
        '{"acceptance": ["a"]}',
    ],
)
def test_a_file_that_is_no_calibration_record_is_named_with_the_way_to_one(tmp_path, content):
    file = tmp_path / "record.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ValueError, match=r"record\.json is no record .*scripts/calibrate_acceptance\.py"):
        SequoiaDrafter(acceptance_file=str(file))


@pytest.mark.parametrize("option", ["--width", "--new-tokens"])
def test_the_calibration_script_refuses_counts_below_1_in_one_sentence(monkeypatch, option):
    script = runpy.run_path(str(REPO / "scripts" / "calibrate_acceptance.py"))
    monkeypatch.setattr("sys.argv", ["calibrate_acceptance.py", option, "0"])
    with pytest.raises(UserError, match=f"{option} must be at least 1, got 0"):
        script["main"]()


REPEATING = [5, 6, 7, 8, 9, 10, 11, 7, 8, 9, 5, 6, 7]
TINY_LM = TreeLM(tiny_model())


def test_cold_forgets_between_requests_and_warm_does_not():
    def trees(drafter, prompt=REPEATING):
        return [shown(tree) for tree in decode(TINY_LM, prompt, drafter, max_new_tokens=30).steps.trees]

    cold, warm = (
        SequoiaDrafter(P, candidates=AdjacencyCandidates(AdjacencyTable(state=state))) for state in ("cold", "warm")
    )
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
        assert decode(lm, prompt, SequoiaDrafter(P), node_budget=budget, **settings).output_ids == plain.output_ids


def test_calibration_counts_which_rank_is_accepted():
    # COUNTER's rows put the right token first and, of the rest, the lowest ids after it.
    counts = calibrate(counter(), [P0], AdjacencyCandidates(AdjacencyTable(4)), max_new_tokens=40)
    assert counts.n_unknown < counts.n_steps
    assert counts.tested == [counts.n_steps - counts.n_unknown] * 4
    assert counts.accepted == [counts.tested[0], 0, 0, 0]
    assert counts.acceptance == [1.0, 0.0, 0.0, 0.0]


def test_calibration_counts_stars_of_unequal_width():
    def propose(context, budget):  # right at rank 2 while the context is even in length, a plain step otherwise
        right = (context[-1] + 1) % 64
        if len(context) % 2:
            return chain_of(context, [], budget)
        return DraftTree.from_lists([context[-1], (right + 1) % 64, right], [-1, 0, 0])

    steps = decode(counter(), [7], ScriptedDrafter(propose), max_new_tokens=8, node_budget=4).steps
    counts = count([steps, steps], width=3)
    n_stars = sum(tree.n_nodes > 1 for tree in steps.trees)
    assert counts.tested == [2 * n_stars, 2 * n_stars, 0]
    assert counts.accepted == [0, 2 * n_stars, 0]
    assert (counts.n_steps, counts.n_unknown) == (2 * len(steps), 2 * (len(steps) - n_stars))
    assert counts.acceptance == [0.0, 1.0, 0.0]
