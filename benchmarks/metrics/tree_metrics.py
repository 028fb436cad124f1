"""The rest of the metrics: what the draft trees look like, E(A) beside A, and what shape and cost explain.

Every definition is one function, and every number of a table comes from one of them. A `turn` is one recorded
line without an error, its trees counted or not (benchmarks/metrics/tree_counts.py).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.metrics import STEP_PARTS, NodeCounts, Turns, mean_acceptance_length, node_counts, ratio, steps
from benchmarks.metrics.tree_counts import ACCEPTED, DRAFTED, N_SOURCES, ROOT_KEY, TESTED, merged_places, trees_of

FORWARD_PARTS = ("forward_s", "fetch_s")  # of a step: the target's forward, and the waiting for it


# --- acceptance ------------------------------------------------------------------------------------------------------


def acceptance_by_depth(turns: Turns) -> list[NodeCounts]:
    """Drafted, tested and accepted nodes at depth 1, 2, ...: the first entry is the root's children."""
    return _by_column([trees_of(turn).by_depth for turn in turns])[1:]


def acceptance_by_rank(turns: Turns) -> list[NodeCounts]:
    """Drafted, tested and accepted nodes of rank 0, 1, ...: a node's number among its siblings, in trying order."""
    return _by_column([trees_of(turn).by_rank for turn in turns])


def pooled(counts: Sequence[Sequence[NodeCounts]]) -> list[NodeCounts]:
    """Counts of several cells together, place by place; shorter ones end in zeros."""
    size = max((len(row) for row in counts), default=0)
    rows = np.zeros((size, 3), dtype=np.int64)
    for row in counts:
        rows[: len(row)] += np.array([(c.drafted, c.tested, c.accepted) for c in row]).reshape(-1, 3)
    return [NodeCounts(*map(int, row)) for row in rows]


def _by_column(parts: Sequence[np.ndarray]) -> list[NodeCounts]:
    size = max((part.shape[1] for part in parts), default=0)
    total = np.zeros((3, size), dtype=np.int64)
    for part in parts:
        total[:, : part.shape[1]] += part
    return [node_counts(column) for column in total[[DRAFTED, TESTED, ACCEPTED]].T]


def acceptance_ratio(sources: dict[str, NodeCounts]) -> float | None:
    """p_s / p_t, each accepted / drafted: how much better a context node is than an adjacency node."""
    p_s, p_t = sources["context"].acceptance, sources["adjacency"].acceptance
    return None if p_s is None or not p_t else p_s / p_t


# --- E(A) beside A ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expectation:
    """Means over the steps that recorded an expectation. Both count the bonus, and nothing is cut."""

    n_steps: int
    expected: float  # E(A), the method's own, root included
    accepted: float  # A: accepted nodes + 1, before the cut at a stop id or the limit


def expectation(turns: Turns) -> Expectation | None:
    """E(A) beside A; None where no step recorded one."""
    expected, accepted = _expected_and_accepted(turns)
    return Expectation(len(expected), float(expected.mean()), float(accepted.mean())) if len(expected) else None


def expectation_curve(turns: Turns, n_bins: int = 8) -> list[Expectation]:
    """The steps sorted by their E(A), in at most n_bins equal shares: on the diagonal, where the method knows itself.

    Equal expectations stay in one share.
    """
    expected, accepted = _expected_and_accepted(turns)
    if not len(expected):
        return []
    edges = np.unique(np.quantile(expected, np.linspace(0, 1, n_bins + 1)[1:-1]))
    share = np.searchsorted(edges, expected, side="left")
    groups = [share == i for i in np.unique(share)]
    return [Expectation(int(g.sum()), float(expected[g].mean()), float(accepted[g].mean())) for g in groups]


def _expected_and_accepted(turns: Turns) -> tuple[np.ndarray, np.ndarray]:
    pairs = [_expectations(turn["steps"]) for turn in turns if "expected" in turn["steps"]]
    expected = np.concatenate([pair[0] for pair in pairs]) if pairs else np.zeros(0)
    accepted = np.concatenate([pair[1] for pair in pairs]) if pairs else np.zeros(0)
    known = np.isfinite(expected)
    return expected[known], accepted[known]


def _expectations(columns: dict) -> tuple[np.ndarray, np.ndarray]:
    expected = np.array([np.nan if value is None else value for value in columns["expected"]], dtype=float)
    n_path = columns["n_path"] if "n_path" in columns else [len(path) for path in columns["path"]]
    return expected, np.array(n_path, dtype=float)


# --- topology --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AverageTree:
    """The places a method uses most, parents before children, siblings by rank; node 0 is the root, at every step."""

    parents: np.ndarray  # int64[n], -1 at the root
    ranks: np.ndarray  # int64[n], among the siblings of the recorded trees
    drafted: np.ndarray  # float[n, N_SOURCES]: share of the steps that drafted a node of this source there
    accepted: np.ndarray  # float[n, N_SOURCES]: share of the steps that accepted one there

    @property
    def n_nodes(self) -> int:
        return len(self.parents)


def average_tree(turns: Turns, n_nodes: int | None = None) -> AverageTree | None:
    """The n_nodes places drafted most often, the root included; by default as many as a step has nodes on average.

    A place is the path of child ranks. No place is drafted more often than its parent, so the set hangs together; of
    equally frequent places the shallower comes first, then the lower rank. None without a step.
    """
    trees = [trees_of(turn) for turn in turns]
    n_steps = sum(t.n_steps for t in trees)
    if not n_steps:
        return None
    if n_nodes is None:
        n_nodes = round(sum(t.n_nodes for t in trees) / n_steps)
    places = merged_places([t.places for t in trees])
    chosen = np.lexsort((places.ranks, places.depths, -places.drafted.sum(axis=1)))[: max(0, n_nodes - 1)]
    chosen = chosen[np.lexsort((places.ranks[chosen], places.depths[chosen]))]  # parents before their children
    index = {int(ROOT_KEY): 0} | {int(places.keys[place]): i for i, place in enumerate(chosen, start=1)}
    parents = np.array([-1, *(index[int(key)] for key in places.parent_keys[chosen])])
    everywhere = np.zeros((1, N_SOURCES))
    everywhere[0, 0] = n_steps
    drafted, accepted = (np.concatenate([everywhere, c[chosen]]) / n_steps for c in (places.drafted, places.accepted))
    return AverageTree(parents, np.array([0, *places.ranks[chosen]]), drafted, accepted)


def synergy(goose: float | None, pld: float | None, tr: float | None) -> float | None:
    """MAL(goose) / max(MAL(pld), MAL(tr)) at the same B; non-degradation: >= 1."""
    if goose is None or pld is None or tr is None:
        return None
    return goose / max(pld, tr)


def change(value: float | None, reference: float | None) -> float | None:
    """value / reference - 1: an ablation against the whole method, a tree against the isotropic one."""
    return None if value is None or not reference else value / reference - 1


def mean_known(values: Iterable[float | None]) -> float | None:
    """Arithmetic mean over the cells that have the number; None when none has."""
    known = [value for value in values if value is not None]
    return ratio(sum(known), len(known))


def median_known(values: Iterable[float | None]) -> float | None:
    """Median over the cells that have the number; None when none has."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


# --- what the time is made of ----------------------------------------------------------------------------------------


def mean_step_seconds(turns: Turns) -> dict[str, float]:
    """Mean seconds per step: the parts, and `other_s`, the rest of decoding (the drafter's begin, the loop itself).

    They sum to decode seconds / steps. Empty without steps.
    """
    n_steps = len(steps(turns, "emitted"))
    if not n_steps:
        return {}
    parts = {part: float(np.sum(steps(turns, part))) / n_steps for part in STEP_PARTS}
    return {**parts, "other_s": sum(turn["decode_s"] for turn in turns) / n_steps - sum(parts.values())}


def decomposed_speed_up(turns: Turns, baseline: Turns) -> float | None:
    """MAL x t(1) / (t(n) + host): the speed-up that acceptance and the forward's cost explain.

    t(1), t(n): mean seconds of the target's forward in plain decoding and at the method's own trees; host: the rest of
    the method's step. The baseline's own host work is left out, so plain decoding itself comes out just below 1.
    """
    own, plain = mean_step_seconds(turns), mean_step_seconds(baseline)
    mal = mean_acceptance_length(turns)
    if mal is None or not plain:
        return None
    return ratio(mal * sum(plain[part] for part in FORWARD_PARTS), sum(own.values()))
