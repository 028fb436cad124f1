"""What verifying a draft tree costs here: seconds of a forward of n nodes after a context of L tokens, t(n, L).

Measured quickly (timing.py), once for a model shape, dtype, engine, attention and machine, and kept in the user's cache
folder, so that a method that sizes its trees by cost needs no step by hand. Knows no drafter and no text.

Dimension letters: n = nodes of a forward, root included, L = committed tokens before it.
"""

import hashlib
import json
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from goose.engine.identity import shape_digest
from goose.engine.machine import cpu_model, n_cores
from goose.engine.timing import TOP_K, Progress, measure_quickly
from goose.engine.user_cache import cache_root, keep

SCHEMA = 1  # of the file, and of the way of measuring: a file of another one is not read


@dataclass(frozen=True)
class QuickCurve:
    """Seconds on a grid of context lengths and sizes: a function (n, L) -> seconds of a forward, the fetch included."""

    conditions: dict[str, str | int]  # what it holds for (conditions_of)
    contexts: tuple[int, ...]
    sizes: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]  # [context][size], medians
    error: float  # standard error of the least certain of them, as a share of it
    measured_s: float  # how long measuring took
    date: str
    is_new: bool = True  # measured now, not read from the cache
    not_kept: str | None = None  # why it could not be written into the cache folder

    def __call__(self, n_nodes: int, context: int) -> float:
        """Straight lines between sizes and between lengths. Below the least its value, above the largest the last line,
        which never falls. Engine "graph" pads a tree to its next size, so there a size costs what the next one does.
        """
        if self.conditions["engine"] == "graph" and n_nodes <= self.sizes[-1]:
            n_nodes = next(size for size in self.sizes if size >= n_nodes)
        return on_line(context, self.contexts, [on_line(n_nodes, self.sizes, row) for row in self.seconds])

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits of the points, to tell two measurements apart."""
        return hashlib.sha256(repr((self.contexts, self.sizes, self.seconds)).encode()).hexdigest()[:8]

    @property
    def label(self) -> str:
        of = self.conditions
        return (
            f"quickly measured verify cost of this {of['model_type']} of shape {of['shape']} in {of['dtype']} on "
            f"{of['device']} (engine {of['engine']}), {self.date}, points {self.digest}"
        )


class MeasuredCost:
    """t(n, L) of the model that `prepare` was given last: from the user's cache folder, or measured there and then."""

    def __init__(self, on_progress: Progress = lambda share: None):
        self.curve: QuickCurve | None = None
        self._on_progress = on_progress

    def prepare(self, lm) -> None:
        """Finds or measures the curve of a TreeLM, whose sequence in flight is forgotten when it has to be measured."""
        self.curve = quick_curve(lm, self._on_progress)
        if self.curve.not_kept and self.curve.is_new:
            warnings.warn(f"the measured verification cost was not kept: {self.curve.not_kept}", stacklevel=3)

    @property
    def label(self) -> str | None:
        return None if self.curve is None else self.curve.label

    def __call__(self, n_nodes: int, context: int) -> float:
        if self.curve is None:
            raise RuntimeError("no verification cost is known yet: call prepare(lm) with a TreeLM first")
        return self.curve(n_nodes, context)


_unkept: dict[Path, QuickCurve] = {}  # what no disk took, measured once a process all the same


def quick_curve(lm, on_progress: Progress = lambda share: None) -> QuickCurve:
    """The kept curve of a TreeLM's shape and this machine; where there is none, it is measured and kept.

    A cache that cannot be written is done without: `not_kept` says why.
    """
    conditions = conditions_of(lm)
    key = hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()[:16]
    file = cache_root() / "cost" / f"{key}.json"
    found = _read(file, conditions) or _unkept.get(file)
    if found is not None:
        return replace(found, is_new=False)
    start = perf_counter()
    timed = measure_quickly(lm, on_progress=on_progress)
    took, today = round(perf_counter() - start, 1), datetime.now(UTC).date().isoformat()
    curve = QuickCurve(conditions, timed.contexts, timed.sizes, timed.seconds, timed.error, took, today)
    record = {name: value for name, value in asdict(curve).items() if name not in ("is_new", "not_kept")}
    reason = keep(file, (json.dumps({"schema": SCHEMA, **record}) + "\n").encode())
    if reason is not None:
        curve = _unkept[file] = replace(curve, not_kept=f"{file.parent}: {reason}")
    return curve


def _read(file: Path, conditions: dict) -> QuickCurve | None:
    """None for a file that is absent, interrupted, of another version or of something else."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        record = json.loads(file.read_text(encoding="utf-8"))
        if record.pop("schema") != SCHEMA or record["conditions"] != conditions:
            return None
        rows = tuple(tuple(float(s) for s in row) for row in record.pop("seconds"))
        grid = {name: tuple(int(x) for x in record.pop(name)) for name in ("contexts", "sizes")}
        curve = QuickCurve(contexts=grid["contexts"], sizes=grid["sizes"], seconds=rows, **record)
        ascending = all(list(x) == sorted(set(x)) and x[0] > 0 for x in grid.values())
        shape = [len(row) for row in rows] == [len(curve.sizes)] * len(curve.contexts)
        if ascending and shape and all(0 < s < float("inf") for row in rows for s in row):
            return curve
    return None


def conditions_of(lm) -> dict[str, str | int]:
    """All that the seconds of a TreeLM's forwards depend on, besides n and L."""
    config, on_cpu = lm.model.config, lm.device.type == "cpu"
    return {
        "shape": shape_digest(config),
        "model_type": config.model_type,
        "dtype": str(lm.dtype).removeprefix("torch."),
        "device": "cpu" if on_cpu else torch.cuda.get_device_name(lm.device),
        "engine": lm.engine,
        "attention": lm.attention,
        "cpu": cpu_model(),
        "cores": n_cores(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "top_k": TOP_K,
    }


def on_line(x: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """Straight lines between the points; left of them the first value, right of them the last line unless it falls."""
    if x <= xs[-1] or len(xs) == 1:
        return float(np.interp(x, xs, ys))
    slope = (ys[-1] - ys[-2]) / (xs[-1] - xs[-2])
    return ys[-1] + max(0.0, slope) * (x - xs[-1])
