"""OPT-Tree: each step the tree of n nodes that maximises the draft's expected acceptance.

Source: OPT-Tree, arXiv 2406.17276, algorithm 1. Symbols: q the draft's distribution · w(v) product of q
along the path to node v · E expected emitted tokens of a tree, 1 + sum of w over the nodes below the root · delta the
gain of E that one more layer must exceed. Scores are kept as logarithms, since products of a peaked q underflow. The
drafter knows a CandidateSource, not whether it is a table or a draft model.
"""

from collections.abc import Sequence
from heapq import heappush, heapreplace
from math import exp, inf

import numpy as np

from baselines.adjacency import AdjacencyCandidates
from goose.engine.contract import Prefill
from goose.engine.tree import NO_PARENT, ROOT, DraftTree
from goose.engine.verify import Scored, Verdict
from goose.sources.candidates import CandidateSource


class OptTreeDrafter:
    """The best n = budget nodes of what `candidates` proposes, grown while a layer adds more than delta to E.

    candidates: where successors and their q come from; the adjacency table when None.
    delta: in expected tokens, between (time of one draft layer) / (time of one target forward) and 1.
    max_depth: most layers below the root (the paper's depth limit).

    A node's score is w, so that a tree's scores sum to E. Raises ValueError for a delta or max_depth out of range.
    """

    overdraft = 0

    def __init__(self, candidates: CandidateSource | None = None, *, delta: float = 0.5, max_depth: int = 10):
        if max_depth < 1 or not delta >= 0:
            raise ValueError(f"max_depth must be >= 1 and delta >= 0, got max_depth={max_depth} and delta={delta}")
        self.candidates = candidates or AdjacencyCandidates()
        self.delta, self.max_depth = delta, max_depth
        self.top_k = self.candidates.top_k
        self._expected_at: dict[int, float] = {}

    @property
    def expected(self) -> list[float]:
        """E of each step's tree so far in this request, the root's 1 included: what q expects the step to emit."""
        return list(self._expected_at.values())

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        self._expected_at = {}
        self.candidates.begin(prompt_ids, prefill)

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        self.candidates.start(context)
        tree = grow(self.candidates, context[-1], budget, self.delta, self.max_depth)
        # By context length: every step emits a token, so a step that is drafted again replaces its own value.
        self._expected_at[len(context)] = float(tree.scores.sum(dtype=np.float64))
        return tree

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        self.candidates.observe(tree, verdict, scored)


def grow(candidates: CandidateSource, root: int, budget: int, delta: float, max_depth: int) -> DraftTree:
    """The paper's algorithm 1: the tree of at most `budget` nodes, root included. Node scores are w, the root's 1.

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
        for parent, row in zip(layer, candidates.expand(tokens, parents, layer), strict=True):
            parent_score = log_w[parent]
            for token, log_q in row:
                score = parent_score + log_q
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
        [ROOT] + [candidates.source] * (len(keep) - 1),
        [exp(log_w[node]) for node in keep],
    )
