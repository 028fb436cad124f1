"""A verify-cost curve as a table: each point beside its neighbours, the machine's limits and the conditions."""

from benchmarks.cost.curve import CostCurve, Point
from benchmarks.show.cell_table import CellTable
from benchmarks.show.format import number, percent


def cost_table(curve: CostCurve) -> CellTable:
    """Two blocks of one row a point: its time, and what the machine did in it beside what it can do.

    launch: share of the time until the forward was launched; on a CPU the two are not separate.
    """
    versions = ", ".join(f"{name} {value}" for name, value in curve.versions.items() if value is not None)
    conditions = (
        f"{curve.date}, attention {curve.attention}; {versions or 'by the formula of benchmarks.cost.measure.roofline'}"
    )
    if (limits := curve.machine) is not None:
        conditions += (
            f"\nlimits measured here: copy {limits.copy_bytes_per_s / 1e9:.1f} GB/s (read + written), read "
            f"{limits.read_bytes_per_s / 1e9:.1f} GB/s, matrix products {limits.flops_per_s / 1e9:.0f} GFLOP/s in "
            f"{limits.dtype}"
        )
    times, rates = ([row(curve, point) for point in curve.points] for row in (_time_row, _rate_row))
    return CellTable({curve.label: times, "achieved, and its share of the limits": rates}, conditions, [], [])


def _point(point: Point) -> dict[str, str]:
    return {"L": str(point.context), "nodes": str(point.n_nodes), "shape": point.shape}


def _time_row(curve: CostCurve, point: Point) -> dict[str, str]:
    return {
        **_point(point),
        "ms": number(1e3 * point.seconds, 2),
        "quartiles": f"{1e3 * point.low_s:.2f}-{1e3 * point.high_s:.2f}",
        "t(n)/t(1)": number(point.seconds / curve.seconds(1, point.context), 2),
        "launch": _share(point.launch_s, point.seconds),
    }


def _rate_row(curve: CostCurve, point: Point) -> dict[str, str]:
    limits = curve.machine
    return {
        **_point(point),
        "GB/s": number(point.bytes_per_s / 1e9, 1),
        "of copy": _share(point.bytes_per_s, limits and limits.copy_bytes_per_s),
        "of read": _share(point.bytes_per_s, limits and limits.read_bytes_per_s),
        "GFLOP/s": number(point.flops_per_s / 1e9, 0),
        "of matmul": _share(point.flops_per_s, limits and limits.flops_per_s),
    }


def _share(part: float | None, whole: float | None) -> str:
    return percent(None if part is None or whole is None else part / whole)
