"""What a drafter is, and what it is told. Every method, plain decoding included, is one Drafter in one loop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

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
