"""Curves in a grid of panels with one legend: sizes, expectations, deltas, verification cost.

Draws what it is given and computes no metric. Nothing is told by colour alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from benchmarks.show.figures import GRID, PRINTED, save_both

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#8C6D00", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class CurvePanel:
    title: str
    curves: dict[str, tuple[Sequence[float], Sequence[float]]]  # name -> x, y
    x_label: str
    y_label: str
    log_x: bool = False
    log_y: bool = False
    from_zero: bool = False
    diagonal: str = ""  # the name of the line y = x, where there is one
    bands: dict[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)  # name -> low, high


def draw_curves(rows: Sequence[Sequence[CurvePanel]], stem: Path, legend_title: str = "") -> list[Path]:
    """A grid of panels with one legend; a name keeps its colour, marker and dashes in all of them."""
    n_columns = max(map(len, rows))
    names = list(dict.fromkeys(name for row in rows for panel in row for name in panel.curves))
    look = {
        name: {"color": PALETTE[i % 9], "marker": MARKERS[i % 9], "ls": DASHES[i // 3 % 4], "ms": 4, "lw": 1.4}
        for i, name in enumerate(names)
    }
    with plt.rc_context(PRINTED):
        size = (0.4 + 2.6 * n_columns, 0.5 + 0.18 * ((len(names) + 3) // 4) + 2.1 * len(rows))
        figure, grid = plt.subplots(len(rows), n_columns, squeeze=False, layout="constrained", figsize=size)
        for row, row_axes in zip(rows, grid, strict=True):
            for axes in row_axes[len(row) :]:
                axes.axis("off")
            for i, (panel, axes) in enumerate(zip(row, row_axes, strict=False)):
                _curves(axes, panel, look)
                same = i > 0 and panel.y_label == row[0].y_label
                axes.set_ylabel("" if same else panel.y_label)
        handles = [Line2D([], [], label=name, **look[name]) for name in names]
        diagonal = next((panel.diagonal for row in rows for panel in row if panel.diagonal), "")
        if diagonal:
            handles.append(Line2D([], [], color="#888888", lw=1, ls=(0, (4, 2)), label=diagonal))
        columns = min(4, len(handles))
        figure.legend(
            handles=handles, loc="outside upper left", ncols=columns, frameon=False, title=legend_title or None
        )
        return save_both(figure, stem)


def _curves(axes, panel: CurvePanel, look: dict[str, dict]) -> None:
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(panel.x_label)
    axes.grid(True, **GRID)
    axes.set_axisbelow(True)
    for name, (x, y) in panel.curves.items():
        axes.plot(x, y, **look[name], markeredgecolor="white", markeredgewidth=0.5, zorder=3)
        if name in panel.bands:
            axes.fill_between(x, *panel.bands[name], color=look[name]["color"], alpha=0.15, lw=0, zorder=2)
    if panel.diagonal:
        ends = [v for x, y in panel.curves.values() for v in (*x, *y)]
        axes.plot([min(ends), max(ends)], [min(ends), max(ends)], color="#888888", lw=1, ls=(0, (4, 2)), zorder=1)
    if panel.log_x:
        axes.set_xscale("log", base=2)
        ticks = sorted({v for x, _ in panel.curves.values() for v in x})
        axes.xaxis.set_major_locator(FixedLocator(_spread_out(ticks)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter("{x:g}")
    if panel.log_y:
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
    if panel.from_zero:
        axes.set_ylim(bottom=0)


def _spread_out(ticks: Sequence[float]) -> list[float]:
    """Those that stand at least a factor of 1.6 apart, from the largest down."""
    kept: list[float] = []
    for tick in sorted(ticks, reverse=True):
        if not kept or kept[-1] / max(tick, 1e-12) >= 1.6:
            kept.append(tick)
    return sorted(kept)
