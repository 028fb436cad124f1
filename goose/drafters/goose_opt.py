"""goose_opt: the draft tree of greatest expected acceptance, sized by the measured verification cost.

Each step, from the joint evidence of all sources (goose/sources/evidence.py) and the calibrated probabilities of what
it names (goose/drafters/probabilities.py), where the path probability w(v) is their product on the way to node v:

    E(n) = 1 + sum of w over the n - 1 nodes of greatest w       expected emitted tokens of a tree of n nodes

The greatest w first is a tree (a child's w is at most its parent's) and no other tree of n nodes has a greater E, if
the probabilities are right and those along a path independent: GOOSE's spine and branches, without a rule for either.

Size: with t(n) seconds for a step of n nodes, the rate of the step itself, n = argmax E(n) / t(n). `rate: request` has
n = argmax E(n) - r t(n) instead, r the request's tokens a second so far: the best ratio of sums (Dinkelbach, 1967, On
nonlinear fractional programming) if good and bad steps came at random. They do not: a copied passage goes on, so what
a tree leaves over the next one takes at the same rate, and both rules were as fast where measured.
No n beyond the current one can be better once the next w is below r min over m > n of (t(m) - t(n)) / (m - n), r the
best rate so far or the request's, since no later node has more: stopping there is exact for any rising t. Nodes of
w below MIN_PATH_PROB are not drafted, whatever is left of a budget.

Prior art: OPT-Tree (arXiv 2406.17276), the best tree of one draft's probabilities at a fixed n · Sequoia
(arXiv 2402.12374), a static tree of hardware-aware size · CAST (arXiv 2510.26577) and CaDDTree (arXiv 2606.01813),
cost-aware sizes for trained drafts. Here: no draft, several sources, probabilities learnt from what the target accepts.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple
from weakref import ref

import numpy as np

from goose.drafters.probabilities import AcceptanceProbabilities
from goose.engine.contract import NeedsModel, Prefill
from goose.engine.cost import MeasuredCost
from goose.engine.tree import NO_PARENT, ROOT, DraftTree
from goose.engine.verify import Scored, Verdict
from goose.sources.candidates import CandidateSource
from goose.sources.evidence import DraftRows, Evidence, source_of
from goose.sources.single_token_rows import N_ROWS, kept_rows

SIZES = ("budget", "cost")
RATES = ("step", "request")
FIRST_STEPS = 2.0  # how many plain steps the rate starts with
MIN_PATH_PROB = 1e-6  # path probability of the least likely node that is drafted
CONTEXT_STEP = 64  # committed tokens between two looks at the cost


class Grown(NamedTuple):
    """Nodes of greatest path probability, the root first; every prefix is the best tree of its size."""

    tokens: list[int]
    parents: list[int]
    cells: list[int]  # of evidence; the root's is 0 and means nothing
    path_probs: list[float]  # w


class StepSeconds(NamedTuple):
    """Seconds of a step by n = 0 .. budget nodes (0 unread), rising."""

    seconds: list[float]
    slopes: list[float]  # the least that a further node costs, of all larger sizes
    least_slope: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "StepSeconds":
        """From n = 1 on. A size that a larger one undercuts costs what the larger one costs."""
        t = np.array(seconds)
        if not (t > 0).all():
            raise ValueError(f"cost must give every size seconds above 0, got {t.tolist()} for 1 to {len(t)} nodes")
        t = np.minimum.accumulate(t[::-1])[::-1]
        n = np.arange(len(t))
        slopes = [float(((t[i + 1 :] - t[i]) / (n[i + 1 :] - i)).min()) if i + 1 < len(t) else np.inf for i in n]
        return cls([float(t[0]), *t.tolist()], [0.0, *slopes], min(slopes))


class GooseOptDrafter:
    """With no argument it sizes its trees by what a forward costs on the model that it is prepared for.

    evidence, chances: what the sources say, and how probable that is; their switches are theirs.
    size: cost = as many nodes as pay, at most B · budget = B nodes, as far as the sources name them.
    cost: seconds of a forward of n nodes after L committed tokens, cost(n, L); one with a method `prepare` is prepared
        with the drafter. None: measured once for the model's shape and kept (goose/engine/cost.py).
    host_s: seconds of a step that the cost does not hold.
    rate: by which a size is chosen: step = the step's own tokens a second · request = the request's so far.
    fill: a draft model as one more source; it is asked for the rows of `draft_nodes` nodes in at most `draft_depth`
        layers, each layer an even share of the nodes that are left.
    line_end: ids of a line end, tokenizer("\\n").input_ids say: the target is asked once for its single-token rows, in
        under a minute, which are kept as well. None: it drafts without them, or with those that are brought.
    state (the evidence's): cold forgets at every request, warm keeps tables, counts and rate.

    After each draft `expected` holds, for every step of the request so far, E of its tree (root's 1 included).
    """

    overdraft = 0

    def __init__(
        self,
        evidence: Evidence | None = None,
        chances: AcceptanceProbabilities | None = None,
        *,
        size: str = "cost",
        cost: Callable[[int, int], float] | None = None,
        host_s: float = 0.001,
        rate: str = "step",
        fill: CandidateSource | None = None,
        draft_nodes: int = 16,
        draft_depth: int = 6,
        line_end: Sequence[int] | None = None,
    ):
        if size not in SIZES:
            raise ValueError(f"size must be one of {SIZES}, got {size!r}")
        if rate not in RATES:
            raise ValueError(f"rate must be one of {RATES}, got {rate!r}")
        if size == "budget" and cost is not None:
            raise ValueError(f"cost must be left out with size 'budget', which no cost decides; got {cost!r}")
        if not 0 <= host_s < float("inf") or draft_nodes < 1 or draft_depth < 1:
            raise ValueError(
                "host_s must be finite and >= 0, draft_nodes and draft_depth >= 1; "
                f"got {host_s!r}, {draft_nodes!r} and {draft_depth!r}"
            )
        self.evidence, self.chances = evidence or Evidence(), chances or AcceptanceProbabilities()
        self.size, self.host_s, self.rate = size, host_s, rate
        self._per_step = rate == "step"
        self.cost = (cost or MeasuredCost()) if size == "cost" else None
        self.fill, self.draft_nodes, self.draft_depth = fill, draft_nodes, draft_depth
        self.line_end = line_end
        self.top_k = max(self.evidence.top_k, fill.top_k if fill else 0)
        self.expected: list[float] = []
        self._prepared_for: Callable[[], object] = lambda: None
        self._step_seconds_of: dict[tuple[int, int], StepSeconds] = {}
        self._emitted = self._seconds = 0.0

    @property
    def n_single_token_rows(self) -> int:
        return self.evidence.n_single_token_rows

    def set_single_token_rows(self, ids: np.ndarray, scores: np.ndarray) -> None:
        """int64[n, K] and float32[n, K] of the ids 0 .. n - 1."""
        self.evidence.set_single_token_rows(ids, scores)

    @property
    def sized_by(self) -> str | None:
        """What sizes the trees, in words; None where it is the budget, or a function without a label."""
        return getattr(self.cost, "label", None)

    def prepare(self, lm) -> None:
        """Learns what forwards of a TreeLM cost and, with a line end, its single-token rows. Once for a model."""
        if self._prepared_for() is lm:
            return
        if isinstance(self.cost, NeedsModel):
            self.cost.prepare(lm)
        self._step_seconds_of = {}
        if self.line_end:
            rows = kept_rows(lm, self.line_end, self.n_single_token_rows or N_ROWS, self.evidence.top_k)
            self.set_single_token_rows(rows.ids, rows.scores)
        self._prepared_for = ref(lm)

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
        if self.cost is None:
            grown = self._grow(context, budget)
            n, seconds = len(grown.tokens), 0.0
        else:
            cost = self._seconds_by_size(len(context) - 1, budget)
            choice = _SizeChoice(cost, self._first_rate(cost), self._per_step)
            grown = self._grow(context, budget, choice)
            n, seconds = choice.n_best, cost.seconds[choice.n_best]
        self._record(context, grown, n, seconds)
        return DraftTree(
            np.array(grown.tokens[:n], dtype=np.int64),
            np.array(grown.parents[:n], dtype=np.int32),
            np.array([ROOT, *map(source_of, self._cells[1:])], dtype=np.int8),
            np.array(grown.path_probs[:n], dtype=np.float32),
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

    def _grow(self, context: Sequence[int], budget: int, choice: "_SizeChoice | None" = None) -> Grown:
        """The nodes of greatest path probability, one by one; with a choice of size as far as one more may pay."""
        evidence, probabilities = self.evidence, self.chances.of
        tokens, parents, cells, path_probs = [context[-1]], [NO_PARENT], [0], [1.0]
        # A node's state is made when its children are asked for, which those of small probability never are.
        states = {0: evidence.root(context, self._draft_rows(self.fill, context) if self.fill else None)}
        heap: list[tuple[float, int, int, int, int]] = []  # (-w, arrival, parent, token, cell)
        top_scores = [0.0] * (budget - 1)  # w of the best candidates so far, as many as may be drafted: the worst first
        min_path_prob = max(MIN_PATH_PROB, choice.least_that_pays()) if choice and budget > 1 else MIN_PATH_PROB
        node, n_arrived = 0, 0
        while True:
            parent_prob = path_probs[node]
            if top_scores and parent_prob > top_scores[0]:
                if node:
                    states[node] = evidence.child(states[parents[node]], tokens[node])
                min_prob = max(top_scores[0], min_path_prob) / parent_prob
                for token, cell in evidence.candidates(states[node], probabilities, min_prob, node == 0):
                    score = parent_prob * probabilities[cell]
                    if score > top_scores[0]:
                        heapreplace(top_scores, score)
                        n_arrived += 1
                        heappush(heap, (-score, n_arrived, node, token, cell))
            node = len(tokens)
            if not heap or node == budget:
                return Grown(tokens, parents, cells, path_probs)
            negative, _, parent, token, cell = heappop(heap)
            if choice and not choice.takes(node, -negative):
                return Grown(tokens, parents, cells, path_probs)
            tokens.append(token)
            parents.append(parent)
            cells.append(cell)
            path_probs.append(-negative)

    def _first_rate(self, cost: StepSeconds) -> float:
        """Tokens a second that a tree has to beat: a plain step's, or the request's so far."""
        if self._per_step:
            return 1.0 / cost.seconds[1]
        return (FIRST_STEPS + self._emitted) / (FIRST_STEPS * cost.seconds[1] + self._seconds)

    def _record(self, context: Sequence[int], grown: Grown, n: int, seconds: float) -> None:
        """What observe and whoever reads `expected` need of the step's tree, the first n nodes."""
        self._cells, self._step_seconds = grown.cells[:n], seconds
        if len(context) == self._drafted_at:  # the same step asked twice
            self.expected.pop()
        self._drafted_at = len(context)
        self.expected.append(sum(grown.path_probs[:n]))

    def _seconds_by_size(self, n_committed: int, budget: int) -> StepSeconds:
        key = n_committed // CONTEXT_STEP, budget
        if key not in self._step_seconds_of:
            assert self.cost is not None  # size is "cost"
            context = key[0] * CONTEXT_STEP + CONTEXT_STEP // 2
            self._step_seconds_of[key] = StepSeconds.of(
                [self.cost(n, context) + self.host_s for n in range(1, budget + 1)]
            )
        return self._step_seconds_of[key]

    def _draft_rows(self, fill: CandidateSource, context: Sequence[int]) -> DraftRows:
        """The draft's rows, root's first, grown layer by layer along its own greatest path probabilities."""
        table = self.evidence.table
        fill.start(context)
        tokens, parents, log_w = [context[-1]], [NO_PARENT], [0.0]
        rows: DraftRows = []
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


class _SizeChoice:
    """The size that pays best so far, as nodes are added in order of falling path probability."""

    __slots__ = ("_best_value", "_expected", "_least_slope", "_per_step", "_rate", "_seconds", "_slopes", "n_best")

    def __init__(self, cost: StepSeconds, rate: float, per_step: bool):
        self._seconds, self._slopes, self._least_slope = cost
        self._rate, self._per_step = rate, per_step
        self._expected, self._best_value, self.n_best = 1.0, 1.0 - rate * cost.seconds[1], 1

    def least_that_pays(self) -> float:
        """Path probability below which no node can pay, however many there are."""
        return self._rate * self._least_slope

    def takes(self, n: int, path_prob: float) -> bool:
        """Adds a node to n others; False, without it, when neither it nor any after it can pay."""
        rate = self._rate
        if path_prob < rate * self._slopes[n]:
            return False
        n += 1
        self._expected = expected = self._expected + path_prob
        if self._per_step:
            if expected / self._seconds[n] >= rate:
                self._rate, self.n_best = expected / self._seconds[n], n
        elif expected - rate * self._seconds[n] >= self._best_value:
            self._best_value, self.n_best = expected - rate * self._seconds[n], n
        return True
