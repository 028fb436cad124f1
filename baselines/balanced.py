"""Balanced k-ary trees: GOOSE's isotropic control (arXiv 2604.02047, section 5.3) and the same shape over both sources.

Every node gets the same number of children, breadth first, whatever their scores. The paper's control (iso_k) has no
context tokens, so "GOOSE against iso_k" changes the shape and drops a source at once; iso_mixed changes only the shape.
Knows ids and scores only, and nothing of a spine.
"""

from collections import deque
from collections.abc import Sequence

from baselines.adjacency import learn_step
from goose.drafters.goose import BUDGET_MODES
from goose.engine.contract import Prefill
from goose.engine.tree import ADJACENCY, CONTEXT, DraftTree, TreeBuilder, chain
from goose.engine.verify import Scored, Verdict
from goose.sources.context import ContextMatcher
from goose.sources.transition import AdjacencyTable

Child = tuple[int, int, float]  # token, source, score


class BalancedDrafter:
    """k children a node, breadth first, depth <= max_depth, scores >= min_score, until the budget is used.

    budget_mode: strict = at most B nodes · elastic = the reference's control, which reads GOOSE's context matches for
        their confidence c alone and enlarges the budget to B + int((max_chain - B) c); where the table knows nothing of
        the root it verifies the matched chain.
    max_chain: most nodes that confidence can enlarge the budget to; elastic only.

    A node's score is the table's. Raises ValueError for an unknown budget_mode and for values out of range.
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
        if k < 1 or not max_depth >= 1 or not max_chain >= 1 or not 0 <= min_score <= 1:
            raise ValueError(
                "k, max_depth and max_chain must be >= 1 and min_score lie in [0, 1], "
                f"got k={k}, max_depth={max_depth}, max_chain={max_chain} and min_score={min_score}"
            )
        if budget_mode not in BUDGET_MODES:
            raise ValueError(f"budget_mode must be one of {BUDGET_MODES}, got {budget_mode!r}")
        self.k, self.max_depth, self.min_score, self.max_chain = k, max_depth, min_score, max_chain
        self.table = table or AdjacencyTable()
        self.context = ContextMatcher() if budget_mode == "elastic" else None
        self.top_k = self.table.top_k
        self.overdraft = max_chain if budget_mode == "elastic" else 0
        self._n_suffix = 2  # tokens that the children of a node depend on: the table's bigram

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
        return self._grow_breadth_first(context, budget)

    def _grow_breadth_first(self, context: Sequence[int], budget: int) -> DraftTree:
        builder = TreeBuilder(context[-1], budget)
        # Nodes above the depth limit, each with the newest tokens of the context and of the path down to it.
        frontier = deque([(0, tuple(context[-self._n_suffix :]))])
        while frontier and builder.n_nodes < budget:
            node, suffix = frontier.popleft()
            for token, source, score in self._children(suffix):
                child = builder.add(node, token, source, score)
                if child is None:
                    break
                if builder.depths[child] < self.max_depth:
                    frontier.append((child, (*suffix, token)[-self._n_suffix :]))
        return builder.build()

    def _children(self, suffix: tuple[int, ...]) -> list[Child]:
        """At most k, best first."""
        ids, scores = self.table.successors(suffix[-2], suffix[-1])
        n = self._n_above_min(scores[: self.k])
        return [(ids[i], ADJACENCY, scores[i]) for i in range(n)]

    def _n_above_min(self, scores: list[float]) -> int:
        return next((i for i, score in enumerate(scores) if score < self.min_score), len(scores))

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        learn_step(self.table, tree, self._previous, scored)


class MixedBalancedDrafter(BalancedDrafter):
    """iso_mixed: the balanced shape with GOOSE's two sources; the fair control for its topology.

    A node's children are the token that followed its own suffix (the context and the path down to it) in the context,
    when there is one, then the table's successors until there are k. The context's token has no score of its own: it is
    1.0, and min_score applies to the table's only.
    """

    context: ContextMatcher  # always there, unlike the control's

    def __init__(
        self,
        k: int = 3,
        context: ContextMatcher | None = None,
        table: AdjacencyTable | None = None,
        *,
        max_depth: int = 6,
        min_score: float = 0.01,
    ):
        super().__init__(k, table, max_depth=max_depth, min_score=min_score)
        self.context = context or ContextMatcher()
        self._n_suffix = max(2, self.context.lengths[0])

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        self._previous = context[-2]
        self.context.extend(context)
        return self._grow_breadth_first(context, budget)

    def _children(self, suffix: tuple[int, ...]) -> list[Child]:
        matched = self.context.match(suffix)[:1]
        children = [(token, CONTEXT, 1.0) for token in matched]
        ids, scores = self.table.successors(suffix[-2], suffix[-1])
        n = self._n_above_min(scores)
        children += [(ids[i], ADJACENCY, scores[i]) for i in range(n) if ids[i] not in matched]
        return children[: self.k]
