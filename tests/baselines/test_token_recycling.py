"""Token Recycling: the template by its published counts, worked trees, trimming, and what cold and warm mean.

Trees are shown as one string a node, its path from the root in the order drafted.
"""

from collections import Counter
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest
import torch
import yaml

from baselines.autoregressive import AutoregressiveDrafter
from baselines.token_recycling import TEMPLATE_FILE, TokenRecyclingDrafter, read_template, trim_template
from goose.engine.contract import Prefill
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from goose.engine.tree import ADJACENCY, DraftTree
from goose.engine.verify import Sampling, Scored, Verdict
from goose.sources.transition import AdjacencyTable
from toy import P0, counter, tiny_model


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


def drafter_knowing(successors: dict[int, list[int]], **settings) -> TokenRecyclingDrafter:
    """A drafter whose table holds `successors`; the i-th of them scores 2^-i."""
    drafter = TokenRecyclingDrafter(**settings)
    drafter.begin([0], Prefill(0, frozenset(), None))  # None: the prompt's rows are never asked for
    for token, ids in successors.items():
        scores = np.array([[0.5**i for i in range(1, len(ids) + 1)]], dtype=np.float32)
        drafter.table.learn([token], [None], np.array([ids]), scores)
    return drafter


def shown(tree: DraftTree) -> list[str]:
    return [" ".join(str(tree.tokens[node]) for node in np.flatnonzero(row)) for row in tree.ancestor_mask]


def level_sizes(tree: DraftTree) -> list[int]:
    return np.bincount(tree.depths).tolist()


# Successor number r of token t is 8 t + r + 1 (mod 997): paths can be read off the tokens, and no two nodes share one.
def named(token: int) -> list[int]:
    return [(8 * token + rank + 1) % 997 for rank in range(8)]


ALL_KNOWN = {token: named(token) for token in range(997)}


def test_the_template_has_81_nodes_in_the_published_levels_and_child_counts():
    template = read_template()
    assert Counter(map(len, template)) == {1: 8, 2: 21, 3: 25, 4: 15, 5: 8, 6: 3}
    n_children = Counter(path[:-1] for path in template)
    assert [n_children[(rank,)] for rank in range(8)] == [8, 4, 3, 2, 1, 1, 1, 1]
    assert [n_children[(0, rank)] for rank in range(8)] == [8, 3, 2, 1, 1, 1, 1, 1]
    assert [n_children[(0, 0, rank)] for rank in range(8)] == [5, 2, 1, 1, 1, 0, 0, 0]
    assert (n_children[(0, 0, 0, 0)], n_children[(0, 0, 0, 0, 0)], n_children[(0, 0, 0, 1, 0)]) == (3, 2, 1)
    for path in template:  # the ranks of a node's children are 0, 1, ... without gaps
        assert path[-1] == 0 or (*path[:-1], path[-1] - 1) in template


def test_the_template_file_is_yaml():
    text = files("baselines").joinpath(TEMPLATE_FILE).read_text()
    assert [tuple(path) for path in yaml.safe_load(text)] == read_template()


def test_a_table_that_knows_everything_fills_the_whole_template():
    tree = drafter_knowing(ALL_KNOWN).draft([3, 5], 100)
    assert level_sizes(tree) == [1, 8, 21, 25, 15, 8, 3]
    by_path = {}
    for path in [(), *read_template()]:
        by_path[path] = named(by_path[path[:-1]])[path[-1]] if path else 5
    assert shown(tree) == [" ".join(str(by_path[p[:i]]) for i in range(len(p) + 1)) for p in [(), *read_template()]]
    assert set(tree.sources[1:].tolist()) == {ADJACENCY}


def test_rank_order_of_trimming():
    template = read_template()
    kept = [set(trim_template(template, budget)) for budget in range(1, 83)]
    added = [next(iter(after - before)) for before, after in pairwise(kept[:81])]
    assert added[:7] == [(0,), (1,), (0, 0), (2,), (0, 1), (1, 0), (0, 0, 0)]
    assert added[7:15] == [(3,), (0, 2), (1, 1), (2, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, 0, 0)]
    assert kept[80] == kept[81] == set(template)


@pytest.mark.parametrize("budget", range(1, 101))
def test_every_budget_is_kept_and_used_up_to_81(budget):
    tree = drafter_knowing(ALL_KNOWN).draft([3, 5], budget)
    assert tree.n_nodes == min(budget, 81)
    DraftTree.from_lists(tree.tokens.tolist(), tree.parents.tolist())


def test_a_worked_tree_with_unknown_tokens_left_out_below_which_nothing_stands():
    # 7 is unknown, so (1,) is a leaf; 6 has one successor, so (0, 1) and its child are left out.
    drafter = drafter_knowing({5: [6, 7], 6: [8], 8: [5]})
    tree = drafter.draft([3, 5], 81)
    # Below (0,0,0), a second 5: the template gives it five children, its first child 8 has three.
    assert shown(tree) == [
        "5",
        "5 6",
        "5 7",
        "5 6 8",
        "5 6 8 5",
        "5 6 8 5 6",
        "5 6 8 5 7",
        "5 6 8 5 6 8",
        "5 6 8 5 6 8 5",
    ]
    assert tree.scores.tolist() == [1.0, 0.5, 0.25, 0.5, 0.5, 0.5, 0.25, 0.5, 0.5]


def test_a_root_the_table_does_not_know_is_a_plain_step():
    assert drafter_knowing({}).draft([3, 5], 81).n_nodes == 1


def test_own_templates_are_drawn_and_broken_ones_refused():
    tree = drafter_knowing(ALL_KNOWN, template=[[0], [0, 2], [3]]).draft([3, 5], 81)
    assert shown(tree) == ["5", "5 41", "5 44", "5 41 331"]
    for template in ([[0, 0]], [[]], [[0], [1, 0]], [[0], [0]], [[0], [-1]], [[0.5]], [[0], [0, "1"]]):
        with pytest.raises(ValueError, match="template"):
            TokenRecyclingDrafter(template=template)


def test_of_equal_tokens_in_a_tree_the_later_node_teaches():
    drafter = drafter_knowing({5: [6, 7], 6: [7]})
    tree = drafter.draft([3, 5], 81)
    assert shown(tree) == ["5", "5 6", "5 7", "5 6 7"]
    ids = np.array([[6, 7], [7, 9], [1, 2], [3, 4]])  # both nodes with token 7 have a row
    for _ in range(3):
        drafter.observe(tree, Verdict([0], 9), Scored([9] * 4, ids, np.full((4, 2), 0.5, dtype=np.float32)))
        assert drafter.table.successors(None, 7)[0] == [3, 4]


REPEATING = [5, 6, 7, 8, 9, 10, 11, 7, 8, 9, 5, 6, 7]
TINY_LM = TreeLM(tiny_model())


def n_drafted(drafter, lm=TINY_LM, prompt=REPEATING) -> list[int]:
    return [tree.n_nodes for tree in decode(lm, prompt, drafter, max_new_tokens=30).steps.trees]


def test_cold_forgets_between_requests_and_warm_does_not():
    cold = TokenRecyclingDrafter()
    first = n_drafted(cold)
    assert first[0] == 1  # empty table, no prefill harvest
    assert n_drafted(cold) == first
    warm = TokenRecyclingDrafter(AdjacencyTable(8, bigram=False, prefill_harvest=False, state="warm"))
    assert n_drafted(warm) == first
    assert n_drafted(warm)[0] > 1


def test_prefill_harvest_fills_the_table_before_the_first_step():
    harvest = TokenRecyclingDrafter(AdjacencyTable(8, bigram=False, prefill_harvest=True))
    assert n_drafted(harvest, counter(), P0)[0] > 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("lm", "prompt"), [(counter(), P0), (TINY_LM, REPEATING)], ids=["counter", "tiny"])
def test_output_equals_plain_decodings(lm, prompt, temperature):
    settings = {"sampling": Sampling(temperature, seed=5), "max_new_tokens": 30}
    plain = decode(lm, prompt, AutoregressiveDrafter(), **settings)
    for budget in (1, 7, 60, 100):
        assert (
            decode(lm, prompt, TokenRecyclingDrafter(), node_budget=budget, **settings).output_ids == plain.output_ids
        )
