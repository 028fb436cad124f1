"""How the baselines use GOOSE's adjacency table: the rows that a verified step teaches, and candidates layer by layer.

It knows the table's ids and scores; the shape of a tree is the drafters' business.
"""

from collections.abc import Iterator, Sequence
from math import log

import numpy as np

from goose.engine.contract import Prefill
from goose.engine.tree import ADJACENCY, DraftTree
from goose.engine.verify import Scored, Verdict
from goose.sources.candidates import Row
from goose.sources.transition import AdjacencyTable

# log q of a successor whose share the table rounded to 0 (unigram shares are kept in half precision): still one to try.
LOG_ZERO = log(np.finfo(np.float32).tiny)


def learn_step(table: AdjacencyTable, tree: DraftTree, previous: int, scored: Scored) -> None:
    """The rows of every node of a verified tree, rejected ones included, go into `table`.

    previous: the context token before the root. As in GOOSE's reference code, the root's own bigram row is learnt after
    a step of plain decoding (a tree of one node) only.
    """
    table.learn_tree(tree, previous if tree.n_nodes == 1 else None, scored)


class AdjacencyCandidates:
    """The table's successors of each node (a CandidateSource, see goose/sources/candidates.py).

    q is the table's scores, which sum to 1 over the K successors that it keeps: training-free, and overconfident.
    """

    source = ADJACENCY

    def __init__(self, table: AdjacencyTable | None = None):
        self.table = table or AdjacencyTable()
        self.top_k = self.width = self.table.top_k

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        self.table.begin(prompt_ids, prefill.top_k)

    def start(self, context: Sequence[int]) -> None:
        self._previous = context[-2]

    def expand(self, tokens: list[int], parents: list[int], nodes: Sequence[int]) -> list[Row]:
        return [self._row(tokens[parents[node]] if node else self._previous, tokens[node]) for node in nodes]

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        learn_step(self.table, tree, self._previous, scored)

    def _row(self, previous: int, token: int) -> Iterator[tuple[int, float]]:
        ids, scores = self.table.successors(previous, token)
        return zip(ids, map(_log, scores), strict=True)


def _log(score: float) -> float:
    return log(score) if score > 0 else LOG_ZERO
