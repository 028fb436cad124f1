"""SuffixDecoding's drafts: worked by eye, and the automaton against counting every occurrence afresh."""

import heapq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines import suffix
from baselines.autoregressive import AutoregressiveDrafter
from baselines.suffix import SHAPES, STATES, SuffixDrafter, SuffixIndex
from goose.engine.contract import Prefill
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from goose.engine.tree import CONTEXT, ROOT
from toy import P0, counter, tiny_model

# 1 2 was followed by 3, 4 and 3; it occurs a fourth time at the end.
FORKED = [1, 2, 3, 9, 1, 2, 4, 9, 1, 2, 3, 8, 1, 2]
# 5 7 was followed by 2, once; 7 by 1 five times and by 2 once.
RIVALS = [5, 7, 2, 7, 1, 7, 1, 7, 1, 7, 1, 7, 1, 5, 7]


def begun(context, **settings) -> SuffixDrafter:
    drafter = SuffixDrafter(**settings)
    drafter.begin(context, Prefill(context[-1], frozenset(), None))
    return drafter


def drafted(context, budget=60, **settings) -> list[tuple[int, int, float]]:
    """(parent, token, score) of every node after the root."""
    return nodes_of(begun(context, **settings).draft(context, budget))


def nodes_of(tree) -> list[tuple[int, int, float]]:
    columns = (tree.parents.tolist(), tree.tokens.tolist(), tree.scores.tolist())
    return [(parent, token, pytest.approx(score)) for parent, token, score in zip(*columns, strict=True)][1:]


# Worked drafts


def test_a_tree_takes_the_most_probable_nodes_and_counts_the_patterns_own_end():
    # count(1 2) = 4, its own end included: 3 has 2/4, 4 has 1/4; after 3, 9 and 8 have 1/2 each. First come, first.
    assert drafted(FORKED, max_spec_factor=1) == [(0, 3, 0.5), (0, 4, 0.25)]
    assert drafted(FORKED, max_spec_factor=2) == [(0, 3, 0.5), (0, 4, 0.25), (1, 9, 0.25), (1, 8, 0.25)]


def test_a_chain_takes_the_most_frequent_token_each_time():
    assert drafted(FORKED, shape="chain", max_spec_factor=2)[:2] == [(0, 3, 0.5), (1, 9, 0.25)]


def test_a_longer_match_may_draft_more_and_wins_a_tie():
    assert drafted(RIVALS, max_spec_factor=1) == [(0, 2, 0.5), (1, 7, 0.5)]  # 1.0 against 5/7 of the one node after 7


def test_a_shorter_match_wins_when_more_of_it_is_expected_to_be_accepted():
    # Four nodes each: 2 7 1 7 at 1/2 give 2.0; after 7: 1, 7, 1, 7 at 5/7, 4/7, 4/7 and 3/7 give 2.29.
    assert drafted(RIVALS, max_spec_factor=0, max_spec_offset=4) == [
        (0, 1, 5 / 7), (1, 7, 4 / 7), (2, 1, 4 / 7), (3, 7, 3 / 7),
    ]  # fmt: skip


def test_max_match_bounds_the_suffix_looked_up():
    assert drafted(RIVALS, max_match=1, max_spec_factor=1) == [(0, 1, 5 / 7)]


def test_min_score_bounds_the_path_probability():
    assert drafted(FORKED, max_spec_factor=4, min_score=0.3) == [(0, 3, 0.5)]
    assert drafted(FORKED, shape="chain", max_spec_factor=4, min_score=0.3) == [(0, 3, 0.5)]
    assert drafted(FORKED, min_score=0.6) == []


@pytest.mark.parametrize("context", [[5], [1, 2, 3], [1, 1, 2]])
def test_nothing_is_drafted_after_a_token_that_is_new(context):
    assert drafted(context) == []


def test_a_run_of_one_token_is_continued_to_where_the_context_ended():
    # 7 7 occurs three times, 7 7 7 twice, 7 7 7 7 once: 2/3 + 1/3, against 1/2 after 7 7 7 and 3/4 after 7.
    assert drafted([7] * 4, max_spec_factor=1) == [(0, 7, 2 / 3), (1, 7, 1 / 3)]
    assert drafted([7] * 4, max_spec_factor=1, shape="chain") == [(0, 7, 2 / 3), (1, 7, 1 / 3)]


def test_every_node_comes_from_the_context_and_none_beyond_the_budget():
    context = [1, 2, 3, 4, 5, 6] * 12
    for shape in SHAPES:
        drafter = begun(context, shape=shape)
        for budget in (1, 2, 7, 30):  # always enough after a long match to fill it
            tree = drafter.draft(context, budget)
            assert tree.n_nodes == budget
            assert tree.sources.tolist() == [ROOT] + [CONTEXT] * (budget - 1)


# The slow, obvious way


def slow_children(texts, pattern) -> dict[int, int]:
    """Token -> how often it followed `pattern`, in the order first seen."""
    found: dict[int, int] = {}
    n = len(pattern)
    for text in texts:
        for end in range(n, len(text)):
            if text[end - n : end] == pattern:
                found[text[end]] = found.get(text[end], 0) + 1
    return found


def slow_count(texts, pattern) -> int:
    n = len(pattern)
    return sum(text[end - n : end] == pattern for text in texts for end in range(n, len(text) + 1))


def slow_tree(texts, pattern, max_nodes, min_score, shape):
    nodes, heap, n_arrived = [], [], 0
    parent, score = 0, 1.0
    while len(nodes) < max_nodes:
        children = list(slow_children(texts, pattern).items())
        if shape == "chain":
            heap.clear()
            children = sorted(children, key=lambda child: -child[1])[:1]
        for token, count in children:
            probability = score * count / slow_count(texts, pattern)
            if probability >= min_score:
                heapq.heappush(heap, (-probability, n_arrived, parent, [*pattern, token]))
                n_arrived += 1
        if not heap:
            break
        negative, _, above, pattern = heapq.heappop(heap)
        score = -negative
        nodes.append((above, pattern[-1], score))
        parent = len(nodes)
    return nodes


def slow_draft(texts, budget, shape, max_match, factor, offset, min_score):
    best, best_score = [], 0.0
    for n in range(min(max_match, len(texts[-1])), 0, -1):
        max_nodes = min(budget - 1, int(factor * n + offset + 1e-6))
        nodes = slow_tree(texts, texts[-1][-n:], max_nodes, min_score, shape)
        score = sum(node[2] for node in nodes)
        if score > best_score:
            best, best_score = nodes, score
    return best


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=30) | st.lists(st.just(1), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(
    requests=st.lists(st.tuples(tokens, tokens), min_size=1, max_size=3),
    state=st.sampled_from(STATES),
    shape=st.sampled_from(SHAPES),
    max_match=st.integers(1, 6),
    factor=st.sampled_from([0.5, 1.0, 2.5]),
    offset=st.sampled_from([1.0, 3.0]),
    min_score=st.sampled_from([0.05, 0.2]),
    stride=st.integers(1, 7),
    budget=st.integers(1, 12),
)
def test_the_index_drafts_what_counting_every_occurrence_gives(
    requests, state, shape, max_match, factor, offset, min_score, stride, budget
):
    drafter = SuffixDrafter(shape, max_match, factor, offset, min_score, state)
    earlier: list[list[int]] = []
    for prompt, output in requests:
        drafter.begin(prompt, Prefill(output[0], frozenset(), None))
        for n_done in range(1, len(output) + 1, stride):
            context = prompt + output[:n_done]
            texts = [*(earlier if state == "warm" else []), context]
            expected = slow_draft(texts, budget, shape, max_match, factor, offset, min_score)
            assert nodes_of(drafter.draft(context, budget)) == expected
        earlier.append(context)  # what the drafter last saw of this request


def test_a_text_of_one_token_costs_no_more_than_the_horizon_an_append():
    index = SuffixIndex(horizon=10)
    for _ in range(500):
        index.append(7)
    assert len(list(index.matches(max_match=500))) <= 10 + 1
    assert len(index.counts) <= 2 * 500 + 1
    assert index.counts[index.following[SuffixIndex.ROOT][7]] == 500


def test_a_text_of_one_token_expands_no_more_than_the_longest_states(monkeypatch):
    expanded = []
    grow = suffix.most_likely_tree
    monkeypatch.setattr(suffix, "most_likely_tree", lambda *args: expanded.append(args[1]) or grow(*args))
    drafter = begun([7] * 100, max_spec_offset=60)
    drafter.draft([7] * 100, 60)
    assert expanded == [state for state, _ in drafter._index.matches(24)][: suffix.MAX_STATES]
    assert len(set(expanded)) == suffix.MAX_STATES


# State, losslessness, settings


def test_cold_forgets_and_warm_keeps_earlier_requests_apart():
    first, second = [1, 2, 3, 4, 5, 6], [9, 1, 2, 3]
    for state, expected in (("cold", []), ("warm", [4, 5, 6])):
        drafter = begun(first, state=state, max_spec_factor=1)
        drafter.draft(first, 60)
        drafter.begin(second, Prefill(3, frozenset(), None))
        assert drafter.draft(second, 60).tokens[1:].tolist() == expected
    # No string reaches from one request into the next: 6 was never followed by 9.
    drafter.begin([6], Prefill(6, frozenset(), None))
    assert drafter.draft([6], 60).n_nodes == 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("state", STATES)
def test_output_equals_plain_decodings(shape, state):
    drafter = SuffixDrafter(shape, state=state)
    repeating = [5, 6, 7, 8, 9, 10, 11, 7, 8, 9, 5, 6, 7]
    for lm, prompt in ((counter(), P0), (TreeLM(tiny_model()), repeating), (counter(), P0)):
        plain = decode(lm, prompt, AutoregressiveDrafter(), max_new_tokens=80)
        generation = decode(lm, prompt, drafter, max_new_tokens=80, node_budget=16)
        assert generation.output_ids == plain.output_ids
        assert max(tree.n_nodes for tree in generation.steps.trees) <= 16
    # The second time round, warm knows the whole count: only B and alpha x match length bound a step.
    assert (len(generation.steps) < 20) == (state == "warm")


@pytest.mark.parametrize(
    "settings",
    [
        {"shape": "star"}, {"state": "hot"}, {"max_match": 0}, {"max_spec_factor": -1}, {"min_score": 0},
        {"max_spec_factor": 0, "max_spec_offset": 0}, {"min_score": 1.5},
        {"max_spec_factor": float("inf")}, {"max_spec_factor": float("nan")}, {"max_spec_offset": float("nan")},
    ],
)  # fmt: skip
def test_invalid_settings_are_refused(settings):
    with pytest.raises(ValueError, match="must"):
        SuffixDrafter(**settings)
