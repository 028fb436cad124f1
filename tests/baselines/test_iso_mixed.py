"""iso_mixed: the balanced shape over both sources, by hand, and equal to the plain balanced tree without matches.

Trees are shown as one string a node, its path from the root in the order drafted.
"""

import pytest

from baselines.autoregressive import AutoregressiveDrafter
from baselines.balanced import BalancedDrafter, MixedBalancedDrafter
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from goose.engine.tree import ADJACENCY, CONTEXT
from goose.engine.verify import Sampling
from goose.sources.context import ContextMatcher
from goose.sources.transition import AdjacencyTable
from toy import P0, begun_knowing, counter, level_sizes, shown, tiny_model

# Every token is followed by 90, 91, 92, 93, scored 0.5, 0.25, 0.125, 0.125.
HALVES = {token: {90: 0.5, 91: 0.25, 92: 0.125, 93: 0.125} for token in range(100)}


def drafter_knowing(successors: dict, make=MixedBalancedDrafter, k: int = 3, **settings):
    drafter = make(k, table=AdjacencyTable(4, prefill_harvest=False), **settings)
    return begun_knowing(drafter, successors)


RECALL = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3]  # its end was once followed by 4 5 6 7 1 2 3


def test_the_context_continuation_comes_first_and_the_table_fills_up_to_k():
    tree = drafter_knowing(HALVES, k=2).draft(RECALL, 9)
    assert shown(tree) == ["3", "3 4", "3 90", "3 4 5", "3 4 90", "3 90 90", "3 90 91", "3 4 5 6", "3 4 5 90"]
    c, a = CONTEXT, ADJACENCY
    assert tree.sources.tolist() == [0, c, a, c, a, a, a, c, a]
    assert tree.scores.tolist() == [1.0, 1.0, 0.5, 1.0, 0.5, 0.5, 0.25, 1.0, 0.5]


def test_a_token_that_both_sources_propose_is_one_child_and_the_contexts():
    tree = drafter_knowing({3: {90: 0.5, 4: 0.3, 91: 0.2}}, k=3, max_depth=1).draft(RECALL, 9)
    assert shown(tree) == ["3", "3 4", "3 90", "3 91"]
    assert tree.sources.tolist() == [0, CONTEXT, ADJACENCY, ADJACENCY]


def test_a_branch_that_runs_into_known_text_finds_its_continuation_there():
    # Nothing follows (7, 8, 20); the table's 1 2 3 below it is text that went on with 4.
    context = [1, 2, 3, 4, 9, 7, 8, 20]
    tree = drafter_knowing({20: {1: 1.0}, 1: {2: 1.0}, 2: {3: 1.0}}).draft(context, 9)
    assert shown(tree)[-1] == "20 1 2 3 4 9 7"
    assert tree.sources.tolist() == [0, *[ADJACENCY] * 3, *[CONTEXT] * 3]


def test_min_score_applies_to_the_table_alone():
    assert shown(drafter_knowing(HALVES, min_score=0.6, max_depth=2).draft(RECALL, 60)) == ["3", "3 4", "3 4 5"]


def test_a_match_is_drafted_where_the_table_knows_nothing():
    tree = drafter_knowing({}).draft(RECALL, 60)
    assert shown(tree)[-1] == "3 4 5 6 7 1 2"  # as deep as the depth limit
    assert set(tree.sources[1:].tolist()) == {CONTEXT}
    assert drafter_knowing({}).draft([1, 2, 3], 60).n_nodes == 1


@pytest.mark.parametrize(("k", "sizes"), [(1, [1] * 7), (3, [1, 3, 9, 27, 20]), (4, [1, 4, 16, 39])])
def test_the_shape_is_the_balanced_one(k, sizes):
    assert level_sizes(drafter_knowing(HALVES, k=k).draft(RECALL, 60)) == sizes


@pytest.mark.parametrize("budget", range(1, 101))
def test_without_matches_it_is_the_balanced_tree_at_every_budget(budget):
    context = [50, 51, 52]
    mixed = drafter_knowing(HALVES).draft(context, budget)
    plain = drafter_knowing(HALVES, BalancedDrafter).draft(context, budget)
    assert shown(mixed) == shown(plain)
    assert mixed.n_nodes == budget
    assert drafter_knowing(HALVES).draft(RECALL, budget).n_nodes == budget


@pytest.mark.parametrize("settings", [{"k": 0}, {"max_depth": 0}])
def test_invalid_settings_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        MixedBalancedDrafter(**settings)


REPEATING = [5, 6, 7, 8, 9, 10, 11, 7, 8, 9, 5, 6, 7]
TINY_LM = TreeLM(tiny_model())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("lm", "prompt"), [(counter(), P0), (TINY_LM, REPEATING)], ids=["counter", "tiny"])
def test_output_equals_plain_decodings(lm, prompt, temperature):
    settings = {"sampling": Sampling(temperature, seed=5), "max_new_tokens": 30}
    plain = decode(lm, prompt, AutoregressiveDrafter(), **settings)
    for budget in (1, 7, 60):
        drafter = MixedBalancedDrafter(context=ContextMatcher((2, 1)))
        assert decode(lm, prompt, drafter, node_budget=budget, **settings).output_ids == plain.output_ids


def test_two_requests_are_the_same_and_another_between_them_changes_nothing():
    drafter = MixedBalancedDrafter()
    first, _, again = [
        decode(TINY_LM, ids, drafter, max_new_tokens=30) for ids in (REPEATING, [9, 8, 7, 9, 8], REPEATING)
    ]
    assert [shown(tree) for tree in again.steps.trees] == [shown(tree) for tree in first.steps.trees]


def test_both_sources_are_accepted_on_a_text_that_repeats():
    steps = decode(counter(), P0, MixedBalancedDrafter(), max_new_tokens=40).steps
    accepted = {int(tree.sources[node]) for tree, path in zip(steps.trees, steps.paths, strict=True) for node in path}
    assert {CONTEXT, ADJACENCY} <= accepted
