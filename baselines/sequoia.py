"""Sequoia: the best static tree for a measured acceptance vector, found offline, filled each step.

Source: Sequoia, arXiv 2402.12374, section 4.1. Symbols: p_b probability that the b-th child of a node is the accepted
one (b from 1; the same at every depth) · m nodes, the root's included · l levels, the root's included · T[m, l, b] best
expected emitted tokens of a tree of m nodes, at most l levels and exactly b children of the root. The program knows p
alone, no tokens; the drafter fills its shape with whatever a CandidateSource proposes and never changes the shape.

Deviation: the paper verifies by sampling children without replacement. Here all methods share one walk: a child is
accepted when it is the target's own token, and p is measured that way.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from baselines.adjacency import AdjacencyCandidates
from goose.engine.contract import Prefill
from goose.engine.tree import NO_PARENT, ROOT, DraftTree
from goose.engine.verify import Scored, Verdict
from goose.sources.candidates import CandidateSource

SIZES = ("budget", "cost")


@dataclass(frozen=True)
class Shape:
    """A tree without tokens, breadth first: node i is child number ranks[i] (from 0) of parents[i]."""

    parents: list[int]  # NO_PARENT for the root
    ranks: list[int]  # 0 for the root, and unread there
    children: list[range]  # nodes, by rank
    expected: float  # T: expected emitted tokens a step if p holds


@dataclass(frozen=True)
class Program:
    """The solved program for all sizes m <= N and level limits l <= L. Dimension letters: K = len(p)."""

    best: np.ndarray  # float64[L + 1, N + 1]: max over b of T[m, l, b]; -inf where no such tree exists
    arity: np.ndarray  # int32[L + 1, N + 1]: that b
    kept: np.ndarray  # int32[L + 1, K + 1, N + 1]: nodes that stay with the root and its first b - 1 children

    def shape(self, n_nodes: int, max_levels: int) -> Shape:
        """The best tree of n_nodes nodes, or of as many as p's arity and max_levels leave room for."""
        n_nodes = int(np.flatnonzero(np.isfinite(self.best[max_levels, : n_nodes + 1]))[-1])
        parents, ranks = [NO_PARENT], [0]
        children: list[range] = []
        pending = deque([(n_nodes, max_levels)])  # nodes and levels of each subtree, in the order of their roots
        while pending:
            m, levels = pending.popleft()
            sizes = []
            for b in range(int(self.arity[levels, m]), 0, -1):
                rest = int(self.kept[levels, b, m])
                sizes.append(m - rest)
                m = rest
            pending += [(size, levels - 1) for size in reversed(sizes)]
            parents += [len(children)] * len(sizes)
            ranks += range(len(sizes))
            children.append(range(len(parents) - len(sizes), len(parents)))
        return Shape(parents, ranks, children, float(self.best[max_levels, n_nodes]))


def solve(p: Sequence[float], n_nodes: int, max_levels: int) -> Program:
    """T[m, l, b] = max over y of T[y, l, b-1] + p_b max_b' T[m-y, l-1, b'], T[1, l, 0] = 1, for all m and l at once.

    Equal values: fewer children, and more nodes on the earlier ones. Raises ValueError for a p that is no list of
    probabilities, n_nodes < 1 or max_levels < 1.
    """
    acceptance = np.asarray(p, dtype=np.float64)
    if acceptance.ndim != 1 or not len(p) or not (acceptance >= 0).all() or acceptance.sum() > 1 + 1e-3:  # rounded
        raise ValueError(
            f"acceptance must list probabilities of exclusive events, each >= 0, sum <= 1; got {acceptance.tolist()}"
        )
    if n_nodes < 1 or max_levels < 1:
        raise ValueError(f"a tree must have nodes >= 1 and levels >= 1, got {n_nodes} nodes and {max_levels} levels")
    size = n_nodes + 1
    best = np.full((max_levels + 1, size), -np.inf)
    arity = np.zeros((max_levels + 1, size), dtype=np.int32)
    kept = np.zeros((max_levels + 1, len(p) + 1, size), dtype=np.int32)
    root_alone = np.full(size, -np.inf)
    root_alone[1] = 1.0
    rows = np.arange(size)
    for level in range(1, max_levels + 1):
        value = root_alone  # T[:, level, b], from b = 0 up
        best[level] = value
        below = best[level - 1]
        feasible = np.isfinite(below)
        for b in range(1, len(p) + 1 if level > 1 else 1):
            child = np.full(size, -np.inf)
            child[feasible] = acceptance[b - 1] * below[feasible]  # elsewhere 0 * -inf would be no number
            # gain[m, j] = child[m - y] with y = n_nodes - j, so that the first maximum is the largest y.
            gain = sliding_window_view(np.concatenate([np.full(n_nodes, -np.inf), child]), size)
            total = gain + value[::-1]
            at = total.argmax(axis=1)
            kept[level, b] = n_nodes - at
            value = total[rows, at]
            better = value > best[level]
            arity[level][better] = b
            best[level] = np.where(better, value, best[level])
    return Program(best, arity, kept)


def build_shape(p: Sequence[float], n_nodes: int, max_levels: int) -> Shape:
    """The best tree of n_nodes nodes (root included) and at most max_levels levels (the root's included)."""
    return solve(p, n_nodes, max_levels).shape(n_nodes, max_levels)


def choose_size(
    T: np.ndarray, cost: Callable[[int], float] | Sequence[float], layer_cost: float = 0.0
) -> tuple[int, int]:
    """(nodes, levels) that minimise (cost(nodes) + layer_cost (levels - 1)) / T, where T is Program.best.

    cost: seconds of a step that verifies n nodes; as an array cost[n - 1]. layer_cost: seconds to draft one layer: next
    to nothing for a table, one forward of a draft model. Equal ones: fewer nodes, then fewer levels. Raises ValueError
    for a step that costs no time.
    """
    n_nodes = np.arange(1, T.shape[1])
    seconds = np.array([cost(n) if callable(cost) else cost[n - 1] for n in n_nodes.tolist()], dtype=np.float64)
    if not (seconds > 0).all():
        raise ValueError(f"every step costs time, so cost must give seconds > 0 for every size; got {seconds.tolist()}")
    step_s = seconds[:, None] + layer_cost * np.arange(T.shape[0] - 1)  # [N, L]
    expected = T[1:, 1:].T
    per_token = np.where(np.isfinite(expected), step_s / expected, np.inf)
    n, levels = np.unravel_index(per_token.argmin(), per_token.shape)
    return int(n) + 1, int(levels) + 1


def cost_curve(points: Mapping[int, float]) -> Callable[[int], float]:
    """Measured seconds at some sizes as a curve: straight between the sizes, flat outside them."""
    if not points or not all(0 < seconds < inf for seconds in points.values()):
        raise ValueError(f"cost maps numbers of nodes to seconds > 0 and names at least one; got {dict(points)}")
    sizes = sorted(points)
    return lambda n: float(np.interp(n, sizes, [points[size] for size in sizes]))


class SequoiaDrafter:
    """The program's tree for the budget, filled by successor rank; where a token is missing its subtree is left out.

    acceptance: p; or acceptance_file, a record of scripts/calibrate_acceptance.py. Cut to the source's width.
    acceptance_of: name of the model that p was measured on; a record's own says more. Kept for the table, not used.
    candidates: where successors come from; the adjacency table when None. max_levels: most levels, the root's included.
    size: budget = B nodes · cost = the size up to B and the depth that cost the least time a token by `cost`,
        seconds of a step at some numbers of nodes (or a function of that number), and `layer_cost` (see choose_size).

    A node's score is its q, no product along the path. Raises ValueError for settings that contradict each other, for
    values out of range and for an unreadable acceptance_file.
    """

    overdraft = 0

    def __init__(
        self,
        acceptance: Sequence[float] | None = None,
        acceptance_file: str | None = None,
        candidates: CandidateSource | None = None,
        *,
        acceptance_of: str | None = None,
        max_levels: int = 10,
        size: str = "budget",
        cost: Mapping[int, float] | Callable[[int], float] | None = None,
        layer_cost: float = 0.0,
    ):
        if (acceptance is None) == (acceptance_file is None):
            raise ValueError(
                f"exactly one of acceptance and acceptance_file must be given, got {acceptance} and {acceptance_file}"
            )
        if size not in SIZES:
            raise ValueError(f"size must be one of {SIZES}, got {size!r}")
        if (size == "cost") != (cost is not None) or (layer_cost and cost is None):
            raise ValueError(f"cost must be given with size 'cost', and costs with it alone; got {size!r} and {cost}")
        if not 0 <= layer_cost < inf:
            raise ValueError(f"layer_cost must be seconds >= 0, got {layer_cost}")
        self.candidates = candidates or AdjacencyCandidates()
        self.top_k = self.candidates.top_k
        if acceptance is None:
            acceptance, acceptance_of = read_acceptance(str(acceptance_file))
        self.acceptance, self.acceptance_of = list(acceptance)[: self.candidates.width], acceptance_of
        self.max_levels, self.layer_cost = max_levels, layer_cost
        self.cost = cost_curve(cost) if isinstance(cost, Mapping) else cost
        self.sized_by: str | None = getattr(cost, "label", None)
        solve(self.acceptance, 1, max_levels)  # refuses bad settings before any work
        self._shapes: dict[int, Shape] = {}

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        self.candidates.begin(prompt_ids, prefill)

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        shape = self.shape(budget)
        self.candidates.start(context)
        tokens, parents, scores = [context[-1]], [NO_PARENT], [1.0]
        layer = [(0, 0)] if shape.children[0] else []  # inner nodes: (of the shape, of the tree)
        while layer:
            rows = self.candidates.expand(tokens, parents, [node for _, node in layer])
            below = []
            for (inner, node), row in zip(layer, rows, strict=True):
                for child, (token, log_q) in zip(shape.children[inner], row, strict=False):
                    if shape.children[child]:
                        below.append((child, len(tokens)))
                    tokens.append(token)
                    parents.append(node)
                    scores.append(exp(log_q))
            layer = below
        return DraftTree.from_lists(tokens, parents, [ROOT] + [self.candidates.source] * (len(tokens) - 1), scores)

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        self.candidates.observe(tree, verdict, scored)

    def shape(self, budget: int) -> Shape:
        """The shape for a budget, found once."""
        if budget not in self._shapes:
            program = _solve_once(tuple(self.acceptance), budget, self.max_levels)
            n_nodes, levels = budget, self.max_levels
            if self.cost is not None:
                n_nodes, levels = choose_size(program.best, self.cost, self.layer_cost)
            self._shapes[budget] = program.shape(n_nodes, levels)
        return self._shapes[budget]


@lru_cache(maxsize=32)
def _solve_once(p: tuple[float, ...], n_nodes: int, max_levels: int) -> Program:
    """solve(), once for all drafters of a process: no request of a run waits for it."""
    return solve(p, n_nodes, max_levels)


def read_acceptance(file: str) -> tuple[list[float], str | None]:
    """The vector of a calibration record, and the model it names. Raises ValueError for anything else."""
    try:
        record = json.loads(Path(file).expanduser().read_text(encoding="utf-8"))
        model = record.get("model")
        return [float(p) for p in record["acceptance"]], model["name"] if model is not None else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"acceptance_file {file} is no record with a list 'acceptance' ({type(error).__name__}: {error}); "
            "write one with scripts/calibrate_acceptance.py"
        ) from error
