"""The protocol between a tree that grows layer by layer and what proposes its tokens: a table, or a draft model.

It knows nodes, tokens and log probabilities; which candidates become nodes is the drafter's business.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from goose.engine.contract import Prefill
from goose.engine.tree import DraftTree
from goose.engine.verify import Scored, Verdict

Row = Iterable[tuple[int, float]]  # (token, log q <= 0) of a node's successors: distinct tokens, best first, read once


class CandidateSource(Protocol):
    """Proposes the successors of the nodes of a growing tree, with their log probabilities.

    The growing tree is two lists, tokens and parents, to which only new layers are appended: a node keeps its index.
    """

    top_k: int  # how many of each of the target's rows observe() wants (see Drafter); 0 = none
    width: int  # most successors of a node
    source: int  # of the nodes, as DraftTree.sources counts them (goose/engine/tree.py)

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        """A new request."""

    def start(self, context: Sequence[int]) -> None:
        """A new tree, rooted at context[-1]. The context holds at least a prompt token and the root."""

    def expand(self, tokens: list[int], parents: list[int], nodes: Sequence[int]) -> list[Row]:
        """The successors of each of `nodes`, a row each, in their order; empty where nothing is known.

        tokens, parents: the tree so far. nodes: of its newest layer; the first call after start() asks for [0], the
        root.
        """
        ...

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        """What the target said of the tree that was scored."""
