"""Measures the acceptance vector that Sequoia's program plans with: how often the b-th successor is the target's token.

Every step drafts a wide star, the root and its best successors by rank, so that every rank is tested each time.
It knows token ids and counts; which prompts are given (they must lie outside every measured set) is the caller's.

Source: Sequoia, arXiv 2402.12374, section 4.1 ("positional acceptance").
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from baselines.opt_tree import OptTreeDrafter
from goose.engine.decode import Steps, decode
from goose.sources.candidates import CandidateSource


@dataclass(frozen=True)
class Counts:
    """Index b - 1 stands for the b-th successor."""

    tested: list[int]  # stars that had a b-th successor
    accepted: list[int]  # of those, the target's token was the b-th
    n_steps: int  # stars, those without any successor (the table did not know the root) included
    n_unknown: int  # those

    @property
    def acceptance(self) -> list[float]:
        """p_b = accepted / tested: the chance that the b-th child is the accepted one, given that it is drafted."""
        return [a / t if t else 0.0 for a, t in zip(self.accepted, self.tested, strict=True)]


def calibrate(
    lm,
    prompts: Sequence[Sequence[int]],
    candidates: CandidateSource,
    *,
    max_new_tokens: int = 96,
    stop_ids: Collection[int] = (),
) -> Counts:
    """Greedy decoding of every prompt with stars of the source's `width` best successors of the root."""
    width = candidates.width
    stars = OptTreeDrafter(candidates, max_depth=1)
    steps = [
        decode(lm, ids, stars, max_new_tokens=max_new_tokens, stop_ids=stop_ids, node_budget=width + 1).steps
        for ids in prompts
    ]
    return count(steps, width)


def count(requests: Sequence[Steps], width: int) -> Counts:
    """Counts over the recorded stars; node b of a star is the b-th successor."""
    tested, accepted = np.zeros(width, dtype=int), np.zeros(width, dtype=int)
    n_steps = n_unknown = 0
    for steps in requests:
        for tree, path in zip(steps.trees, steps.paths, strict=True):
            n_steps += 1
            n_unknown += tree.n_nodes == 1
            tested[: tree.n_nodes - 1] += 1
            if len(path) > 1:
                accepted[path[1] - 1] += 1
    return Counts(tested.tolist(), accepted.tolist(), n_steps, n_unknown)
