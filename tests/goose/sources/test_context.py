"""Context match: which occurrence is copied, how far it is trusted, and that no query is its own hit (9, 24).

The slow, obvious matcher below scans the text for every question; the hash index must agree with it everywhere.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goose.sources.context import CONSENSUS, MATCH_POLICIES, ContextMatcher, confidence

texts = st.lists(st.integers(0, 2), max_size=40)
length_sets = st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True)


def matcher(text, **settings) -> ContextMatcher:
    made = ContextMatcher(**settings)
    made.extend(text)
    return made


def occurrences(text, query, n) -> list[int]:
    """Where the text goes on after each earlier occurrence of the query's last n tokens."""
    if len(query) < n:
        return []
    return [end for end in range(n, len(text)) if text[end - n : end] == query[-n:]]


def choose(text, ends, policy, max_match) -> int:
    followers = [text[end] for end in ends]
    if policy == "earliest":
        return ends[0]
    if policy == "longest_continuation":
        best = max(len(text[end : end + max_match]) for end in ends)
        return [end for end in ends if len(text[end : end + max_match]) == best][-1]
    if policy == "most_frequent":
        best = max(followers.count(token) for token in followers)
        return [end for end in ends if followers.count(text[end]) == best][-1]
    return ends[-1]


def slow_match(text, query, lengths, policy, max_match, at_least) -> list[int]:
    for n in sorted(lengths, reverse=True):
        ends = occurrences(text, query, n)
        if ends:
            found = text[choose(text, ends, policy, max_match) :]
            if len(found) >= at_least:
                return found[:max_match]
    return []


def slow_consensus(text, query, lengths, policy, max_match, rule) -> bool:
    hits = [ends for n in sorted(lengths, reverse=True) if (ends := occurrences(text, query, n))]
    if rule == "lengths":
        proposals = [text[choose(text, ends, policy, max_match)] for ends in hits]
    else:
        proposals = [text[end] for end in hits[0]] if hits else []
    return len(proposals) > 1 and proposals == proposals[:1] * len(proposals)


@given(texts, st.data())
def test_the_index_answers_like_a_scan_of_the_text(text, data):
    query = data.draw(st.one_of(st.just(text), texts), label="query")
    lengths = data.draw(length_sets, label="lengths")
    max_match, at_least = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    for policy in MATCH_POLICIES:
        for rule in CONSENSUS:
            fast = matcher(text, lengths=lengths, max_match=max_match, match_policy=policy, consensus=rule)
            assert fast.match(query, at_least) == slow_match(text, query, lengths, policy, max_match, at_least)
            assert fast.has_consensus(query) == slow_consensus(text, query, lengths, policy, max_match, rule)


@given(st.lists(texts, max_size=6), length_sets)
def test_growing_the_context_piece_by_piece_equals_indexing_it_at_once(pieces, lengths):
    grown, text = ContextMatcher(lengths), []
    for piece in pieces:
        text = text + piece
        grown.extend(text)
        grown.extend(text)  # nothing new: nothing may be indexed twice
        fresh = matcher(text, lengths=lengths)
        for end in range(len(text) + 1):
            assert grown.match(text[:end]) == fresh.match(text[:end])
            assert grown.has_consensus(text[:end]) == fresh.has_consensus(text[:end])


@given(texts, texts)
def test_reset_forgets_everything(first, second):
    used = matcher(first)
    used.reset()
    used.extend(second)
    assert used.match(second) == matcher(second).match(second)


@given(texts)
def test_no_proposal_starts_after_the_end_of_the_text(text):
    # An occurrence that has no following token, the query itself above all, would propose nothing: [] from a hit.
    for policy in MATCH_POLICIES:
        found = matcher(text, lengths=(1,), match_policy=policy).match(text)
        assert bool(found) == (text[-1:] != [] and text[-1] in text[:-1])


# 1 2 is followed by 3 (twice, far apart) and by 4, 4 (last): every policy takes another occurrence.
# index  0  1  2  3  4  5  6  7  8  9 10 11 12
FORKS = [1, 2, 3, 9, 1, 2, 4, 8, 1, 2, 4, 1, 2]


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        ("earliest", [3, 9, 1, 2]),
        ("latest", [4, 1, 2]),
        ("longest_continuation", [4, 8, 1, 2]),  # two have 4 tokens or more: the later of them
        ("most_frequent", [4, 1, 2]),  # 4 follows twice, 3 once: the later 4
    ],
)
def test_each_policy_takes_its_own_occurrence(policy, found):
    assert matcher(FORKS, lengths=(2,), max_match=4, match_policy=policy).match(FORKS) == found


def test_most_frequent_prefers_the_common_token_over_the_recent_one():
    text = [1, 5, 1, 5, 1, 6, 1]
    assert matcher(text, lengths=(1,), match_policy="latest").match(text) == [6, 1]
    assert matcher(text, lengths=(1,), match_policy="most_frequent").match(text) == [5, 1, 6, 1]


def test_longest_continuation_is_the_earliest_when_every_other_runs_into_the_end():
    text = [1, 7, 1, 8, 1]
    assert matcher(text, lengths=(1,), match_policy="longest_continuation").match(text) == [7, 1, 8, 1]


def test_the_longest_length_with_an_occurrence_wins_over_an_earlier_shorter_match():
    text = [9, 3, 5, 1, 2, 3, 6, 0, 1, 2, 3]
    assert matcher(text, lengths=(3, 1)).match(text) == [6, 0, 1, 2, 3]
    assert matcher(text, lengths=(1,)).match(text)[:2] == [5, 1]
    assert matcher(text, lengths=(1, 3)).match(text) == matcher(text, lengths=(3, 1)).match(text)


def test_the_newest_token_is_part_of_the_key():
    text = [1, 2, 3, 4, 5, 6, 1, 2]
    assert matcher(text, lengths=(2,)).match(text) == [3, 4, 5, 6, 1, 2]
    assert matcher(text[:-1], lengths=(2,)).match(text[:-1]) == []  # (6, 1) is new; (5, 6), one after, is no key


def test_the_query_is_never_its_own_hit():
    assert matcher([1, 2, 3], lengths=(3, 2, 1)).match([1, 2, 3]) == []
    assert not matcher([7, 8], lengths=(1,)).has_consensus([7, 8])


def test_a_match_may_run_over_the_query_itself():
    text = [1, 2, 3, 1, 2]
    assert matcher(text, lengths=(2,)).match(text) == [3, 1, 2]
    assert matcher([7, 7, 7, 7], lengths=(2,)).match([7, 7, 7, 7]) == [7, 7]


@pytest.mark.parametrize("query", [[], [1], [2, 1]])
def test_a_query_shorter_than_every_length_matches_nothing(query):
    text = [2, 1, 5, 2, 1, 5]
    assert matcher(text, lengths=(3, 4)).match(query) == []
    assert not matcher(text, lengths=(3, 4)).has_consensus(query)


def test_a_query_that_is_not_in_the_text_can_still_be_continued():
    pool = [1, 2, 3, 4, 5, 6]
    drafted = [50, 51, 2, 3, 4]  # a chain drafted so far; its last three tokens occur in the pool
    assert matcher(pool, lengths=(3,)).match(drafted) == [5, 6]
    assert matcher(pool, lengths=(3,)).match([50, 51, 52]) == []
    assert matcher(pool, lengths=(3,)).match([4, 5, 6]) == []  # the pool ends here: this one has no continuation


def test_at_least_sends_a_short_continuation_on_to_a_shorter_length():
    text = [3, 10, 11, 12, 2, 3, 20, 2, 3]
    both = matcher(text, lengths=(2, 1), max_match=4)
    assert both.match(text) == [20, 2, 3]
    assert both.match(text, at_least=3) == [20, 2, 3]
    assert both.match(text, at_least=4) == [10, 11, 12, 2]
    assert both.match(text, at_least=9) == []


def test_occurrences_agree_only_when_all_of_at_least_two_continue_alike():
    def agreed(text):
        return matcher(text, lengths=(2,)).has_consensus([1, 2])

    assert not agreed([1, 2, 3])
    assert agreed([1, 2, 3, 0, 1, 2, 3])
    assert not agreed([1, 2, 3, 0, 1, 2, 4])
    assert not agreed([1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 4])
    assert agreed([1, 2, 3, 0, 1, 2, 3, 0, 1, 2])  # the last occurrence has no continuation yet


def test_lengths_agree_when_at_least_two_lengths_match_and_propose_the_same_token():
    def agreed(text, query, lengths=(2, 1)):
        return matcher(text, lengths=lengths, consensus="lengths").has_consensus(query)

    assert agreed([1, 2, 3], [1, 2])  # one occurrence, seen by both lengths
    assert not agreed([1, 2, 3], [1, 2], lengths=(2,))
    assert not agreed([9, 2, 3], [1, 2])  # only one length matches
    assert not agreed([2, 4, 1, 2, 3], [1, 2])  # length 2 says 3, length 1 says 4 (its earliest)


def test_only_the_winning_length_has_a_say_about_occurrences():
    text = [2, 4, 1, 2, 3, 1, 2, 3]  # after (1, 2): 3, 3; after (2): 4, 3, 3
    assert matcher(text, lengths=(2, 1)).has_consensus([1, 2])
    assert not matcher(text, lengths=(1,)).has_consensus([1, 2])


@pytest.mark.parametrize(
    ("chain_length", "expected"),
    [(0, 0.0), (1, 0.075), (4, 0.3), (7, 0.525), (8, 0.7), (14, 0.8), (20, 0.9), (21, 0.9), (100, 0.9)],
)
def test_confidence_schedule_without_consensus(chain_length, expected):
    assert confidence(chain_length, consensus=False) == pytest.approx(expected)


def test_confidence_is_one_on_consensus_and_zero_without_a_chain():
    assert confidence(1, consensus=True) == 1.0
    assert confidence(0, consensus=True) == 0.0


def test_long_match_moves_the_schedule():
    assert confidence(2, consensus=False, long_match=4) == pytest.approx(0.3)
    assert confidence(4, consensus=False, long_match=4) == pytest.approx(0.7)
    assert confidence(10, consensus=False, long_match=4) == pytest.approx(0.8)


def test_a_matchers_confidence_uses_its_own_rules():
    text = [1, 2, 3, 1, 2]
    alone = matcher(text, lengths=(2, 1), long_match=4)
    assert alone.confidence(text, alone.match(text)) == pytest.approx(0.6 * 3 / 4)
    assert matcher(text, lengths=(2, 1), consensus="lengths").confidence(text, [3]) == 1.0
    assert alone.confidence(text, []) == 0.0


@pytest.mark.parametrize(
    "settings",
    [
        {"match_policy": "first"},
        {"consensus": "none"},
        {"lengths": ()},
        {"lengths": (3, 0)},
        {"max_match": 0},
        {"long_match": 0},
    ],
)
def test_invalid_settings_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        ContextMatcher(**settings)


def test_a_length_given_twice_does_not_agree_with_itself():
    once = matcher([1, 2, 3], lengths=(2,), consensus="lengths")
    twice = matcher([1, 2, 3], lengths=(2, 2), consensus="lengths")
    assert twice.has_consensus([1, 2]) == once.has_consensus([1, 2])
