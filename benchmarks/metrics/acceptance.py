"""Acceptance: tokens emitted per step, nodes drafted, tested and accepted. Node counts include the root.

A `turn` is one recorded line without an error; `emitted` counts what a step added to the output after cutting.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.metrics.tree_counts import ACCEPTED, DRAFTED, TESTED, trees_of
from benchmarks.metrics.turns import Turns, ratio, steps
from goose.engine.tree import ROOT, SOURCE_NAMES


def mean_acceptance_length(turns: Turns) -> float | None:
    """MAL: sum(emitted) / number of steps; bonus included, prefill not a step, empty-draft steps included."""
    emitted = steps(turns, "emitted")
    return ratio(sum(emitted), len(emitted))


def tau(turns: Turns) -> float | None:
    """The GOOSE paper's tau: generated tokens / target forwards, prefill counted as a forward."""
    return ratio(sum(len(turn["output_ids"]) for turn in turns), len(turns) + len(steps(turns, "emitted")))


def nodes_per_step(turns: Turns) -> tuple[float | None, int]:
    """Mean and maximum number of tree nodes per step, root included."""
    trees = [trees_of(turn) for turn in turns]
    mean = ratio(sum(t.n_nodes for t in trees), sum(t.n_steps for t in trees))
    return mean, max((t.max_nodes for t in trees), default=0)


def empty_draft_share(turns: Turns) -> float | None:
    """Share of steps whose tree was the root alone."""
    trees = [trees_of(turn) for turn in turns]
    return ratio(sum(t.n_empty for t in trees), sum(t.n_steps for t in trees))


@dataclass(frozen=True)
class NodeCounts:
    """Nodes of one kind over all steps. Tested: the parent was accepted. The root and the bonus are in none."""

    drafted: int = 0
    tested: int = 0
    accepted: int = 0

    @property
    def acceptance(self) -> float | None:
        """accepted / drafted."""
        return ratio(self.accepted, self.drafted)

    @property
    def conditional_acceptance(self) -> float | None:
        """accepted / tested."""
        return ratio(self.accepted, self.tested)


def acceptance_by_source(turns: Turns) -> dict[str, NodeCounts]:
    """Drafted, tested and accepted nodes by source: p_s of the context, p_t of the adjacency table, two ways each."""
    counts = sum((trees_of(turn).by_source for turn in turns), np.zeros((3, len(SOURCE_NAMES)), dtype=np.int64))
    return {name: node_counts(counts[:, i]) for i, name in enumerate(SOURCE_NAMES) if i != ROOT}


def node_counts(column: np.ndarray) -> NodeCounts:
    """NodeCounts of int[3], as benchmarks/metrics/tree_counts.py counts them."""
    return NodeCounts(int(column[DRAFTED]), int(column[TESTED]), int(column[ACCEPTED]))


def draft_acceptance(turns: Turns) -> float | None:
    """accepted / drafted over all sources."""
    counts = acceptance_by_source(turns).values()
    return ratio(sum(c.accepted for c in counts), sum(c.drafted for c in counts))


def bound_on_mal(turns: Turns, n_nodes: int) -> float | None:
    """Upper bound on MAL: an oracle's chain of the next output tokens emits n_nodes tokens per step until the end.

    turns: the baseline's; the first token is the prefill's. None without steps.
    """
    lengths = [len(turn["output_ids"]) - 1 for turn in turns]
    return ratio(sum(lengths), sum(-(-length // n_nodes) for length in lengths))
