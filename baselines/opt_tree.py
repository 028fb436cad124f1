"""OPT-Tree (arXiv 2406.17276): each step the tree of n nodes that maximises the draft's expected acceptance.

Symbols: q the draft's distribution · w(v) product of q along the path to node v · E expected emitted tokens of a tree,
1 + sum of w · delta the gain of E that one more layer must exceed. All scores are logarithms here, since products of
peaked q run out of floating point. The drafter knows a Filler, not what stands behind it: a table or a draft model.
"""

from collections.abc import Sequence
from heapq import heappush, heapreplace
from math import exp, inf, log

import numpy as np

from goose.engine.contract import Prefill
from goose.engine.tree import ADJACENCY, NO_PARENT, ROOT, DraftTree
from goose.engine.verify import Scored, Verdict
from goose.sources.filler import Filler, Row
from goose.sources.transition import AdjacencyTable

# log q of a successor whose share the table rounded to 0 (unigram shares are kept in half precision): still one to try.
LOG_ZERO = log(np.finfo(np.float32).tiny)


class AdjacencyFiller:
    """Successors by the table's scores, which sum to 1 over the K that it keeps: training-free, and overconfident."""

    source = ADJACENCY

    def __init__(self, table: AdjacencyTable | None = None):
        self.table = table or AdjacencyTable()
        self.top_k = self.width = self.table.top_k

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        self.table.begin(prompt_ids, prefill.top_k)

    def start(self, context: Sequence[int]) -> None:
        self._previous = context[-2]

    def expand(self, tokens: list[int], parents: list[int], nodes: Sequence[int]) -> list[Row]:
        rows = []
        for node in nodes:
            ids, scores = self.table.successors(tokens[parents[node]] if node else self._previous, tokens[node])
            rows.append(zip(ids, map(_log, scores), strict=True))
        return rows

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        # Like GOOSE's, the table learns the root's own bigram after a plain step only.
        self.table.learn_tree(tree, self._previous if tree.n_nodes == 1 else None, scored)


class OptTreeDrafter:
    """The budget's best nodes of what `fill` proposes, grown while a layer adds more than delta to E.

    delta: between (time of one draft layer) / (time of one target forward) and 1.
    max_depth: most layers below the root (the paper's depth limit).

    After each draft `expected` holds, for every step of the request so far, E of its tree (root's 1 included): what the
    filler's q expects the step to emit, to be held against what it emitted. `begin` starts a new list.
    """

    overdraft = 0

    def __init__(self, fill: Filler | None = None, *, delta: float = 0.5, max_depth: int = 10):
        if max_depth < 1 or not delta >= 0:
            raise ValueError(f"max_depth must be >= 1 and delta >= 0, got {max_depth} and {delta}")
        self.fill = fill or AdjacencyFiller()
        self.delta, self.max_depth = delta, max_depth
        self.top_k = self.fill.top_k
        self.expected: list[float] = []

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        self.expected = []
        self._drafted_at = 0
        self.fill.begin(prompt_ids, prefill)

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        self.fill.start(context)
        tree = grow(self.fill, context[-1], budget, self.delta, self.max_depth)
        if len(context) == self._drafted_at:  # the same step asked twice
            self.expected.pop()
        self._drafted_at = len(context)
        self.expected.append(float(tree.scores.sum(dtype=np.float64)))
        return tree

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        self.fill.observe(tree, verdict, scored)


def grow(fill: Filler, root: int, budget: int, delta: float, max_depth: int) -> DraftTree:
    """The paper's algorithm 1. Node scores are w, so that they sum to E (the root's is 1).

    Ties go to the shallower, then to the earlier node, so a child never displaces its parent even at q = 1.
    Deviation: a layer expands only those of its nodes that are among the n best so far. The n-th best score never
    falls and no child scores above its parent, so the tree and every E are the same, for fewer rows of a draft model.
    Deviation: while there are fewer candidates than the budget holds, the tree grows whatever E gained. Over the whole
    vocabulary, the paper's case, the first layer fills the budget already; K successors a node may not.
    """
    n_best = budget - 1
    tokens, parents, log_w = [root], [NO_PARENT], [0.0]  # all nodes that ever were among the best, layer by layer
    # Heap of (log w, -node) of the n best below the root: the worst first, of equal ones the latest.
    best: list[tuple[float, int]] = []
    gain, expected, depth, layer = inf, 0.0, 0, [0]
    while layer and n_best and depth < max_depth and (gain > delta or len(best) < n_best):
        depth += 1
        first = len(tokens)
        for parent, row in zip(layer, fill.expand(tokens, parents, layer), strict=True):
            above = log_w[parent]
            for token, log_q in row:
                score = above + log_q
                if len(best) < n_best:
                    heappush(best, (score, -len(tokens)))
                elif score > best[0][0]:
                    heapreplace(best, (score, -len(tokens)))
                else:
                    break
                tokens.append(token)
                parents.append(parent)
                log_w.append(score)
        before, expected = expected, sum(exp(score) for score, _ in best)
        gain = expected - before
        layer = sorted(-node for _, node in best if -node >= first)
    keep = [0, *sorted(-node for _, node in best)]
    new_index = {node: i for i, node in enumerate(keep)}
    return DraftTree.from_lists(
        [tokens[node] for node in keep],
        [NO_PARENT, *(new_index[parents[node]] for node in keep[1:])],
        [ROOT] + [fill.source] * (len(keep) - 1),
        [exp(log_w[node]) for node in keep],
    )


def _log(score: float) -> float:
    return log(score) if score > 0 else LOG_ZERO
