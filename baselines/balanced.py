"""Balanced k-ary trees over the adjacency table: GOOSE's isotropic control (arXiv 2604.02047, section 5.3).

Every node gets the same number of children, breadth first, whatever their scores. No context tokens, so "GOOSE against
iso_k" changes the shape and drops a source at once.
"""

from collections import deque
from collections.abc import Sequence

from goose.drafter import BUDGET_MODES
from goose.engine.decode import Prefill
from goose.engine.tree import ADJACENCY, CONTEXT, DraftTree, TreeBuilder, chain
from goose.engine.verify import Scored, Verdict
from goose.sources.context import ContextMatcher
from goose.sources.transition import AdjacencyTable


class BalancedDrafter:
    """k children a node, breadth first, depth <= max_depth, scores >= min_score, until the budget is used.

    budget_mode: strict = at most B nodes · elastic = the reference's control, which reads GOOSE's context matches for
        their confidence c alone and enlarges the budget to B + int((max_chain - B) c); where the table knows nothing of
        the root it verifies the matched chain.
    """

    def __init__(
        self,
        k: int = 3,
        table: AdjacencyTable | None = None,
        *,
        max_depth: int = 6,
        min_score: float = 0.01,
        budget_mode: str = "strict",
        max_chain: int = 100,
    ):
        if k < 1:
            raise ValueError(f"k must be >= 1, got {k}")
        if budget_mode not in BUDGET_MODES:
            raise ValueError(f"budget_mode must be one of {BUDGET_MODES}, got {budget_mode!r}")
        self.k, self.max_depth, self.min_score, self.max_chain = k, max_depth, min_score, max_chain
        self.table = table or AdjacencyTable()
        self.context = ContextMatcher() if budget_mode == "elastic" else None
        self.top_k = self.table.top_k
        self.overdraft = max_chain if budget_mode == "elastic" else 0

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        self.table.begin(prompt_ids, prefill.top_k)
        if self.context:
            self.context.reset()

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        root, previous = context[-1], context[-2]
        self._previous = previous
        if self.context:
            self.context.extend(context)
            spine_tokens = self.context.match(context)
            if not self.table.successors(previous, root)[0]:
                return chain(root, spine_tokens, CONTEXT, budget)
            budget += int(self.context.confidence(context, spine_tokens) * max(0, self.max_chain - budget))
        builder = TreeBuilder(root, budget)
        frontier = deque([(0, previous)])
        while frontier and builder.n_nodes < budget:
            node, before = frontier.popleft()
            token = builder.tokens[node]
            ids, scores = self.table.successors(before, token)
            for child_token, score in zip(ids[: self.k], scores[: self.k], strict=True):
                if score < self.min_score:
                    break
                child = builder.add(node, child_token, ADJACENCY, score)
                if child is None:
                    break
                if builder.depths[child] < self.max_depth:
                    frontier.append((child, token))
        return builder.build()

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        # Like GOOSE's, the table learns the root's own bigram after a plain step only.
        self.table.learn_tree(tree, self._previous if tree.n_nodes == 1 else None, scored)
