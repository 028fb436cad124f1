"""The acceptance gap: p_s and p_t of every cell on one logarithmic axis."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from benchmarks.show.figures import GRID, PRINTED, SOURCE_COLOURS, save_both


@dataclass(frozen=True)
class Gap:
    group: str  # the model
    label: str  # the dataset
    p_s: float
    p_t: float


def draw_gap(gaps: Sequence[Gap], stem: Path) -> list[Path]:
    """p_s and p_t of every cell on one logarithmic axis, joined, with their ratio."""
    groups = list(dict.fromkeys(gap.group for gap in gaps))
    rows: list[Gap | str] = []
    for group in groups:
        rows += [group, *(gap for gap in gaps if gap.group == group)]
    with plt.rc_context(PRINTED):
        figure, axes = plt.subplots(figsize=(4.8, 0.8 + 0.21 * len(rows)), layout="constrained")
        for y, row in enumerate(rows):
            if isinstance(row, str):
                continue
            axes.plot([row.p_t, row.p_s], [y, y], color="#AAAAAA", lw=2.2, solid_capstyle="round", zorder=1)
            axes.scatter(row.p_t, y, s=34, marker="s", color=SOURCE_COLOURS["adjacency"], zorder=2)
            axes.scatter(row.p_s, y, s=38, marker="o", color=SOURCE_COLOURS["context"], zorder=2)
            text = {"va": "center", "fontsize": 7, "textcoords": "offset points"}
            axes.annotate(f"{row.p_s / row.p_t:.1f}x", (max(row.p_s, row.p_t), y), (7, 0), **text)
        axes.set_yticks(range(len(rows)), [row if isinstance(row, str) else row.label for row in rows])
        for label, row in zip(axes.get_yticklabels(), rows, strict=True):
            label.set_fontweight("bold" if isinstance(row, str) else "normal")
        axes.set_ylim(len(rows) - 0.4, -0.6)
        _log_axis(axes, [p for gap in gaps for p in (gap.p_s, gap.p_t)])
        axes.xaxis.grid(True, **GRID)
        axes.tick_params(left=False)
        axes.set_xlabel("accepted / drafted")
        handles = [
            Line2D(
                [], [], ls="", marker="s", ms=5.5, color=SOURCE_COLOURS["adjacency"], label="$p_t$, adjacency table"
            ),
            Line2D([], [], ls="", marker="o", ms=6, color=SOURCE_COLOURS["context"], label="$p_s$, context"),
        ]
        figure.legend(handles=handles, loc="outside upper right", ncols=2, frameon=False)
        return save_both(figure, stem)


def _log_axis(axes, values: Sequence[float]) -> None:
    ticks = [m * 10.0**e for e in range(-5, 1) for m in (1, 2, 5)]
    low, high = min(values), max(values)
    axes.set_xscale("log")
    axes.set_xlim(low / 1.35, high * 1.7)
    inside = [tick for tick in ticks if low / 1.35 <= tick <= min(1.0, high * 1.7)]
    axes.xaxis.set_major_locator(FixedLocator(inside))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
