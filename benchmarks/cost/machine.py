"""What a machine can do at most: bytes a second it copies and reads, operations a second its matrix products reach.

The yardstick beside every verify cost. The best of a few repeats is kept, since a limit is asked for: a share of it
errs on the low side. It knows no model. Needs torch alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch

from goose.engine.machine import synchronize

# Large enough that no cache holds a buffer, small enough to leave room for the model that was measured.
BUFFER_BYTES = 512 * 2**20
MATRIX_SIZE = {"cpu": 2048, "cuda": 8192}


@dataclass(frozen=True)
class Machine:
    """Measured limits of one device."""

    copy_bytes_per_s: float  # read and written bytes both counted
    read_bytes_per_s: float  # a sum or a matrix-vector product, whichever is faster: what a forward of one node does
    flops_per_s: float  # a square matrix product in `dtype`; a multiplication and an addition are two
    dtype: str


def measure_machine(
    device: str | torch.device,
    dtype: torch.dtype,
    *,
    buffer_bytes: int = BUFFER_BYTES,
    matrix_size: int | None = None,
    repeats: int = 7,
) -> Machine:
    """Takes two buffers of `buffer_bytes` and three square matrices of `matrix_size` rows (by default the device's)."""
    device = torch.device(device)
    copy, read = _bandwidths(device, buffer_bytes, repeats)
    flops = _matrix_rate(device, dtype, matrix_size or MATRIX_SIZE[device.type], repeats)
    return Machine(copy, read, flops, str(dtype).removeprefix("torch."))


def _bandwidths(device: torch.device, buffer_bytes: int, repeats: int) -> tuple[float, float]:
    """Bytes/s copied and read. In fp32 whatever the model's dtype: bytes are bytes, and a CPU sums no other as fast."""
    columns = min(4096, buffer_bytes // 64)
    source = torch.ones((buffer_bytes // (4 * columns), columns), device=device)
    target, vector = torch.zeros_like(source), torch.ones(columns, device=device)
    n_bytes = source.numel() * source.element_size()
    copy_s = _best_s(lambda: target.copy_(source), device, repeats)
    read_s = min(_best_s(source.sum, device, repeats), _best_s(lambda: source.mv(vector), device, repeats))
    return 2 * n_bytes / copy_s, n_bytes / read_s


def _matrix_rate(device: torch.device, dtype: torch.dtype, n: int, repeats: int) -> float:
    a, b = torch.ones((2, n, n), dtype=dtype, device=device)
    return 2 * n**3 / _best_s(lambda: a @ b, device, repeats)


def _best_s(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    work()
    seconds = []
    for _ in range(repeats):
        synchronize(device)
        start = perf_counter()
        work()
        synchronize(device)
        seconds.append(perf_counter() - start)
    return min(seconds)
