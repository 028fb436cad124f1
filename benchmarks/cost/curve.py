"""The verification-cost curve t(n, L): seconds of one target forward of n nodes after a context of L tokens, as a file.

Made by benchmarks/cost/measure.py; read by Sequoia's size and by the tables that are projected onto a curve
(metrics.projected_speed_up). Knows no model, no drafter and no clock.

Dimension letters: n = nodes of a forward, root included, L = committed tokens before it.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.cost.machine import Machine
from benchmarks.errors import UserError, first_line
from goose.engine.cost import on_line

SCHEMA = 2
READABLE = (1, 2)  # 1: no model_shape
FOLDER = Path("results/cost")
TREE, CHAIN = "tree", "chain"  # what was scored: a bushy tree, or one path


@dataclass(frozen=True)
class Point:
    """One size at one context length. Seconds are host wall clock of a forward and the fetch of what the host needs."""

    shape: str  # TREE | CHAIN
    context: int  # L
    n_nodes: int
    seconds: float  # median over the repeats
    low_s: float  # quartiles
    high_s: float
    launch_s: float | None  # median until the forward was launched; None where launching is not apart (CPU, roofline)
    n_bytes: int  # weights and K/V that the forward must read
    n_flops: int

    @property
    def bytes_per_s(self) -> float:
        return self.n_bytes / self.seconds

    @property
    def flops_per_s(self) -> float:
        return self.n_flops / self.seconds


@dataclass(frozen=True)
class CostCurve:
    """All points of one model x device x dtype x engine, a full grid of sizes and lengths for each shape."""

    kind: str  # "measured" | "roofline"
    model: str
    weights: str  # "pretrained" | "random" | "none"
    device: str
    dtype: str
    engine: str  # of a measurement: "eager" | "fused" | "graph"; "none"
    attention: str
    versions: dict[str, str | int | None]  # of what was measured with; empty for a roofline
    date: str
    points: tuple[Point, ...]
    machine: Machine | None = None  # limits measured beside it
    model_shape: str | None = None  # goose.engine.identity.shape_digest; None in files of schema 1

    def __post_init__(self) -> None:
        bad = next((p for p in self.points if isinstance(p.seconds, bool) or not 0 < p.seconds < float("inf")), None)
        if bad is not None:
            raise ValueError(f"{bad.n_nodes} nodes after {bad.context} tokens take {bad.seconds!r} seconds")
        for shape in {point.shape for point in self.points} | {TREE}:
            own = [point for point in self.points if point.shape == shape]
            places = {(point.context, point.n_nodes) for point in own}
            lengths, sizes = {context for context, _ in places}, {n for _, n in places}
            if not own or len(places) != len(own) or len(own) != len(lengths) * len(sizes):
                raise ValueError(f"the {shape} points are no full grid of context lengths and node counts")

    @property
    def node_counts(self) -> tuple[int, ...]:
        return tuple(sorted({point.n_nodes for point in self.points}))

    @property
    def context_lengths(self) -> tuple[int, ...]:
        return tuple(sorted({point.context for point in self.points}))

    def seconds(self, n_nodes: float, context: float, is_chain: bool = False) -> float:
        """t(n, L): straight lines between the sizes, then between the lengths.

        Below the smallest size or length: its value. Above the largest: the last two points' line goes on, but never
        falls. Medians are taken as measured, so noise may make a tree look cheaper than a smaller one; nothing smooths
        it, and whoever needs a curve that only rises takes a running maximum. Chains have their own points, and those
        of trees where only trees were measured.
        """
        lengths, sizes, table = self._grids[CHAIN if is_chain and CHAIN in self._grids else TREE]
        return on_line(context, lengths, [on_line(n_nodes, sizes, row) for row in table])

    @cached_property
    def _grids(self) -> dict[str, tuple[list[int], list[int], list[list[float]]]]:
        """Shape -> lengths, sizes, seconds[length][size]."""
        grids = {}
        for shape in {point.shape for point in self.points}:
            own = {(point.context, point.n_nodes): point.seconds for point in self.points if point.shape == shape}
            lengths, sizes = sorted({context for context, _ in own}), sorted({n for _, n in own})
            grids[shape] = (lengths, sizes, [[own[length, n] for n in sizes] for length in lengths])
        return grids

    @property
    def label(self) -> str:
        """What a table says of the curve: how it came about, of what, where."""
        how = f"{self.weights} weights, engine {self.engine}" if self.kind == "measured" else "no measurement"
        return f"{self.kind} verify cost of {self.model} in {self.dtype} on {self.device} ({how})"

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits of the points, to tell two measurements of one day apart."""
        return hashlib.sha256(repr(self.points).encode()).hexdigest()[:8]

    @property
    def file_name(self) -> str:
        engine = self.engine if self.kind == "measured" else self.kind
        return "-".join([self.model, _slug(self.device), self.dtype, engine]) + ".json"

    def save(self, folder: Path = FOLDER) -> Path:
        """Writes the curve, one point a line, and returns the file."""
        record = {"schema": SCHEMA, **dataclasses.asdict(self)}
        points = ",\n".join(f"    {json.dumps(point)}" for point in record.pop("points"))
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()]
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / self.file_name
        file.write_text("{\n" + ",\n".join(lines) + ',\n  "points": [\n' + points + "\n  ]\n}\n", encoding="utf-8")
        return file


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def load_curve(file: str | Path) -> CostCurve:
    """The curve of a file that `save` wrote. Raises UserError for anything else."""
    way = "write one with scripts/measure_cost.py"
    try:
        record = json.loads(Path(file).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"there is no cost curve at {file} ({first_line(error)}); {way}") from error
    except ValueError as error:
        raise UserError(f"{file} is no cost curve ({first_line(error)}); {way}") from error
    schema = record.pop("schema", None) if isinstance(record, dict) else None
    if schema not in READABLE:
        raise UserError(f"{file} is no cost curve of schema {SCHEMA} (its schema is {schema!r}); {way}")
    try:
        points = tuple(Point(**point) for point in record.pop("points"))
        machine = Machine(**record["machine"]) if record.get("machine") else None
        return CostCurve(**{**record, "points": points, "machine": machine})
    except (TypeError, KeyError, ValueError) as error:
        raise UserError(f"{file} is an incomplete or foreign cost curve ({first_line(error)}); {way}") from error


def curve_of(config: Mapping[str, Any]) -> CostCurve | None:
    """The curve that a run's settings name, to size trees and project speed-ups; None for the machine's own."""
    return None if config.get("cost_curve") is None else load_curve(config["cost_curve"])
