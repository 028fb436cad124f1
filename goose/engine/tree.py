"""Draft trees as frozen flat arrays, and the builder that makes them.

A tree is its tokens and parents; everything else is derived. Node 0 is the root: the last context token, whose K/V
are not in the cache yet. This file knows nothing of models, text or acceptance.

Dimension letters: n = nodes of the tree, root included.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

NO_PARENT = -1

# Where a node came from (DraftTree.sources). Metrics report acceptance per source.
ROOT, CONTEXT, ADJACENCY, DRAFT_MODEL = range(4)
SOURCE_NAMES = ("root", "context", "adjacency", "draft_model")


@dataclass(frozen=True, eq=False)
class DraftTree:
    """A draft tree. Siblings carry distinct tokens; a child comes after its parent; lower index = higher rank.

    Made by TreeBuilder, which cannot make another, or by `from_lists`, which checks.
    """

    tokens: np.ndarray  # int64[n]
    parents: np.ndarray  # int32[n], parents[0] = NO_PARENT, parents[i] < i
    sources: np.ndarray  # int8[n]
    scores: np.ndarray  # float32[n], the source's own score of the node; not a probability in general

    @property
    def n_nodes(self) -> int:
        return len(self.tokens)

    @cached_property
    def depths(self) -> np.ndarray:
        """int64[n]: distance from the root."""
        depths = [0] * self.n_nodes
        for node, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                depths[node] = depths[parent] + 1
        return np.array(depths, dtype=np.int64)

    @cached_property
    def is_chain(self) -> bool:
        """Every node's parent is the node before it: the mask is plain causal and a path is a prefix."""
        return bool((self.parents == np.arange(-1, self.n_nodes - 1)).all())

    @cached_property
    def ancestor_mask(self) -> np.ndarray:
        """bool[n, n]: row i is true at i and at its ancestors, and nowhere else."""
        n = self.n_nodes
        # One Python integer a node holds its row as bits; unpacking them all at once beats n numpy row copies.
        rows: list[int] = []
        for node, parent in enumerate(self.parents.tolist()):
            rows.append((rows[parent] if parent >= 0 else 0) | 1 << node)
        n_bytes = (n + 7) // 8
        packed = np.frombuffer(b"".join(row.to_bytes(n_bytes, "little") for row in rows), dtype=np.uint8)
        return np.unpackbits(packed.reshape(n, n_bytes), axis=1, bitorder="little")[:, :n].view(bool)

    def pruned_to_depth(self, max_depth: int) -> "DraftTree":
        """The tree without its nodes deeper than max_depth (>= 0); itself when there are none."""
        keep = self.depths <= max_depth
        if keep.all():
            return self
        new_index = np.cumsum(keep) - 1
        parents = self.parents[keep]
        parents[1:] = new_index[parents[1:]]
        return DraftTree(self.tokens[keep], parents, self.sources[keep], self.scores[keep])

    @staticmethod
    def from_lists(
        tokens: Sequence[int],
        parents: Sequence[int],
        sources: Sequence[int] | None = None,
        scores: Sequence[float] | None = None,
    ) -> "DraftTree":
        """A checked tree from plain lists; sources default to ADJACENCY (ROOT for node 0) and scores to 1."""
        n = len(tokens)
        if sources is None:
            sources = [ROOT] + [ADJACENCY] * (n - 1)
        if scores is None:
            scores = [1.0] * n
        if n == 0 or not n == len(parents) == len(sources) == len(scores):
            raise ValueError(f"a tree needs equal-length, non-empty columns, got {n} tokens and {len(parents)} parents")
        for name, column in (("tokens", tokens), ("parents", parents)):
            if not np.issubdtype(np.asarray(column).dtype, np.integer):
                raise ValueError(f"a tree's {name} are whole numbers, got {list(column)}")
        if parents[0] != NO_PARENT or any(not 0 <= p < i for i, p in enumerate(parents[1:], 1)):
            raise ValueError("parents[0] must be -1 and every other parent an earlier node")
        if len(set(zip(parents, tokens, strict=True))) != n:
            raise ValueError("siblings must carry distinct tokens; merge them with TreeBuilder")
        return DraftTree(
            np.array(tokens, dtype=np.int64),
            np.array(parents, dtype=np.int32),
            np.array(sources, dtype=np.int8),
            np.array(scores, dtype=np.float32),
        )


class TreeBuilder:
    """Grows one tree under a node budget, merging siblings that carry the same token."""

    def __init__(self, root_token: int, budget: int):
        if budget < 1:
            raise ValueError(f"a tree holds at least its root: the node budget must be >= 1, got {budget}")
        self.budget = budget
        self.tokens = [root_token]
        self.parents = [NO_PARENT]
        self.depths = [0]
        self._sources = [ROOT]
        self._scores = [1.0]
        self._child_of: dict[int, int] = {}  # (parent << 32) + token -> child: no tuple is made a node

    @property
    def n_nodes(self) -> int:
        return len(self.tokens)

    def add(self, parent: int, token: int, source: int, score: float = 1.0) -> int | None:
        """Index of `token` under `parent`: new, or the existing sibling's; None when the budget is spent."""
        key = (parent << 32) + token
        existing = self._child_of.get(key)
        if existing is not None:
            return existing
        node = len(self.tokens)
        if not 0 <= parent < node:
            raise IndexError(f"no node {parent} to hang a child on; the tree has {node}")
        if node >= self.budget:
            return None
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self._sources.append(source)
        self._scores.append(score)
        self._child_of[key] = node
        return node

    def add_chain(self, parent: int, tokens: Sequence[int], source: int) -> list[int]:
        """Adds tokens one below the other until the budget is spent; returns their node indices."""
        nodes: list[int] = []
        for token in tokens:
            node = self.add(parent, token, source)
            if node is None:
                break
            nodes.append(node)
            parent = node
        return nodes

    def build(self) -> DraftTree:
        return DraftTree(
            np.array(self.tokens, dtype=np.int64),
            np.array(self.parents, dtype=np.int32),
            np.array(self._sources, dtype=np.int8),
            np.array(self._scores, dtype=np.float32),
        )


def single_node(root_token: int) -> DraftTree:
    """The tree of plain decoding: the root alone."""
    return TreeBuilder(root_token, 1).build()


def chain(root_token: int, tokens: Sequence[int], source: int, budget: int) -> DraftTree:
    """The root and one path below it, at most `budget` nodes in all."""
    builder = TreeBuilder(root_token, budget)
    builder.add_chain(0, tokens, source)
    return builder.build()
