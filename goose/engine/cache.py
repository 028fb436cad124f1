"""The target's keys and values: preallocated, written in place, compacted in place when a path is accepted.

Handed to transformers' models as their cache object; of that interface the supported families only call `update`
and `get_seq_length`. Layers on one device share one block, so a commit is one gather per device, whatever the
context's length.
"""

from collections.abc import Sequence
from contextlib import contextmanager

import torch


class TreeCache:
    """K/V of `n_committed` committed tokens followed by the rows of the forward in flight.

    Committed tokens are those whose K/V stay: len(context) - 1 between steps.
    """

    def __init__(self, layer_devices: Sequence[torch.device], n_kv_heads: int, head_dim: int, dtype: torch.dtype):
        self._layer_devices = list(layer_devices)
        self._shape = (n_kv_heads, head_dim)
        self._dtype = dtype
        self._blocks: list[torch.Tensor] = []  # one a device: [layers, 2 (K, V), kv heads, capacity, head dim]
        self._layers: list[tuple[torch.Tensor, torch.Tensor]] = []  # per layer views [1, kv heads, capacity, head dim]
        self.capacity = 0
        self.n_committed = 0
        self.n_in_flight = 0  # rows after the committed ones that the next forward keeps: a tree grown in layers
        self.is_clear = True  # whether every row is still zero; whoever writes without `update` says so
        self._static: tuple[torch.Tensor, int] | None = None  # (rows to write, rows to read) inside `static`

    def reset(self, capacity: int, clear: bool = False) -> None:
        """Forgets everything and holds room for `capacity` tokens; the block is reused when it is large enough.

        clear: overwrite what earlier requests left, once. For forwards that read past the filled rows: a mask hides any
        number but NaN.
        """
        self.n_committed = 0
        if capacity <= self.capacity:
            if clear and not self.is_clear:
                for block in self._blocks:
                    block.zero_()
                self.is_clear = True
            return
        self._blocks, self._layers = [], []  # freed before the larger block is asked for
        n_kv_heads, head_dim = self._shape
        views: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for device in dict.fromkeys(self._layer_devices):
            layers = [i for i, d in enumerate(self._layer_devices) if d == device]
            # Zeros, not empty: padded rows may look at slots that were never written.
            block = torch.zeros((len(layers), 2, n_kv_heads, capacity, head_dim), dtype=self._dtype, device=device)
            self._blocks.append(block)
            views.update({layer: (block[j, 0, None], block[j, 1, None]) for j, layer in enumerate(layers)})
        self._layers = [views[i] for i in range(len(self._layer_devices))]
        self.capacity, self.is_clear = capacity, True

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_, **__
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes rows [1, kv heads, n, head dim] after all that are kept; returns all rows so far, as views."""
        self.is_clear = False
        if self._static is not None:
            rows, length = self._static
            k, v = self._layers[layer]
            return k.index_copy_(2, rows, keys)[:, :, :length], v.index_copy_(2, rows, values)[:, :, :length]
        start = self.n_committed + self.n_in_flight
        end = start + keys.shape[2]
        if end > self.capacity:
            raise ValueError(f"{end} rows do not fit the cache's {self.capacity}")
        k, v = self._layers[layer]
        k[:, :, start:end] = keys
        v[:, :, start:end] = values
        return k[:, :, :end], v[:, :, :end]

    @contextmanager
    def static(self, rows: torch.Tensor, length: int):
        """Inside, `update` writes the cache rows named by the device tensor `rows` [n] and returns the first `length`.

        Nothing then depends on numbers that the host knows, so that a recorded forward can be replayed.
        """
        self._static = rows, length
        try:
            yield
        finally:
            self._static = None

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.n_committed

    def commit(self, path: Sequence[int]) -> None:
        """Keeps the rows `path` (increasing indices into the tree in flight) and drops the others."""
        start, n = self.n_committed, len(path)
        if path[-1] != n - 1:  # otherwise the path is a prefix and its rows already lie in place
            for block in self._blocks:
                rows = torch.tensor(path, device=block.device) + start
                block[:, :, :, start : start + n] = block.index_select(3, rows)
        self.n_committed = start + n
