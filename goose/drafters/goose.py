"""The GOOSE drafter: context matches as a deep spine, adjacency successors as branches off it.

Source: GOOSE, arXiv 2604.02047, section 4 and algorithm 1; constants of its table 5. Where the paper's prose and its
authors' code differ, the default follows the code and a switch gives the prose. Knows ids and scores only.

Symbols: B node budget (root included) · c confidence in the chain · r share of the budget for the spine ·
rho share of the branch budget spent on spine nodes, the rest at the root · D depth at which branches stop growing ·
a_s, a_t acceptance probability of context and of adjacency nodes when their turn comes (goose/drafters/allocation.py).
"""

from collections import deque
from collections.abc import Sequence
from math import ceil

import numpy as np

from goose.drafters.allocation import harmonic_allocation, linear_allocation, optimal_allocation
from goose.engine.contract import Prefill
from goose.engine.tree import ADJACENCY, CONTEXT, SOURCE_NAMES, DraftTree, TreeBuilder, chain, single_node
from goose.engine.verify import Scored, Verdict
from goose.sources.context import ContextMatcher
from goose.sources.transition import AdjacencyTable

EXTENSION_CONFIDENCE = 0.6  # above it a chain is grown by further matching
BUDGET_MODES = ("strict", "elastic")
BYPASSES = ("saturate", "linear", "off")
ALLOCATIONS = ("harmonic", "linear", "optimal")

# Where a_s and a_t start at every request, as nodes (accepted, tried): Beta(1, 1) and Beta(1, 3), means 1/2 and 1/4.
# So neither is ever 0 or 1, and a few steps outweigh them.
PRIOR_NODES = {CONTEXT: (1, 2), ADJACENCY: (1, 4)}


class GooseDrafter:
    """A spine tree each step (section 4, algorithm 1).

    context, table: the two sources, GOOSE's own when None; use_context, use_adjacency switch one off.
    budget_mode: strict = never more than B nodes (default: methods are compared at equal B) ·
        elastic = the reference's B + int((max_chain - B) c) tokens, up to max_chain + 1 nodes.
    bypass: saturate (the reference): a confident chain takes the whole budget · linear (the paper's prose): a long,
        agreed match is verified as a chain alone · off: c = 0 always.
    allocation: how spine branches are shared out among the spine nodes: harmonic (the reference) · linear, optimal
        (proposition 2 and the exact optimum, at this request's own a_s and a_t so far).
    rho: 0 leaves the spine without branches. max_chain: limit of a chain grown by repeated matching.
    max_depth: D. min_score: least table score of a branch node.
    ema_alpha, ema_initial, spine_tiers: the running spine acceptance that picks r0: tiers for < 0.2, < 0.4, otherwise.

    A branch node's score is the table's, a spine node's 1. Raises ValueError for a value outside its range and for a
    source that is given and switched off.
    """

    def __init__(
        self,
        context: ContextMatcher | None = None,
        table: AdjacencyTable | None = None,
        *,
        use_context: bool = True,
        use_adjacency: bool = True,
        budget_mode: str = "strict",
        bypass: str = "saturate",
        allocation: str = "harmonic",
        rho: float = 0.5,
        max_depth: int = 6,
        min_score: float = 0.01,
        max_chain: int = 100,
        ema_alpha: float = 0.3,
        ema_initial: float = 0.5,
        spine_tiers: Sequence[float] = (0.15, 0.30, 0.50),
    ):
        if budget_mode not in BUDGET_MODES:
            raise ValueError(f"budget_mode must be one of {BUDGET_MODES}, got {budget_mode!r}")
        if bypass not in BYPASSES:
            raise ValueError(f"bypass must be one of {BYPASSES}, got {bypass!r}")
        if allocation not in ALLOCATIONS:
            raise ValueError(f"allocation must be one of {ALLOCATIONS}, got {allocation!r}")
        shares = {"rho": rho, "min_score": min_score, "ema_alpha": ema_alpha, "ema_initial": ema_initial}
        for name, share in {**shares, **{f"spine_tiers[{i}]": tier for i, tier in enumerate(spine_tiers)}}.items():
            if not 0 <= share <= 1:
                raise ValueError(f"{name} must lie in [0, 1], got {share!r}")
        if len(spine_tiers) != 3 or not max_depth >= 1 or not max_chain >= 1:
            raise ValueError(
                "spine_tiers must hold 3 shares, max_depth and max_chain be >= 1; "
                f"got {list(spine_tiers)}, {max_depth!r} and {max_chain!r}"
            )
        if not (use_context or use_adjacency):
            raise ValueError("use_context and use_adjacency are both off: nothing is left to draft from; leave one on")
        if (context is not None and not use_context) or (table is not None and not use_adjacency):
            raise ValueError("a source was given and switched off; leave it out, or leave its use_ switch on")
        self.context = (context or ContextMatcher()) if use_context else None
        self.table = (table or AdjacencyTable()) if use_adjacency else None
        self.budget_mode, self.bypass, self.allocation, self.rho = budget_mode, bypass, allocation, rho
        self.max_depth, self.min_score, self.max_chain = max_depth, min_score, max_chain
        self.ema_alpha, self.ema_initial, self.spine_tiers = ema_alpha, ema_initial, tuple(spine_tiers)
        self.ema = ema_initial
        self.top_k = self.table.top_k if self.table else 0
        # Elastic: budget B + int((max_chain - B) c) and a spine that does not count the root: at most max_chain + 1.
        self.overdraft = 0 if budget_mode == "strict" else max_chain

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        self.ema = self.ema_initial
        self._n_accepted, self._n_tried = np.zeros((2, len(SOURCE_NAMES)), dtype=np.int64)
        for source, counts in PRIOR_NODES.items():
            self._n_accepted[source], self._n_tried[source] = counts
        self._previous: int | None = prompt_ids[-1]
        if self.context:
            self.context.reset()
        if self.table:
            self.table.begin(prompt_ids, prefill.top_k)

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        root, previous = context[-1], context[-2] if len(context) > 1 else None
        spine_tokens: list[int] = []
        matcher = self.context
        if matcher:
            matcher.extend(context)
            spine_tokens = matcher.match(context)
        self._previous = previous
        # No adjacency data at the root: the chain alone, as the reference does: one match, no extension, no EMA.
        self._tree_route = self.table is not None and bool(self.table.successors(previous, root)[0])
        if not self._tree_route:
            return chain(root, spine_tokens, CONTEXT, budget)
        c = 0.0
        if matcher and spine_tokens and self.bypass != "off":
            c = matcher.confidence(context, spine_tokens)
            if c > EXTENSION_CONFIDENCE:
                spine_tokens = self._extend_chain(matcher, context, spine_tokens, c)
        total = budget + int(c * max(0, self.max_chain - budget)) if self.budget_mode == "elastic" else budget
        if matcher and self.bypass == "linear" and c == 1.0 and len(spine_tokens) >= matcher.long_match:
            return chain(root, spine_tokens, CONTEXT, total)
        return self._spine_tree(root, previous, spine_tokens, c, total)

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        if self._tree_route:
            sources = tree.sources.tolist()
            n_spine = sources.count(CONTEXT)
            if n_spine:
                rate = sum(sources[node] == CONTEXT for node in verdict.path) / n_spine
                self.ema = self.ema_alpha * rate + (1 - self.ema_alpha) * self.ema
            if self.allocation != "harmonic":
                n_sources = len(SOURCE_NAMES)
                self._n_accepted += np.bincount(tree.sources[verdict.path[1:]], minlength=n_sources)
                self._n_tried += np.bincount(tree.sources[tried_nodes(tree, verdict.path)], minlength=n_sources)
        if self.table is not None:
            # The reference writes the root's own bigram after a chain or a plain step, not after a tree.
            root_previous = None if self._tree_route and tree.n_nodes > 1 else self._previous
            self.table.learn_tree(tree, root_previous, scored)

    def _extend_chain(
        self, matcher: ContextMatcher, context: Sequence[int], spine_tokens: list[int], c: float
    ) -> list[int]:
        """The chain grown by matching again from its own end until int(max_chain c) tokens or no match is left.

        At c = 1 it also ends after the first further proposal that does not itself earn c = 1.
        """
        longest = matcher.lengths[0]
        drafted = [*context[-longest:], *spine_tokens]
        n_kept = len(drafted) - len(spine_tokens)
        limit = n_kept + int(self.max_chain * c)
        while len(drafted) < limit:
            further = matcher.match(drafted)
            if not further:
                break
            agreed = c < 1.0 or matcher.confidence(drafted, further) == 1.0
            drafted += further
            if not agreed:
                break
        return drafted[n_kept:]

    def _spine_tree(self, root: int, previous: int | None, spine_tokens: list[int], c: float, total: int) -> DraftTree:
        """Algorithm 1: the spine, branches at the root and along the spine, breadth-first growth of the branches."""
        r0 = spine_share(self.ema, self.spine_tiers)
        n_spine = min(len(spine_tokens), int(total * (r0 + c * (1 - r0))))
        if self.budget_mode == "strict":
            n_spine = min(n_spine, total - 1)
        # The reference does not charge the root to a spine that takes the whole budget: one node more.
        builder = TreeBuilder(root, total + (self.budget_mode == "elastic"))
        spine = builder.add_chain(0, spine_tokens[:n_spine], CONTEXT)

        n_branches = total - 1 - n_spine
        on_spine = 0
        if spine and n_branches > 0 and self.rho > 0:  # Deviation: the reference keeps one spine branch at rho = 0
            on_spine = max(1, int(n_branches * self.rho))
        frontier: deque[tuple[int, float]] = deque()  # branch nodes above the depth limit, with their scores
        self._branch(builder, 0, previous, n_branches - on_spine, spine_tokens[:1] if spine else [], frontier)
        if on_spine:
            for i, width in enumerate(self._spine_widths(on_spine, len(spine))):
                parent_token = builder.tokens[builder.parents[spine[i]]]
                self._branch(builder, spine[i], parent_token, width, spine_tokens[i + 1 : n_spine][:1], frontier)
        self._grow(builder, frontier, total)
        return builder.build() if builder.n_nodes > 1 else single_node(root)

    def _spine_widths(self, n_branches: int, n_spine: int) -> list[int]:
        """How many branches each of the n_spine >= 1 spine nodes gets, top down."""
        if self.allocation == "harmonic":
            return harmonic_allocation(n_branches, n_spine)
        allocate = linear_allocation if self.allocation == "linear" else optimal_allocation
        a_s, a_t = (float(self._n_accepted[source] / self._n_tried[source]) for source in (CONTEXT, ADJACENCY))
        # The root's share is rho's. Below it, spine nodes 1..s are depths 0..s-1 of a spine of s - 1 nodes.
        return allocate(n_spine - 1, n_branches, a_s, a_t)

    def _branch(
        self,
        builder: TreeBuilder,
        node: int,
        previous: int | None,
        width: int,
        skip: list[int],
        frontier: deque[tuple[int, float]],
    ) -> None:
        """Up to `width` adjacency successors of `node` as its children, best first, those in `skip` left out."""
        if width <= 0:
            return
        assert self.table is not None  # a spine tree is drafted only where the table knows the root
        ids, scores = self.table.successors(previous, builder.tokens[node])
        for token, score in zip(ids, scores, strict=True):
            if width == 0 or score < self.min_score:
                return
            if token in skip:
                continue
            child = builder.add(node, token, ADJACENCY, score)
            width -= 1
            if child is not None and builder.depths[child] < self.max_depth:
                frontier.append((child, score))

    def _grow(self, builder: TreeBuilder, frontier: deque[tuple[int, float]], total: int) -> None:
        """Breadth-first below the branches: width follows the score a branch was drafted at and narrows with depth."""
        assert self.table is not None
        remaining = total - builder.n_nodes
        while frontier and remaining > 0:
            node, score = frontier.popleft()
            depth = builder.depths[node]
            ids, scores = self.table.successors(builder.tokens[builder.parents[node]], builder.tokens[node])
            width = min(max(1, min(len(ids), ceil(remaining * score))), max(1, self.table.top_k // depth))
            for token, child_score in zip(ids[:width], scores[:width], strict=True):
                if remaining <= 0 or child_score < self.min_score:
                    break
                child = builder.add(node, token, ADJACENCY, child_score)
                remaining -= 1
                if child is not None and depth + 1 < self.max_depth:
                    frontier.append((child, child_score))


def spine_share(ema: float, tiers: Sequence[float]) -> float:
    """r0: the spine's share of the budget by running spine acceptance: tiers for < 0.2, < 0.4 and above."""
    low, middle, high = tiers
    return low if ema < 0.2 else middle if ema < 0.4 else high


def tried_nodes(tree: DraftTree, path: Sequence[int]) -> np.ndarray:
    """bool[n]: the nodes whose turn came on the walk: their parent was accepted and no sibling before them was.

    a_s and a_t are accepted / tried nodes. The tables' accepted / tested also counts the siblings after the accepted
    one, most of all the branches of every spine node that the walk went past.
    """
    last_tried = np.full(tree.n_nodes, -1)  # per parent
    last_tried[path[:-1]] = path[1:]
    last_tried[path[-1]] = tree.n_nodes
    return np.arange(tree.n_nodes) <= np.where(tree.parents < 0, -1, last_tried[tree.parents])
