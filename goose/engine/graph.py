"""Forwards of fixed shapes over fixed memory, so that CUDA can replay them as one recorded graph.

A forward is fixed by its key: how many nodes are scored (width), how many nodes are in flight in all (seen), and how
many cache rows attention reads (length). Everything else - tokens, positions, cache rows, which node sees which - lies
in one small block of integers that is filled for every step and copied over once. On a CPU the same forward runs
without being recorded, which is how it is tested.

Padded nodes repeat the first node, see the context and themselves, and write to cache rows after the tree.

Dimension letters: w = width, s = seen, L = length.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from goose.engine.cache import TreeCache
from goose.engine.tree import DraftTree

NODE_BUCKETS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128)
_SHORTEST = 256
_WORD = 32  # mask bits kept in one int64: its upper half stays clear of the sign

# hidden [w, hidden] = forward(tokens [1, w], positions [1, w], mask [1, 1, repeats * w, L])
Forward = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def bucket(n: int, buckets: Sequence[int]) -> int | None:
    """The smallest bucket that holds n; None when none does."""
    return next((b for b in buckets if b >= n), None)


def length_bucket(n_rows: int) -> int:
    """256, 384, 512, 768, 1024, ...: attention reads at most half as many rows again as are filled, past 256."""
    length = _SHORTEST
    while length < n_rows:
        length = length * 3 // 2 if length & (length - 1) == 0 else length * 4 // 3
    return length


class StaticForward:
    """One forward at one key. `repeats`: rows of the mask a node (query heads of a group)."""

    def __init__(
        self, forward: Forward, cache: TreeCache, width: int, seen: int, length: int, repeats: int,
        device: torch.device, dtype: torch.dtype, pool,
    ):  # fmt: skip
        self._forward, self._cache = forward, cache
        self._width, self._seen, self._length, self._repeats, self._dtype = width, seen, length, repeats, dtype
        n_words = -(-seen // _WORD)
        is_cuda = device.type == "cuda"
        # start | tokens w | positions w | cache rows w | visibility bits w x n_words
        self._host = torch.zeros(1 + (3 + n_words) * width, dtype=torch.int64, pin_memory=is_cuda)
        self._filled = self._host.numpy()
        self._block = torch.zeros_like(self._host, device=device)
        self._pool = pool
        self._recorded: tuple[torch.cuda.CUDAGraph, torch.Tensor] | None = None  # a graph and where its result lies

    def __call__(self, tree: DraftTree, first: int, start: int) -> torch.Tensor:
        """Last hidden states [w, hidden] of the tree's nodes from `first` on, after `start` committed tokens.

        On a GPU they are overwritten by the next call, and the host must have waited for this one by then.
        """
        self._cache.is_clear = False  # a replay does not call `update`
        self._fill(tree, first, start)
        self._block.copy_(self._host, non_blocking=True)
        if self._block.device.type != "cuda":
            return self._run()
        if self._recorded is None:
            self._recorded = self._record()
        graph, hidden = self._recorded
        graph.replay()
        return hidden

    def _fill(self, tree: DraftTree, first: int, start: int) -> None:
        w, n = self._width, tree.n_nodes - first
        filled = self._filled
        filled[0] = start
        tokens, positions, rows = filled[1 : 1 + 3 * w].reshape(3, w)
        tokens[:n], tokens[n:] = tree.tokens[first:], tree.tokens[first]
        positions[:n], positions[n:] = tree.depths[first:], tree.depths[first]
        positions += start
        rows[:] = np.arange(start + first, start + first + w)
        visible = np.eye(w, self._seen, k=first, dtype=bool)
        visible[:n, : tree.n_nodes] = tree.ancestor_mask[first:]
        filled[1 + 3 * w :] = _words(visible).reshape(-1)

    def _run(self) -> torch.Tensor:
        w = self._width
        start, (tokens, positions, rows) = self._block[:1], self._block[1 : 1 + 3 * w].view(3, w)
        with self._cache.static(rows, self._length):
            return self._forward(tokens[None], positions[None], self._mask(start))

    def _mask(self, start: torch.Tensor) -> torch.Tensor:
        """Additive mask [1, 1, repeats * w, L] of the bits in the block: committed rows, ancestors and self are 0."""
        w, s = self._width, self._seen
        device = self._block.device
        words = self._block[1 + 3 * w :].view(w, -1)
        bit = torch.arange(s, device=device)
        in_tree = (words[:, bit // _WORD] >> (bit % _WORD)) & 1 == 1  # [w, s]
        edge = torch.ones((w, 1), dtype=torch.bool, device=device)
        # Columns: 0 for the committed rows, 1 to s for the nodes in flight, s + 1 for the unused rows after them.
        visible = torch.cat([edge, in_tree, ~edge], dim=1)
        column = (torch.arange(self._length, device=device) - start + 1).clamp(0, s + 1)
        mask = torch.zeros((w, self._length), dtype=self._dtype, device=device)
        mask.masked_fill_(~visible[:, column], -torch.inf)
        return mask.repeat(self._repeats, 1)[None, None]

    def _record(self) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        """Records the forward of what the block holds; it writes the cache rows that the replay will write again."""
        stream = torch.cuda.Stream(self._block.device)
        stream.wait_stream(torch.cuda.current_stream(self._block.device))
        with torch.cuda.stream(stream):  # a first run lets libraries allocate what must not be allocated in a graph
            self._run()
        torch.cuda.current_stream(self._block.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            hidden = self._run()
        return graph, hidden


def _words(visible: np.ndarray) -> np.ndarray:
    """int64[w, ceil(s / 32)] of bool[w, s]: column j is bit j % 32 of word j // 32."""
    w, s = visible.shape
    n_words = -(-s // _WORD)
    padded = np.zeros((w, n_words * _WORD), dtype=bool)
    padded[:, :s] = visible
    return np.packbits(padded, axis=1, bitorder="little").view("<u4").astype(np.int64)
