"""What a drafter is, and what it is told. Every method, plain decoding included, is one Drafter in one loop.

A plain drafter is a Drafter and no more. What some also need or know has a protocol of its own below; whoever runs
drafters asks for these with isinstance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from goose.engine.tree import DraftTree
from goose.engine.verify import Scored, Verdict


@dataclass(frozen=True)
class Prefill:
    """What a drafter may know when a request begins."""

    first_token: int  # the target's token after the prompt: the first root
    stop_ids: frozenset[int]
    # K, rows -> ids, scores [n, K] of these rows of the prompt (None: of all), made on demand
    top_k: Callable[..., tuple[np.ndarray, np.ndarray]]
    vocab_size: int | None = None  # rows of the target's head: no id from here on may be drafted; None: not known


class Drafter(Protocol):
    """Proposes a tree each step and may learn from what the target said about every node of it."""

    top_k: int  # how many of each row's best ids and scores observe() wants; 0 = none
    overdraft: int  # nodes it may draw beyond the budget; 0 for every method compared at equal budget

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        """A new request. State of earlier requests is dropped unless the drafter was made `warm`."""

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        """A tree rooted at context[-1] with at most budget + overdraft nodes, root included."""

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        """What the target said of the tree that was scored: the drafted one, cut at the model's last position.

        Called after every step that does not end the request.
        """


@runtime_checkable
class NeedsModel(Protocol):
    """Asks something of the target model itself before its first request, such as what a forward costs."""

    def prepare(self, lm) -> None:
        """`lm`: the TreeLM that will verify. Called before a request and outside every clock; the sequence in flight
        may be forgotten. Again with the same model it has nothing to do; with another it starts anew.
        """


@runtime_checkable
class NeedsSingleTokenRows(Protocol):
    """Uses what the target says after single tokens (goose/sources/single_token_rows.py), and works without it."""

    n_single_token_rows: int  # of the ids 0, 1, ..., how many rows it wants; 0 = none

    def set_single_token_rows(self, ids: np.ndarray, scores: np.ndarray) -> None:
        """int64[n, K] and float32[n, K] of the ids 0 .. n - 1; n may be smaller than was asked for."""


@runtime_checkable
class NeedsAnswer(Protocol):
    """Drafts with the output known in advance: an upper bound, no method."""

    def set_answer(self, output_ids: Sequence[int]) -> None:
        """What the next request will emit; to be called before every `begin`."""


@runtime_checkable
class EstimatesAcceptance(Protocol):
    """Knows how many tokens it expects of each of its trees."""

    expected: list[float]  # E(A) of every step of the request so far, the root's 1 included


@runtime_checkable
class Calibrated(Protocol):
    """Shapes its trees by acceptance that was measured on a model, which need not be the target."""

    acceptance_of: str | None  # name of that model; None where it is not known


@runtime_checkable
class SizedByCost(Protocol):
    """Sizes its trees by what a forward costs."""

    sized_by: str | None  # label of that cost, its digest included; None where nothing sizes them or it has no label
