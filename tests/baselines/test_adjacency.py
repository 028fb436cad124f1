"""The rule that the baselines share: which rows of a verified step the adjacency table learns."""

import numpy as np
import pytest

from baselines.adjacency import LOG_ZERO, AdjacencyCandidates, learn_step
from goose.engine.contract import Prefill
from goose.engine.tree import DraftTree
from goose.engine.verify import Scored
from goose.sources.transition import AdjacencyTable


def scored(*best: int) -> Scored:
    """A row for each node, whose best successor is given."""
    return Scored(list(best), np.array(best)[:, None], np.ones((len(best), 1), dtype=np.float32))


@pytest.mark.parametrize(("tokens", "parents", "root_known"), [([5], [-1], True), ([5, 6], [-1, 0], False)])
def test_the_roots_own_bigram_is_learnt_after_plain_decoding_only(tokens, parents, root_known):
    table = AdjacencyTable(top_k=1, prefill_harvest=False)
    learn_step(table, DraftTree.from_lists(tokens, parents), 4, scored(*(token + 10 for token in tokens)))
    # A later row of the same token, seen after another one, leaves the bigram (4, 5) where it was learnt.
    table.learn([5], [9], np.array([[99]]), np.ones((1, 1), dtype=np.float32))
    assert table.successors(4, 5)[0] == ([15] if root_known else [99])
    for parent, token in zip(parents[1:], tokens[1:], strict=True):
        assert table.successors(tokens[parent], token)[0] == [token + 10]


def test_rows_are_logarithms_of_the_tables_scores_and_a_score_of_zero_stays_a_candidate():
    source = AdjacencyCandidates(AdjacencyTable(top_k=2, prefill_harvest=False))
    source.begin([4], Prefill(5, frozenset(), None))
    source.table.learn([5], [4], np.array([[7, 8]]), np.array([[0.5, 0.0]], dtype=np.float32))
    source.start([4, 5])
    known, unknown = source.expand([5, 7], [-1, 0], [0, 1])
    assert list(known) == [(7, pytest.approx(np.log(0.5))), (8, LOG_ZERO)]
    assert list(unknown) == []
