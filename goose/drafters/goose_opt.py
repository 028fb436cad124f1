"""goose_opt: the tree of greatest expected acceptance, exactly as large as pays on this hardware.

Each step, from the joint evidence of all sources (goose/sources/evidence.py) and its calibrated chances
(goose/drafters/probabilities.py), where the path probability w(v) is the product of the chances on the way to node v:

    E(n) = 1 + sum of w over the n - 1 nodes of greatest w       expected emitted tokens of a tree of n nodes

The greatest w first is a tree (a child's w is at most its parent's) and no other tree of n nodes has a greater E, if
chances are right and those along a path independent: GOOSE's spine and branches, without a rule for either.

Size: with t(n) seconds for a step of n nodes, the rate of the step itself, n = argmax E(n) / t(n). `rate: request` has
n = argmax E(n) - r t(n) instead, r the request's tokens a second so far: the best ratio of sums (Dinkelbach, 1967, On
nonlinear fractional programming) if good and bad steps came at random. They do not: a copied passage goes on, so what
a tree leaves over the next one takes at the same rate, and both rules were as fast where measured.
No n beyond the current one can be better once the next w is below r min over m > n of (t(m) - t(n)) / (m - n), r the
best rate so far or the request's, since no later node has more: stopping there is exact for any rising t. Nodes of
w below LEAST are not drafted, whatever is left of a budget.

Prior art: OPT-Tree (arXiv 2406.17276), the best tree of one draft's probabilities at a fixed n · Sequoia
(arXiv 2402.12374), a static tree of hardware-aware size · CAST (arXiv 2510.26577) and CaDDTree (arXiv 2606.01813),
cost-aware sizes for trained drafts. Here: no draft, several sources, chances learnt from what the target accepts.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush, heapreplace

import numpy as np

from goose.drafters.probabilities import AcceptanceProbabilities
from goose.engine.contract import Prefill
from goose.engine.tree import NO_PARENT, ROOT, DraftTree
from goose.engine.verify import Scored, Verdict
from goose.sources.candidates import CandidateSource
from goose.sources.evidence import DraftRows, Evidence, source_of

SIZES = ("budget", "cost")
RATES = ("step", "request")
FIRST_STEPS = 2.0  # how many plain steps the rate starts with
LEAST = 1e-6  # path probability of the least likely node that is drafted
CONTEXT_STEP = 64  # committed tokens between two looks at the cost curve


class GooseOptDrafter:
    """size: budget = B nodes, as far as the sources name them · cost = as many as pay, at most B, by `cost`: seconds of
        a forward of n nodes behind L tokens, cost(n, L); host_s: seconds of a step that the curve does not hold.
    rate: by which a size is chosen: step = the step's own tokens a second · request = the request's so far.
    evidence, chances: their switches are theirs. fill: a draft model as one more source; it is asked for the rows of
        `draft_nodes` nodes in at most `draft_depth` layers, each layer an even share of the nodes that are left.
    state: cold forgets at every request, warm keeps tables, counts and rate.

    After each draft `expected` holds, for every step of the request so far, E of its tree (root's 1 included).
    """

    overdraft = 0

    def __init__(
        self,
        evidence: Evidence | None = None,
        chances: AcceptanceProbabilities | None = None,
        *,
        size: str = "budget",
        cost: Callable[[int, int], float] | None = None,
        host_s: float = 0.001,
        rate: str = "step",
        fill: CandidateSource | None = None,
        draft_nodes: int = 16,
        draft_depth: int = 6,
    ):
        if size not in SIZES:
            raise ValueError(f"size must be one of {SIZES}, got {size!r}")
        if rate not in RATES:
            raise ValueError(f"rate must be one of {RATES}, got {rate!r}")
        if (size == "cost") != (cost is not None):
            raise ValueError(f"cost must be given with size 'cost', and with it alone; got {size!r} and {cost!r}")
        if not 0 <= host_s < float("inf") or draft_nodes < 1 or draft_depth < 1:
            raise ValueError(
                "host_s must be finite and >= 0, draft_nodes and draft_depth >= 1; "
                f"got {host_s!r}, {draft_nodes!r} and {draft_depth!r}"
            )
        self.evidence, self.chances = evidence or Evidence(), chances or AcceptanceProbabilities()
        self.size, self.cost, self.host_s, self.rate = size, cost, host_s, rate
        self.fill, self.draft_nodes, self.draft_depth = fill, draft_nodes, draft_depth
        self.top_k = max(self.evidence.top_k, fill.top_k if fill else 0)
        self.expected: list[float] = []
        self._curves: dict[tuple[int, int], tuple[list[float], list[float]]] = {}
        self._emitted = self._seconds = 0.0

    @property
    def n_alone(self) -> int:
        return self.evidence.n_alone

    def know_alone(self, ids: np.ndarray, scores: np.ndarray) -> None:
        """Rows of single tokens, as Evidence wants them."""
        self.evidence.know_alone(ids, scores)

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        self.evidence.begin(prompt_ids, prefill)
        if self.fill:
            self.fill.begin(prompt_ids, prefill)
        if self.evidence.state == "cold":
            self.chances.reset()
            self._emitted = self._seconds = 0.0
        self.expected = []
        self._drafted_at = 0

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        evidence, chances = self.evidence, self.chances.of
        seconds, slopes = self._curve(len(context) - 1, budget) if self.cost else ([0.0] * (budget + 1), None)
        rate = (FIRST_STEPS + self._emitted) / (FIRST_STEPS * seconds[1] + self._seconds) if self.cost else 0.0
        per_step = self.rate == "step"
        if per_step and self.cost:
            rate = 1.0 / seconds[1]
        best_value, n_best = 1.0 - rate * seconds[1], 1

        tokens, parents, cells, w = [context[-1]], [NO_PARENT], [0], [1.0]
        places = [evidence.root(context, self._draft_rows(context) if self.fill else None)]
        heap: list[tuple[float, int, int, int, int]] = []  # (-w, arrival, parent, token, cell)
        free = [0.0] * (budget - 1)  # w of the best candidates so far, as many as there are places: the worst first
        least = max(LEAST, rate * min(slopes[1:])) if self.cost and budget > 1 else LEAST
        node, n_arrived, expected = 0, 0, 1.0
        while True:
            above = w[node]
            if free and above > free[0]:
                bar = max(free[0], least) / above
                for token, cell in evidence.candidates(places[node], chances, bar, node == 0):
                    score = above * chances[cell]
                    if score > free[0]:
                        heapreplace(free, score)
                        n_arrived += 1
                        heappush(heap, (-score, n_arrived, node, token, cell))
            node = len(tokens)
            if not heap or node == budget:
                break
            negative, _, parent, token, cell = heappop(heap)
            if self.cost and -negative < rate * slopes[node]:
                break
            tokens.append(token)
            parents.append(parent)
            cells.append(cell)
            w.append(-negative)
            places.append(evidence.child(places[parent], token))
            expected -= negative
            if self.cost:
                if per_step:
                    if expected / seconds[node + 1] >= rate:
                        rate, n_best = expected / seconds[node + 1], node + 1
                elif expected - rate * seconds[node + 1] >= best_value:
                    best_value, n_best = expected - rate * seconds[node + 1], node + 1

        n = n_best if self.cost else len(tokens)
        self._cells, self._step_seconds = cells[:n], seconds[n]
        if len(context) == self._drafted_at:  # the same step asked twice
            self.expected.pop()
        self._drafted_at = len(context)
        self.expected.append(sum(w[:n]))
        return DraftTree(
            np.array(tokens[:n], dtype=np.int64),
            np.array(parents[:n], dtype=np.int32),
            np.array([ROOT, *map(source_of, cells[1:n])], dtype=np.int8),
            np.array(w[:n], dtype=np.float32),
        )

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        self.evidence.learn(tree, verdict, scored)
        if self.fill:
            self.fill.observe(tree, verdict, scored)
        self._emitted += len(verdict.path)
        self._seconds += self._step_seconds
        if tree.n_nodes == len(self._cells):  # else it was cut at the model's last position
            path = set(verdict.path)
            tested = [node for node, parent in enumerate(tree.parents.tolist()) if parent in path]
            self.chances.learn([self._cells[node] for node in tested], [node in path for node in tested])

    def _curve(self, n_committed: int, budget: int) -> tuple[list[float], list[float]]:
        """(t, slope) of n = 0 .. budget nodes (0 unread): seconds of a step, and the least a further node costs.

        t is made to rise: a size that a larger one undercuts costs what the larger one costs.
        """
        key = n_committed // CONTEXT_STEP, budget
        if key not in self._curves:
            context = key[0] * CONTEXT_STEP + CONTEXT_STEP // 2
            t = np.array([self.cost(n, context) + self.host_s for n in range(1, budget + 1)])
            if not (t > 0).all():
                raise ValueError(f"cost must give every size seconds above 0, got {t.tolist()} for 1 to {budget} nodes")
            t = np.minimum.accumulate(t[::-1])[::-1]
            n = np.arange(budget)
            slopes = [float(((t[i + 1 :] - t[i]) / (n[i + 1 :] - i)).min()) if i + 1 < budget else np.inf for i in n]
            self._curves[key] = [float(t[0]), *t.tolist()], [0.0, *slopes]
        return self._curves[key]

    def _draft_rows(self, context: Sequence[int]) -> DraftRows:
        """The draft's rows, root's first, grown layer by layer along its own greatest path probabilities."""
        fill, table = self.fill, self.evidence.table
        fill.start(context)
        tokens, parents, log_w, rows = [context[-1]], [NO_PARENT], [0.0], []
        layer = [0]
        for n_layers_left in range(self.draft_depth, 0, -1):
            below: list[tuple[float, int, int]] = []
            for node, row in zip(layer, fill.expand(tokens, parents, layer), strict=True):
                successors = list(row)
                levels = table.levels(np.exp([log_q for _, log_q in successors])).tolist()
                rows.append(({}, [token for token, _ in successors], levels))
                below += [(log_w[node] + log_q, node, token) for token, log_q in successors]
            n_left = self.draft_nodes - len(tokens)
            layer = []
            for score, node, token in sorted(below, reverse=True)[: -(-n_left // n_layers_left)]:
                rows[node][0][token] = len(tokens) + 1
                layer.append(len(tokens))
                tokens.append(token)
                parents.append(node)
                log_w.append(score)
            if not layer:
                break
        return rows
