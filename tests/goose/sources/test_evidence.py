"""Joint evidence: matches say what a search through the text says; rows and deferred ids stand beside it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goose.engine.contract import Prefill
from goose.engine.tree import ADJACENCY, CONTEXT, DRAFT_MODEL, DraftTree, single_node
from goose.engine.verify import Scored, Verdict
from goose.sources.evidence import (
    ABSENT,
    BIGRAM,
    DEFERRED,
    DRAFT,
    FIRST_MATCHED,
    HORIZON,
    LENGTH_EDGES,
    MAX_STATES,
    MIN_LENGTH,
    N_ADJACENCY,
    N_CELLS,
    N_COUNTS,
    N_SHARES,
    SCORE_EDGES,
    SHARE_EDGES,
    SINGLE_TOKEN,
    TIER,
    TRIGRAM,
    UNIGRAM,
    Evidence,
    NodeState,
    source_of,
)

ANY = [1.0] * N_CELLS


def rows(*best: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two ids scored 0.75 and 0.25."""
    return np.array(best, dtype=np.int64), np.tile(np.array([[0.75, 0.25]], dtype=np.float32), (len(best), 1))


HIGH, LOW = np.searchsorted(SCORE_EDGES, [0.75, 0.25], side="right").tolist()


def begun(prompt: list[int], first: int, prompt_rows=None, **settings) -> Evidence:
    """Evidence of a request whose prompt rows all say (90, 91), which occur nowhere else."""
    evidence = Evidence(2, **settings)
    ids, scores = prompt_rows or rows(*([[90, 91]] * len(prompt)))

    def top_k(k, wanted):
        wanted = slice(None) if wanted is None else wanted
        return ids[wanted, :k], scores[wanted, :k]

    evidence.begin(prompt, Prefill(first, frozenset(), top_k))
    return evidence


def cells(evidence: Evidence, node: NodeState, is_root: bool = False, least: float = 0.0) -> dict[int, tuple[int, int]]:
    """Token -> (context code, adjacency code)."""
    found = evidence.candidates(node, ANY, least, is_root)
    assert len({token for token, _ in found}) == len(found)
    return {token: divmod(cell, N_ADJACENCY) for token, cell in found}


def bucket(edges, value) -> int:
    return int(np.searchsorted(edges, value, side="right"))


# Context


def searched(text: list[int], path: list[int]) -> dict[int, tuple[int, int, int]]:
    """Token -> (length of the longest match that names it, times it followed, times anything followed), by search."""
    whole = text + path
    named, n_states, last = {}, 0, None
    for length in range(min(len(whole), HORIZON), MIN_LENGTH - 1, -1):
        suffix = whole[-length:]
        starts = [i for i in range(len(text) - length) if text[i : i + length] == suffix]
        ends = [i + length for i in range(len(text) - length + 1) if text[i : i + length] == suffix]
        if ends == last or not starts:  # the same occurrences as of a longer match, or nothing after any
            last = ends
            continue
        last, n_states = ends, n_states + 1
        if n_states > MAX_STATES:
            break
        followers = [text[i + length] for i in starts]
        for token in followers:
            named.setdefault(token, (length, followers.count(token), len(followers)))
    return named


@given(st.lists(st.integers(0, 3), min_size=2, max_size=40), st.lists(st.integers(0, 3), max_size=4))
def test_matches_say_what_a_search_through_the_text_says(text, path):
    evidence = begun(text[:-1], text[-1])
    node = evidence.root(text)
    for token in path:
        node = evidence.child(node, token)
    is_root = not path
    found = {token: code for token, code in cells(evidence, node, is_root).items() if code[0] >= FIRST_MATCHED}
    expected = searched(text, path)
    assert set(found) == set(expected)
    for token, (length, count, total) in expected.items():
        lengths, rest = divmod(found[token][0] - FIRST_MATCHED, N_SHARES * N_COUNTS)
        # A deep match that also ends the text counts that end as one more occurrence with nothing after it.
        assert lengths == bucket(LENGTH_EDGES, length) - 1
        if is_root:
            assert divmod(rest, N_COUNTS) == (bucket(SHARE_EDGES, count / total), bucket((2, 3, 6), count))


def test_in_a_loop_longer_than_the_horizon_the_match_is_certain_at_every_node():
    text = [7, 8, 9] * 30
    evidence = begun(text[:-1], text[-1])
    node = evidence.root(text)
    for i in range(60):
        code = cells(evidence, node, is_root=i == 0)[text[i % 3]][0] - FIRST_MATCHED
        assert divmod(code, N_SHARES * N_COUNTS) == (len(LENGTH_EDGES) - 1, N_SHARES * N_COUNTS - 1)
        node = evidence.child(node, text[i % 3])


def test_of_many_occurrences_the_share_and_the_count_are_the_true_ones():
    text = [1, 2, 3] + [1, 2, 4] * 99 + [1, 2]  # (1, 2): 3 once and 4 99 times
    evidence = begun(text[:-1], text[-1])
    node = evidence.root(text)._replace(suffix=evidence.index.advance(evidence.index.advance(0, 0, 1)[0], 1, 2)[0])
    code = cells(evidence, node._replace(length=2))[3][0] - FIRST_MATCHED
    assert code == 0  # two tokens, a share below 5 %, once


def test_a_token_of_several_sources_is_one_candidate():
    # 1 2 3 ... 1 2: a match of two tokens names 3, and the row of (1, 2) says 3 and 4.
    evidence = begun([1, 2, 3, 1], 2, rows([2, 9], [3, 4], [1, 9], [2, 9]))
    found = cells(evidence, evidence.root([1, 2, 3, 1, 2]))
    context, adjacency = found[3]
    assert context >= FIRST_MATCHED
    assert adjacency == BIGRAM * TIER + HIGH
    assert found[4] == (2 * bucket(LENGTH_EDGES, 2), BIGRAM * TIER + LOW)


def test_what_only_a_match_names_is_absent_from_the_row():
    evidence = begun([1, 2, 3, 1], 2)
    assert cells(evidence, evidence.root([1, 2, 3, 1, 2]))[3][1] == BIGRAM * TIER + ABSENT


def test_the_longest_known_key_answers():
    evidence = begun([5, 6, 7, 8], 9)
    root = evidence.root([5, 6, 7, 8, 9])
    for (before, previous, token), tier in {
        (5, 6, 7): TRIGRAM, (4, 6, 7): BIGRAM, (5, 4, 7): UNIGRAM, (5, 6, 4): SINGLE_TOKEN,
    }.items():  # fmt: skip
        node = root._replace(suffix=0, length=0, before=before, previous=previous, token=token)
        found = cells(evidence, node)
        assert found == ({} if tier == SINGLE_TOKEN else {90: (0, tier * TIER + HIGH), 91: (0, tier * TIER + LOW)})


def test_the_last_rows_of_the_last_distinct_tokens_are_harvested():
    evidence = begun([5, 6, 7, 8, 7], 9, n_harvested=2)
    assert evidence.table.longest(7, 8, 7)[0] == TRIGRAM
    assert evidence.table.longest(6, 7, 8)[0] == TRIGRAM
    assert evidence.table.longest(5, 6, 7)[0] == UNIGRAM  # 7's first row is not, its last is
    assert evidence.table.longest(0, 5, 6)[0] == SINGLE_TOKEN
    assert begun([5, 6, 7, 8, 7], 9, n_harvested=None).table.longest(5, 6, 7)[0] == TRIGRAM
    with pytest.raises(ValueError, match="n_harvested must be >= 1"):
        Evidence(n_harvested=0)


def test_a_token_that_was_never_met_has_its_single_token_row():
    evidence = Evidence(2, n_single_token_rows=7)
    evidence.set_single_token_rows(*rows(*([70 + token, 60 + token] for token in range(7))))
    evidence.begin([5, 9], Prefill(9, frozenset(), lambda k, wanted: rows([90, 91], [90, 91])))
    root = evidence.root([5, 9, 9])
    nowhere = root._replace(suffix=0, length=0, before=1, previous=1)
    assert cells(evidence, nowhere._replace(token=4)) == {74: (0, HIGH), 64: (0, LOW)}  # tier SINGLE_TOKEN is the first
    assert cells(evidence, nowhere._replace(token=7)) == {}  # its single-token row is not known
    assert cells(evidence, nowhere._replace(token=5)) == {90: (0, UNIGRAM * TIER + HIGH), 91: (0, UNIGRAM * TIER + LOW)}
    assert source_of(HIGH) == ADJACENCY
    evidence.begin([8, 9], Prefill(9, frozenset(), lambda k, wanted: rows([90, 91], [90, 91])))  # kept, cold as it is
    assert cells(evidence, nowhere._replace(token=4)) == {74: (0, HIGH), 64: (0, LOW)}
    with pytest.raises(ValueError, match="n_single_token_rows must be >= 0"):
        Evidence(n_single_token_rows=-1)


def test_at_the_root_what_was_not_said_is_deferred():
    evidence = begun([5, 6], 90)  # the last row said 90, the root; 91 was its other id
    root = evidence.root([5, 6, 90])
    assert cells(evidence, root, is_root=True) == {91: (0, SINGLE_TOKEN * TIER + DEFERRED + LOW)}
    assert cells(evidence, root, is_root=False) == {}
    tree = single_node(90)
    evidence.learn(tree, Verdict([0], 70), Scored([70], *rows([70, 71])))
    root = evidence.root([5, 6, 90, 70])
    assert cells(evidence, root, is_root=True) == {71: (0, SINGLE_TOKEN * TIER + DEFERRED + LOW)}


def test_a_learnt_tree_fills_all_three_tiers():
    #  5 - 6 - 7
    evidence = begun([3, 4], 5)
    evidence.root([3, 4, 5])
    tree = DraftTree.from_lists([5, 6, 7], [-1, 0, 1])
    evidence.learn(tree, Verdict([0, 1, 2], 8), Scored([6, 7, 8], *rows([6, 60], [7, 70], [8, 80])))
    assert evidence.table.longest(3, 4, 5)[:2] == (TRIGRAM, [6, 60])
    assert evidence.table.longest(4, 5, 6)[:2] == (TRIGRAM, [7, 70])
    assert evidence.table.longest(5, 6, 7)[:2] == (TRIGRAM, [8, 80])


def test_unlikely_candidates_are_left_out():
    evidence = begun([5, 6, 7, 8], 9)
    node = evidence.root([5, 6, 7, 8, 9])._replace(suffix=0, length=0, before=5, previous=6, token=7)
    probabilities = [0.5] * N_CELLS
    probabilities[TRIGRAM * TIER + LOW] = 0.1
    assert [token for token, _ in evidence.candidates(node, probabilities, 0.2, False)] == [90]


def test_a_drafts_row_stands_before_the_tables():
    evidence = begun([5, 6, 7, 8], 9)
    draft = [({90: 2}, [90, 50], [HIGH, LOW])]  # the row of 90 was not made
    root = evidence.root([5, 6, 7, 8, 9], draft)
    found = cells(evidence, root._replace(suffix=0, length=0, before=5, previous=6, token=7))
    assert found[90][1] == DRAFT * TIER + HIGH
    assert found[50][1] == DRAFT * TIER + LOW
    assert found[91][1] == TRIGRAM * TIER + LOW
    assert evidence.child(root, 90).draft == evidence.child(root, 4).draft == 0
    assert 91 in cells(evidence, root._replace(token=4), is_root=True)  # deferred: the draft does not replace it


def test_sources_apart_a_token_counts_by_its_likelier_evidence():
    evidence = begun([1, 2, 3, 1], 2, rows([2, 9], [3, 4], [1, 9], [2, 9]), joint=False)
    node = evidence.root([1, 2, 3, 1, 2])
    probabilities = [0.0] * N_CELLS
    probabilities[BIGRAM * TIER + HIGH] = 0.5
    assert dict(evidence.candidates(node, probabilities, 0.1, False)) == {3: BIGRAM * TIER + HIGH}


def test_cold_forgets_and_warm_keeps():
    for state in ("cold", "warm"):
        evidence = begun([1, 2, 3, 1], 2, state=state)
        evidence.root([1, 2, 3, 1, 2])
        ids, scores = rows([90, 91], [90, 91])
        evidence.begin([1, 2], Prefill(4, frozenset(), lambda k, n: (ids, scores)))  # noqa: B023 (asked at once)
        node = evidence.child(evidence.child(evidence.root([1, 2, 4]), 1), 2)
        assert (3 in cells(evidence, node)) == (state == "warm")


def test_a_nodes_source_is_a_match_before_a_draft_before_a_row():
    assert source_of(FIRST_MATCHED * N_ADJACENCY + DRAFT * TIER) == CONTEXT
    assert source_of(DRAFT * TIER) == DRAFT_MODEL
    assert source_of(TRIGRAM * TIER + DEFERRED) == ADJACENCY
