"""Adjacency table: later rows win, bigrams are asked first, scores are kept as they come.

The slow, obvious table below keeps every row it was ever shown, in order, and looks from the newest back.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goose.engine.tree import DraftTree
from goose.engine.verify import Scored
from goose.sources.transition import AdjacencyTable, TrigramTable
from toy import counter


def rows(*best: int) -> tuple[np.ndarray, np.ndarray]:
    """Two successors a row, b and b + 1, scored 0.75 and 0.25 (both exact in half precision)."""
    ids = np.array([[b, b + 1] for b in best], dtype=np.int64).reshape(-1, 2)
    return ids, np.tile(np.array([[0.75, 0.25]], dtype=np.float32), (len(best), 1))


def no_prompt(k):
    raise AssertionError("the prompt's rows were asked for")


def learnt(tokens, previous, *best, **settings) -> AdjacencyTable:
    table = AdjacencyTable(**settings)
    table.learn(tokens, previous, *rows(*best))
    return table


def test_an_unknown_token_has_no_successors():
    assert AdjacencyTable().successors(1, 2) == ([], [])
    assert AdjacencyTable().successors(None, 2) == ([], [])


def test_successors_come_best_first_with_their_scores():
    assert learnt([5], [None], 10).successors(None, 5) == ([10, 11], [0.75, 0.25])


def test_the_later_row_of_a_token_wins_within_one_pass_and_across_passes():
    table = learnt([5, 6, 5], [1, 5, 1], 10, 20, 30)
    assert table.successors(None, 5)[0] == table.successors(1, 5)[0] == [30, 31]
    table.learn([5], [1], *rows(40))
    assert table.successors(None, 5)[0] == table.successors(1, 5)[0] == [40, 41]


def test_rows_are_overwritten_whole_and_never_merged():
    table = learnt([5], [None], 10, top_k=2)
    table.learn([5], [None], np.array([[99]]), np.array([[1.0]], dtype=np.float32))
    assert table.successors(None, 5) == ([99], [1.0])


def test_the_bigram_is_asked_before_the_unigram():
    table = learnt([5, 5], [1, 2], 10, 20)
    assert table.successors(1, 5)[0] == [10, 11]  # its own row, though the unigram's is newer
    assert table.successors(2, 5)[0] == [20, 21]
    assert table.successors(3, 5)[0] == [20, 21]  # an unseen pair falls back on the unigram
    assert table.successors(None, 5)[0] == [20, 21]


def test_the_pair_is_ordered():
    table = learnt([5, 1], [1, 5], 10, 20)
    assert (table.successors(1, 5)[0], table.successors(5, 1)[0]) == ([10, 11], [20, 21])


def test_without_the_bigram_tier_only_the_token_counts():
    table = learnt([5, 5], [1, 2], 10, 20, bigram=False)
    assert table.successors(1, 5)[0] == [20, 21]


def test_a_row_of_unknown_previous_reaches_the_unigram_tier_only():
    table = learnt([5, 5], [1, None], 10, 20)
    assert table.successors(1, 5)[0] == [10, 11]
    assert table.successors(None, 5)[0] == [20, 21]


def test_a_bigrams_scores_are_in_single_precision_and_a_unigrams_in_half():
    table = AdjacencyTable()
    table.learn([5], [1], np.array([[7]]), np.array([[0.1]], dtype=np.float32))
    assert table.successors(1, 5) == ([7], [float(np.float32(0.1))])
    assert table.successors(None, 5) == ([7], [float(np.float16(0.1))])


def test_a_tree_node_is_filed_under_its_parents_token_rejected_nodes_included():
    #  5 ─ 6 ─ 8
    #    └ 7 ─ 6
    tree = DraftTree.from_lists([5, 6, 7, 8, 6], [-1, 0, 0, 1, 2])
    table = AdjacencyTable()
    table.learn_tree(tree, None, Scored([0] * 5, *rows(10, 20, 30, 40, 50)))
    assert table.successors(None, 6)[0] == [50, 51]  # the later node of the same token
    table.learn([5, 6, 7, 8], [None] * 4, *rows(60, 60, 60, 60))  # new unigram rows: only pairs keep the old ones
    pairs = {(5, 6): 20, (5, 7): 30, (6, 8): 40, (7, 6): 50, (1, 5): 60, (6, 7): 60, (7, 8): 60, (8, 6): 60}
    assert {pair: table.successors(*pair)[0][0] for pair in pairs} == pairs  # root_previous None: no (1, 5)


def test_the_root_is_filed_under_its_previous_token_when_that_is_given():
    table = AdjacencyTable()
    table.learn_tree(DraftTree.from_lists([5], [-1]), 1, Scored([0], *rows(10)))
    table.learn([5], [None], *rows(60))
    assert table.successors(1, 5)[0] == [10, 11]


def test_prefill_harvest_files_every_prompt_token_under_the_one_before():
    table = AdjacencyTable(top_k=2)
    asked = []
    table.begin([5, 6, 5], lambda k, _: asked.append(k) or rows(10, 20, 30))
    assert asked == [2]
    assert table.successors(None, 5)[0] == [30, 31]
    assert table.successors(6, 5)[0] == [30, 31]
    assert table.successors(5, 6)[0] == [20, 21]
    table.learn([6], [None], *rows(60))
    assert table.successors(9, 6)[0] == [60, 61]


def test_without_prefill_harvest_the_prompt_rows_are_not_even_computed():
    table = AdjacencyTable(prefill_harvest=False)
    table.begin([5, 6], no_prompt)
    assert table.successors(None, 5) == ([], [])


@pytest.mark.parametrize(("state", "kept"), [("cold", []), ("warm", [10, 11])])
def test_cold_forgets_at_a_new_request_and_warm_keeps(state, kept):
    table = learnt([5], [1], 10, prefill_harvest=False, state=state)
    table.begin([8], no_prompt)
    assert table.successors(1, 5)[0] == table.successors(None, 5)[0] == kept


def test_a_warm_table_is_overwritten_by_the_new_prompt():
    table = learnt([5, 6], [1, 5], 10, 20, state="warm")
    table.begin([1, 5], lambda k, _: rows(70, 80))
    assert table.successors(1, 5)[0] == [80, 81]
    assert table.successors(5, 6)[0] == [20, 21]


def test_more_successors_than_the_vocabulary_has_are_the_whole_vocabulary():
    lm = counter(vocab_size=4)
    lm.prefill([0, 1], reserve=0)
    table = AdjacencyTable(top_k=10)
    table.begin([0, 1], lm.prompt_top_k)
    ids, scores = table.successors(0, 1)
    assert ids[0] == 2
    assert sorted(ids) == [0, 1, 2, 3]
    assert sum(scores) == pytest.approx(1.0)


@pytest.mark.parametrize("settings", [{"top_k": 0}, {"top_k": -1}, {"state": "hot"}])
def test_invalid_settings_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        AdjacencyTable(**settings)


class SlowTable:
    """Every row ever learnt, in order."""

    def __init__(self, bigram: bool):
        self.bigram = bigram
        self.seen: list[tuple[int | None, int, list[int], list[float]]] = []

    def successors(self, previous, token):
        newest_first = self.seen[::-1]
        if self.bigram and previous is not None:
            for before, here, ids, scores in newest_first:
                if (before, here) == (previous, token):
                    return ids, scores
        for _, here, ids, scores in newest_first:
            if here == token:
                return ids, np.float16(scores).tolist()
        return [], []


small = st.integers(0, 3)
row = st.tuples(st.none() | small, small, st.permutations(range(4)), st.tuples(*[st.floats(0, 1, width=32)] * 4))


@given(st.lists(st.lists(row, min_size=1, max_size=5), max_size=6), st.booleans())
def test_the_table_answers_like_a_search_through_everything_it_was_shown(passes, bigram):
    fast, slow = AdjacencyTable(bigram=bigram), SlowTable(bigram)
    for batch in passes:
        previous, tokens, ids, scores = zip(*batch, strict=True)
        fast.learn(tokens, previous, np.array(ids), np.array(scores, dtype=np.float32))
        slow.seen += [(p, t, list(i), list(s)) for p, t, i, s in batch]
    for token in range(5):
        for before in [None, *range(5)]:
            assert fast.successors(before, token) == slow.successors(before, token)


# The trigram tier


EDGES = (0.2, 0.5)


def trigrams(top_k: int = 2) -> TrigramTable:
    return TrigramTable(EDGES, top_k)


def test_a_trigram_is_asked_before_the_bigram_before_the_unigram():
    table = trigrams()
    table.learn([5, 5, 5], [1, 1, 2], *rows(10, 20, 30), [7, 8, 8])
    assert table.longest(7, 1, 5) == (3, [10, 11], [2, 1])  # 0.75 and 0.25 lie above two edges and one
    assert table.longest(8, 1, 5)[:2] == (3, [20, 21])
    assert table.longest(9, 1, 5)[:2] == (2, [20, 21])
    assert table.longest(7, 2, 5)[:2] == (2, [30, 31])
    assert table.longest(7, 3, 5)[:2] == (1, [30, 31])
    assert table.longest(7, 3, 6) == (0, [], [])


def test_a_tree_node_is_filed_under_its_parents_and_grandparents_tokens():
    #  5 ─ 6 ─ 8
    #    └ 7
    tree = DraftTree.from_lists([5, 6, 7, 8], [-1, 0, 0, 1])
    table = trigrams()
    table.learn_tree(tree, 4, Scored([0] * 4, *rows(10, 20, 30, 40)), 3)
    for key, first in {(3, 4, 5): 10, (4, 5, 6): 20, (4, 5, 7): 30, (5, 6, 8): 40}.items():
        assert table.longest(*key)[:2] == (3, [first, first + 1])
    table = trigrams()
    table.learn_tree(tree, 4, Scored([0] * 4, *rows(10, 20, 30, 40)), None)  # the root's is not known
    assert table.longest(0, 4, 5)[0] == 2
    assert table.longest(4, 5, 6)[0] == 3


def test_the_prompt_fills_the_trigram_tier():
    table = trigrams()
    table.begin([5, 6, 7], lambda k, _: rows(10, 20, 30))
    assert table.longest(5, 6, 7)[:2] == (3, [30, 31])
    assert table.longest(4, 5, 6)[:2] == (2, [20, 21])


@pytest.mark.parametrize("make", [AdjacencyTable, trigrams], ids=["bigram", "trigram"])
def test_rows_that_no_key_leads_to_are_dropped_and_the_others_stay(make):
    table = make()
    for i in range(400):
        first = i % 7
        table.learn([first, 50 + first], [9, first], *rows(first, 100 + i), [8, 9])
    assert len(table._rows._ids) < 1024  # of 800 rows learnt, 14 are asked for

    def successors(previous, token):
        return table.successors(previous, token)[0] if make is AdjacencyTable else table.longest(0, previous, token)[1]

    for first in range(7):
        assert successors(9, first)[:2] == [first, first + 1]
        newest = max(i for i in range(400) if i % 7 == first)
        assert successors(first, 50 + first)[0] == 100 + newest
