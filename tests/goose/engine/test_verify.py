"""What the target says after each node, and the walk: worked tables, and the slow obvious version of each."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from goose.engine.tree import ADJACENCY, DraftTree, single_node
from goose.engine.verify import (
    NonFiniteLogits,
    Sampling,
    Scored,
    Verdict,
    chunk_maxima,
    fetch,
    next_tokens,
    top_k_rows,
    walk,
)
from toy import TREEC, random_tree

GREEDY = Sampling()


INF, NAN = math.inf, math.nan


def random_logits(n: int, n_vocab: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, n_vocab, generator=torch.Generator().manual_seed(seed))


# --- next_tokens


def test_greedy_takes_the_first_of_the_largest():
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, -1.0, 2.0], [-INF, -INF, -5.0]])
    assert next_tokens(logits, np.array([4, 5, 5]), GREEDY).tolist() == [1, 0, 2]


@pytest.mark.parametrize("n_vocab", [1000, 64, 64 * 16, 64 * 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_ties_are_read_alike_alone_in_a_batch_and_by_chunks(dtype, n_vocab):
    """Half precision ties often; a row's token must not depend on the rows around it, and equals argmax."""
    logits = (random_logits(60, n_vocab) * 2).round().to(dtype)
    together = next_tokens(logits, np.arange(60), GREEDY).tolist()
    assert together == logits.argmax(-1).tolist()
    assert together == next_tokens(logits, np.arange(60), GREEDY, chunk_maxima(logits)).tolist()
    for i in range(60):
        row = logits[i : i + 1]
        assert [together[i]] == next_tokens(row, np.array([i]), GREEDY).tolist()
        assert [together[i]] == next_tokens(row, np.array([i]), GREEDY, chunk_maxima(row)).tolist()
    equal = torch.zeros(3, n_vocab, dtype=dtype)
    for maxima in (None, chunk_maxima(equal)):
        assert next_tokens(equal, np.arange(3), GREEDY, maxima).tolist() == [0, 0, 0]


def test_a_draw_depends_on_seed_and_position_alone():
    logits = random_logits(1, 50).expand(4, 50).contiguous()
    positions = np.array([7, 8, 7, 9])
    drawn = next_tokens(logits, positions, Sampling(1.5, seed=3)).tolist()
    assert drawn[0] == drawn[2]  # the same position meets the same noise
    for i, position in enumerate(positions):  # alone as in the tree
        assert next_tokens(logits[:1], np.array([position]), Sampling(1.5, seed=3)).tolist() == [drawn[i]]
    many = np.arange(200)
    wide = logits[:1].expand(200, 50).contiguous()
    first, again, other = (next_tokens(wide, many, Sampling(1.5, seed)).tolist() for seed in (3, 3, 4))
    assert first == again
    assert sum(a == b for a, b in zip(first, other, strict=True)) < 100
    assert len(set(first)) > 10


def test_sampling_leaves_the_logits_and_the_global_generator_alone():
    logits = random_logits(3, 20)
    before = logits.clone()
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    next_tokens(logits, np.arange(3), Sampling(1.0, 7))
    assert torch.equal(torch.rand(4), expected)
    assert torch.equal(logits, before)


def test_a_cold_draw_is_the_greedy_one_and_a_forbidden_token_is_never_drawn():
    logits = random_logits(100, 30)
    assert next_tokens(logits, np.arange(100), Sampling(1e-4, 1)).tolist() == logits.argmax(-1).tolist()
    logits[:, 5:] = -INF
    assert max(next_tokens(logits, np.arange(100), Sampling(3.0, 1)).tolist()) < 5


@pytest.mark.parametrize("temperature", [-1.0, -1e-9, NAN, 1e-45, float("inf")])
def test_a_senseless_temperature_is_refused(temperature):
    with pytest.raises(ValueError, match="temperature must be 0"):
        Sampling(temperature)


# --- the distribution of what is emitted, whatever was drafted

LOGITS4 = torch.tensor([[0.0, 1.0, -1.0, 0.5], [2.0, 0.0, 0.0, 1.0], [0.3, 0.3, 0.3, 0.3], [-INF, 0.0, 1.0, 2.0]])


def chi_square(counts, probabilities) -> float:
    expected = np.asarray(probabilities) * sum(counts)
    possible = expected > 0
    assert all(np.asarray(counts)[~possible] == 0)
    return float((((np.asarray(counts) - expected) ** 2)[possible] / expected[possible]).sum())


@pytest.mark.parametrize("temperature", [0.7, 2.0])
@pytest.mark.parametrize("children", [[], [3, 1], [0, 1, 2, 3]], ids=str)
def test_the_first_two_emitted_tokens_have_the_targets_distribution_under_any_siblings(temperature, children):
    """Next-token row of token t: LOGITS4[t]. The root is 1; 2000 seeds; bounds are chi-square's 0.999 quantile."""
    tree = DraftTree.from_lists([1, *children, *children[:1]], [-1] + [0] * len(children) + [1] * len(children[:1]))
    counts = np.zeros((4, 4), dtype=int)
    for seed in range(2000):
        verdict = walk(tree, next_tokens(LOGITS4[tree.tokens], 10 + tree.depths, Sampling(temperature, seed)).tolist())
        emitted = [*tree.tokens[verdict.path[1:]].tolist(), verdict.bonus]
        if len(emitted) == 1:  # the next step begins with the bonus as its root
            emitted += next_tokens(LOGITS4[emitted], np.array([11]), Sampling(temperature, seed)).tolist()
        counts[emitted[0], emitted[1]] += 1
    rows = torch.softmax(LOGITS4 / temperature, dim=-1).numpy()
    assert chi_square(counts.sum(1), rows[1]) < 16.3  # 3 degrees of freedom
    joint = (rows[1][:, None] * rows).ravel()
    assert chi_square(counts.ravel(), joint) < 36.2  # 14: 16 pairs, one impossible, one constraint


# --- top_k_rows: by chunks of 64 and what is left of V after them, where there are more than 2 K; else torch's way


def best_rows(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """top_k_rows, the same with the maxima given or not, and with the values that torch finds."""
    ids, scores = top_k_rows(logits, k)
    given_ids, given_scores = top_k_rows(logits, k, chunk_maxima(logits))
    assert torch.equal(given_ids, ids)
    assert torch.equal(given_scores, scores)
    assert torch.equal(logits.gather(1, ids), logits.topk(min(k, logits.shape[1]), dim=-1).values)
    return ids, scores


@pytest.mark.parametrize("n_vocab", [64, 64 * 21, 32_000])
def test_chunk_maxima_are_the_maxima_of_64_logits(n_vocab):
    logits = random_logits(3, n_vocab)
    maxima = chunk_maxima(logits)
    assert maxima.tolist() == [[max(row[i : i + 64]) for i in range(0, n_vocab, 64)] for row in logits.tolist()]
    assert chunk_maxima(random_logits(3, n_vocab + 1)) is None


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("n_vocab", [300, 64 * 4, 64 * 21, 64 * 21 + 1, 64 * 40 + 63, 32_000])
def test_top_k_equals_torch_topk(n_vocab, k):
    logits = random_logits(5, n_vocab)
    logits[4, -1] = 50.0  # the best token may lie in or after the last whole chunk
    values, expected = logits.topk(k, dim=-1)
    ids, scores = best_rows(logits, k)
    assert ids.tolist() == expected.tolist()
    assert torch.equal(scores, values.softmax(-1))
    assert (ids.dtype, scores.dtype) == (torch.int64, torch.float32)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.integers(1, 4000) | st.integers(1, 60).map(lambda n: 64 * n),
    st.integers(0, 3),
)
def test_top_k_has_torchs_values_and_distinct_ids_even_where_logits_tie(seed, k, n_vocab, n_levels):
    """Rounded to few levels and partly -inf: the ids may differ from torch's, the values at them may not."""
    logits = (random_logits(3, n_vocab, seed) * n_levels).round()
    logits[0, 1::3] = -INF
    ids, scores = best_rows(logits, k)
    kept = min(k, n_vocab)
    assert ids.shape == scores.shape == (3, kept)
    assert torch.equal(logits.gather(1, ids), logits.topk(kept, dim=-1).values)
    assert all(len(set(row)) == kept for row in ids.tolist())
    assert torch.equal(scores, logits.gather(1, ids).softmax(-1))


@pytest.mark.parametrize("n_vocab", [100, 64 * 60, 64 * 60 + 5])
def test_all_equal_logits_give_distinct_valid_ids_and_equal_scores(n_vocab):
    ids, scores = best_rows(torch.zeros(2, n_vocab), 10)
    assert all(len(set(row)) == 10 and min(row) >= 0 and max(row) < n_vocab for row in ids.tolist())
    assert torch.equal(scores, torch.full((2, 10), 0.1))


def test_fewer_finite_entries_than_k_give_zero_scores_not_nan():
    logits = torch.full((1, 128 * 30), -INF)
    logits[0, [7, 3000]] = torch.tensor([1.0, 2.0])
    ids, scores = best_rows(logits, 5)
    assert ids[0, :2].tolist() == [3000, 7]
    assert len(set(ids[0].tolist())) == 5
    assert scores[0, 2:].tolist() == [0, 0, 0]
    assert torch.equal(scores[0, :2], torch.tensor([2.0, 1.0]).softmax(-1))


def test_half_precision_logits_are_scored_in_single():
    logits = random_logits(2, 64 * 60).bfloat16()
    ids, scores = best_rows(logits, 4)
    assert torch.equal(scores, logits.gather(1, ids).float().softmax(-1))


# --- fetch


@pytest.mark.parametrize("n_vocab", [30, 64 * 20])
@pytest.mark.parametrize("k", [0, 1, 7, 40])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(1.2, 5)], ids=["greedy", "sampled"])
def test_fetch_brings_back_what_the_parts_say(k, sampling, n_vocab):
    """Ids, and scores bit for bit, through the one packed block; K beyond the vocabulary gives all of it."""
    logits, positions = random_logits(6, n_vocab), np.array([4, 5, 5, 6, 6, 7])
    scored = fetch(logits, positions, sampling, k)
    assert scored.next_tokens == next_tokens(logits, positions, sampling).tolist()
    assert (scored.top_ids.shape, scored.top_ids.dtype) == ((6, min(k, n_vocab)), np.int64)
    assert (scored.top_scores.shape, scored.top_scores.dtype) == ((6, min(k, n_vocab)), np.float32)
    if k:
        ids, scores = top_k_rows(logits, k)
        assert scored.top_ids.tolist() == ids.tolist()
        assert (scored.top_scores == scores.numpy()).all()
    assert isinstance(scored, Scored)
    assert all(type(token) is int for token in scored.next_tokens)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(1.0, 2)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("n_vocab", [8, 64 * 8])
@pytest.mark.parametrize("entries", [[NAN], [INF], [NAN, INF], [-INF]], ids=str)
def test_non_finite_logits_are_an_error_that_names_the_row(entries, n_vocab, k, sampling):
    """NaN would be read as a token, and a draft made from the same logits would agree."""
    logits = random_logits(4, n_vocab)
    if entries == [-INF]:
        entries = entries * n_vocab  # a row of nothing else
    logits[2, : len(entries)] = torch.tensor(entries)
    with pytest.raises(NonFiniteLogits, match=r"non-finite logits after position 11 \(row 2 of the forward\)"):
        fetch(logits, np.array([10, 11, 12, 13]), sampling, k)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(1.0, 2)], ids=["greedy", "sampled"])
def test_single_minus_infinities_are_fine(sampling):
    logits = random_logits(2, 8)
    logits[:, 1:6] = -INF
    scored = fetch(logits, np.array([1, 2]), sampling, 8)
    assert set(scored.next_tokens) <= {0, 6, 7}
    assert np.isfinite(scored.top_scores).all()


# --- walk


@pytest.mark.parametrize(
    ("next_ids", "path", "bonus"),
    [
        ([11, 12, 31, 13, 41, 32, 51], [0, 1, 3], 13),  # what COUNTER says
        ([30, 12, 31, 13, 41, 32, 51], [0, 2, 5], 32),
        ([11, 40, 31, 13, 41, 32, 51], [0, 1, 4], 41),
        ([11, 12, 31, 50, 41, 32, 51], [0, 1, 3, 6], 51),
        ([12, 12, 31, 13, 41, 32, 51], [0], 12),  # 12 is in the tree, but not under the root
    ],
)
def test_the_walk_on_treec(next_ids, path, bonus):
    assert walk(TREEC, next_ids) == Verdict(path, bonus)


def test_the_walk_on_a_lone_root():
    assert walk(single_node(5), [9]) == Verdict([0], 9)


def obvious_walk(tree: DraftTree, next_ids, node: int = 0) -> list[int]:
    for child in range(tree.n_nodes):
        if tree.parents[child] == node and tree.tokens[child] == next_ids[node]:
            return [node, *obvious_walk(tree, next_ids, child)]
    return [node]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 4))
def test_the_walk_equals_the_recursive_one(seed, n_nodes, vocab_size):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 0, n_nodes, vocab_size)
    next_ids = rng.integers(vocab_size, size=tree.n_nodes).tolist()
    path = obvious_walk(tree, next_ids)
    assert walk(tree, next_ids) == Verdict(path, next_ids[path[-1]])


def test_the_walk_does_not_care_for_scores_or_sources():
    tree = DraftTree.from_lists([1, 2, 3], [-1, 0, 0], [0, ADJACENCY, ADJACENCY], [1, 0.0, 0.9])
    assert walk(tree, [2, 7, 8]) == Verdict([0, 1], 7)
