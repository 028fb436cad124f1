"""Cost curves made by hand. Not a test file."""

from benchmarks.cost.curve import TREE, CostCurve, Point


def point(context: int, n_nodes: int, seconds: float, shape: str = TREE) -> Point:
    return Point(shape, context, n_nodes, seconds, seconds * 0.9, seconds * 1.1, None, n_bytes=600, n_flops=1200)


def curve_of(*points: Point, **fields) -> CostCurve:
    known = {
        "kind": "measured", "model": "m", "weights": "random", "device": "NVIDIA H200", "dtype": "bfloat16",
        "engine": "graph", "attention": "grouped", "versions": {"torch": "2.13.0", "threads": 2}, "date": "2026-01-01",
    }  # fmt: skip
    return CostCurve(**{**known, **fields}, points=points)
