"""What allocation rules are expected to emit, as curves (scripts/plot_yield.py): theory, not measurement."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt

# Colour, dashes and width of a yield figure's curves, told apart without colour too.
YIELD_STYLES = (("#0072B2", "-", 2.0), ("#E69F00", "--", 2.0), ("#009E73", ":", 2.4))


@dataclass(frozen=True)
class YieldPanel:
    """Curves over one x axis. `marked` is an x interval to shade."""

    title: str
    x_label: str
    x: Sequence[float]
    curves: dict[str, Sequence[float]]  # name -> expected emitted tokens, one an x
    marked: tuple[float, float] | None = None
    log_x: bool = False
    log_y: bool = False


def draw_yields(rows: Sequence[Sequence[YieldPanel]], marked_label: str, file: Path) -> None:
    """A grid of panels with one legend; every panel has the same curves, in the order of YIELD_STYLES."""
    n_columns = len(rows[0])
    size = (3.3 * n_columns, 2.7 * len(rows) + 0.5)
    figure, grid = plt.subplots(len(rows), n_columns, figsize=size, squeeze=False, sharey="row", layout="constrained")
    for row, row_axes in zip(rows, grid, strict=True):
        row_axes[0].set_ylabel("expected tokens a step", fontsize=9)
        for panel, axes in zip(row, row_axes, strict=True):
            if panel.marked:
                axes.axvspan(*panel.marked, color="#999999", alpha=0.3, lw=0)
            for (name, y), (colour, dashes, width) in zip(panel.curves.items(), YIELD_STYLES, strict=True):
                axes.plot(panel.x, y, color=colour, ls=dashes, lw=width, label=name)
            _yield_axes(axes, panel)
    handles, names = grid[0][0].get_legend_handles_labels()
    handles.append(plt.Rectangle((0, 0), 1, 1, color="#999999", alpha=0.3, lw=0))
    legend = {"loc": "outside upper left", "ncols": 2, "frameon": False, "fontsize": 9}
    figure.legend(handles, [*names, marked_label], **legend)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=160)
    plt.close(figure)


def _yield_axes(axes, panel: YieldPanel) -> None:
    axes.set_title(panel.title, fontsize=9, loc="left")
    axes.set_xlabel(panel.x_label, fontsize=9)
    if panel.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    if panel.log_y:
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25, lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)
