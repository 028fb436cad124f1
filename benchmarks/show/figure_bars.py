"""Bars: a value with its interval for each method, and the parts of a step's time, stacked.

Draws what it is given and computes no metric. Nothing is told by colour alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import Patch

from benchmarks.show.figures import GRID, PRINTED, SOURCE_COLOURS, save_both

# What a method drafts from decides its colour, as in the trees.
BOTH, NOTHING = "both", "nothing"
DRAFT_COLOURS = {**SOURCE_COLOURS, BOTH: "#CC79A7", NOTHING: "#BBBBBB"}
DRAFT_LABELS = {
    "context": "context",
    "adjacency": "adjacency table",
    "draft_model": "draft model",
    BOTH: "context and table",
    NOTHING: "no draft",
}


@dataclass(frozen=True)
class Bar:
    label: str
    value: float | None
    low: float | None = None  # of the interval
    high: float | None = None
    draft: str = NOTHING  # a key of DRAFT_COLOURS
    text: str = ""  # beside the bar, or in its place


@dataclass(frozen=True)
class BarPanel:
    title: str
    bars: Sequence[Bar]


def draw_bars(
    rows: Sequence[Sequence[BarPanel]], x_label: str, stem: Path, reference: float | None = None
) -> list[Path]:
    """Horizontal bars, a panel for each cell; `reference` is a line across them, at plain decoding's 1."""
    n_columns = max(map(len, rows))
    n_bars = [max(len(panel.bars) for panel in row) for row in rows]
    largest = max((b.high or b.value or 0 for row in rows for panel in row for b in panel.bars), default=1) or 1
    with plt.rc_context(PRINTED):
        figure, grid = plt.subplots(
            len(rows), n_columns, squeeze=False, layout="constrained", sharex=True,
            figsize=(1.1 + 2.15 * n_columns, 0.55 + sum(0.19 * n + 0.42 for n in n_bars)),
            height_ratios=[n + 1.5 for n in n_bars],
        )  # fmt: skip
        for row, row_axes in zip(rows, grid, strict=True):
            for axes in row_axes[len(row) :]:
                axes.axis("off")
            for panel, axes in zip(row, row_axes, strict=False):
                _bars(axes, panel, largest, reference)
            for axes in row_axes[1 : len(row)]:
                if [bar.label for bar in row[0].bars] == [bar.label for bar in row[-1].bars]:
                    axes.tick_params(labelleft=False)
        for axes in grid[-1]:
            axes.set_xlabel(x_label)
        used = {bar.draft for row in rows for panel in row for bar in panel.bars if bar.value is not None}
        handles = [Patch(color=DRAFT_COLOURS[k], label=DRAFT_LABELS[k]) for k in DRAFT_LABELS if k in used]
        figure.legend(
            handles=handles, loc="outside upper right", ncols=len(handles) or 1, frameon=False, title="drafts from"
        )
        return save_both(figure, stem)


def _bars(axes, panel: BarPanel, largest: float, reference: float | None) -> None:
    axes.set_title(panel.title, loc="left")
    axes.set_xlim(0, 1.22 * largest)
    axes.set_ylim(len(panel.bars) - 0.4, -0.6)
    axes.xaxis.grid(True, **GRID)
    axes.set_axisbelow(True)
    if reference is not None:
        axes.axvline(reference, color="#444444", lw=0.8, ls=(0, (4, 2)), zorder=1)
    axes.set_yticks(range(len(panel.bars)), [bar.label for bar in panel.bars])
    axes.tick_params(left=False)
    for y, bar in enumerate(panel.bars):
        if bar.value is None:
            axes.text(0.01 * largest, y, bar.text, va="center", fontsize=6.5, style="italic", color="#666666")
            continue
        axes.barh(y, bar.value, height=0.72, color=DRAFT_COLOURS[bar.draft], zorder=2)
        end = bar.value
        if bar.low is not None and bar.high is not None:
            interval = [[max(0.0, bar.value - bar.low)], [max(0.0, bar.high - bar.value)]]
            style = {"ecolor": "#222222", "elinewidth": 0.8, "capsize": 1.8, "capthick": 0.8}
            axes.errorbar(bar.value, y, xerr=interval, fmt="none", zorder=3, **style)
            end = max(bar.high, bar.value)
        axes.text(end + 0.02 * largest, y, bar.text, va="center", fontsize=6.5, zorder=4)


# --- where the time of a step goes -----------------------------------------------------------------------------------

PART_LOOKS = {
    "forward": ("#0072B2", ""),
    "fetch": ("#56B4E9", ""),
    "draft": ("#E69F00", ""),
    "observe": ("#F0C066", "////"),
    "walk": ("#009E73", ""),
    "commit": ("#CC79A7", "...."),
    "other": ("#BBBBBB", ""),
}


@dataclass(frozen=True)
class TimePanel:
    title: str
    bars: dict[str, dict[str, float]]  # method -> part of PART_LOOKS -> milliseconds per step


def draw_times(panels: Sequence[TimePanel], stem: Path) -> list[Path]:
    """A row per panel: all parts of a step on the left; on the right the host's alone, which the forward would hide."""
    host = [part for part in PART_LOOKS if part not in ("forward", "fetch")]
    with plt.rc_context(PRINTED):
        n_bars = [len(panel.bars) for panel in panels]
        figure, grid = plt.subplots(
            len(panels), 2, squeeze=False, layout="constrained", sharex="col",
            figsize=(6.6, 0.75 + sum(0.19 * n + 0.38 for n in n_bars)), height_ratios=[n + 1.3 for n in n_bars],
        )  # fmt: skip
        for panel, (left, right) in zip(panels, grid, strict=True):
            _stack(left, panel, list(PART_LOOKS))
            _stack(right, panel, host)
            left.set_title(panel.title, loc="left")
            right.set_title("of it, the host's work", loc="left")
            right.tick_params(labelleft=False)
        for axes in grid[-1]:
            axes.set_xlabel("milliseconds a step (mean)")
        handles = [
            Patch(facecolor=c, hatch=h, edgecolor="white" if h else c, label=part)
            for part, (c, h) in PART_LOOKS.items()
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), frameon=False, handlelength=1.2)
        return save_both(figure, stem)


def _stack(axes, panel: TimePanel, parts: Sequence[str]) -> None:
    axes.xaxis.grid(True, **GRID)
    axes.set_axisbelow(True)
    for y, times in enumerate(panel.bars.values()):
        left = 0.0
        for part in parts:
            colour, hatch = PART_LOOKS[part]
            width = max(0.0, times[part])
            look = {"color": colour, "hatch": hatch, "edgecolor": "white" if hatch else colour, "linewidth": 0}
            axes.barh(y, width, left=left, height=0.72, zorder=2, **look)
            left += width
    axes.set_yticks(range(len(panel.bars)), list(panel.bars))
    axes.set_ylim(len(panel.bars) - 0.4, -0.6)
    axes.tick_params(left=False)
