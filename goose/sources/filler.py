"""What a tree that is grown layer by layer asks of a source of candidates: a table, or a draft model.

It knows nodes, tokens and log probabilities; which candidates become nodes is the drafter's business.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from goose.engine.contract import Prefill
from goose.engine.tree import DraftTree
from goose.engine.verify import Scored, Verdict

Row = Iterable[tuple[int, float]]  # (token, log q <= 0) of a node's successors: distinct tokens, best first, read once


class Filler(Protocol):
    """Where a tree that is grown layer by layer gets its tokens from.

    The growing tree is two lists to which only new layers are appended, so that a node keeps its index.
    """

    top_k: int  # what observe() wants of the target's rows (see Drafter); 0 = none
    width: int  # most successors of a node
    source: int  # of the nodes (goose.engine.tree)

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        """A new request."""

    def start(self, context: Sequence[int]) -> None:
        """A new tree, rooted at context[-1]."""

    def expand(self, tokens: list[int], parents: list[int], nodes: Sequence[int]) -> list[Row]:
        """The successors of each of `nodes`, which lie in the newest layer; the first call asks for [0], the root."""

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        """What the target said."""
