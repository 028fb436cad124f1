"""The paper's figures but the average tree: bars with intervals, the acceptance gap, curves, stacked times.

Draws what it is given and computes no metric. Every function takes panels and the stem of its files, and writes PNG and
PDF. Colours are Okabe and Ito's, and nothing is told by colour alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullLocator

from benchmarks.show.figures import PRINTED, SOURCE_COLOURS, save_both

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
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#8C6D00", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", "--", "-.", ":")
GRID = {"color": "#CCCCCC", "lw": 0.5, "zorder": 0}


# --- bars ------------------------------------------------------------------------------------------------------------


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
    """Horizontal bars, one panel a cell; `reference` is a line across them, at plain decoding's 1."""
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


# --- acceptance gap --------------------------------------------------------------------------------------------------


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


# --- curves ----------------------------------------------------------------------------------------------------------


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
    bars: dict[str, dict[str, float]]  # method -> part of PART_LOOKS -> milliseconds a step


def draw_times(panels: Sequence[TimePanel], stem: Path) -> list[Path]:
    """A row a panel: all parts of a step to the left; to the right the host's alone, which the forward would hide."""
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
