"""Figures of one tree and of the theory, and what all figures share.

The plot*.py files alone import matplotlib. They draw what they are given and compute no metric.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.files import disk_errors, write_bytes_atomically
from goose.engine.tree import SOURCE_NAMES

# Okabe-Ito colours: told apart by colour-blind readers and in grey.
SOURCE_COLOURS = {"root": "#000000", "context": "#0072B2", "adjacency": "#E69F00", "draft_model": "#009E73"}


PRINTED = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.6,
    "pdf.fonttype": 42,  # text stays text
}


def save_both(figure, stem: Path) -> list[Path]:
    """STEM.png and STEM.pdf, the same bytes for the same figure: no date and no version in them."""
    files = [stem.with_suffix(".png"), stem.with_suffix(".pdf")]
    with disk_errors(stem.parent):
        stem.parent.mkdir(parents=True, exist_ok=True)
    for file, unstable in zip(files, ("Software", "CreationDate"), strict=True):
        drawn = io.BytesIO()
        look = {"dpi": 200, "bbox_inches": "tight", "pad_inches": 0.05, "metadata": {unstable: None}}
        figure.savefig(drawn, format=file.suffix[1:], **look)
        write_bytes_atomically(file, drawn.getvalue())
    plt.close(figure)
    return files


def draw_tree(
    parents: Sequence[int],
    sources: Sequence[int],
    path: Sequence[int],
    labels: Sequence[str],
    title: str,
    file: Path,
) -> None:
    """One draft tree, depth to the right: colour = source, filled = accepted. PNG or PDF by the file's ending."""
    depth, row = layout(parents)
    accepted = set(path)
    n_rows = max(row) + 1
    figure, axes = plt.subplots(figsize=(min(14.0, 2.0 + 0.85 * max(depth)), 0.9 + 0.2 * n_rows))
    for node, parent in enumerate(parents):
        colour = SOURCE_COLOURS[SOURCE_NAMES[sources[node]]]
        if parent >= 0:
            line = {"color": colour, "lw": 2.2 if node in accepted else 0.7, "zorder": 1}
            axes.plot([depth[parent], depth[node]], [-row[parent], -row[node]], **line)
        fill = colour if node in accepted else "white"
        axes.scatter(depth[node], -row[node], s=34, color=fill, edgecolors=colour, linewidths=1.2, zorder=2)
        axes.annotate(
            labels[node], (depth[node], -row[node]), (0, 5), textcoords="offset points", fontsize=6, ha="center"
        )
    for name in dict.fromkeys(SOURCE_NAMES[s] for s in sources):
        axes.scatter([], [], s=34, color=SOURCE_COLOURS[name], label=name)
    axes.legend(loc="lower right", frameon=False, fontsize=8, title="filled: accepted", title_fontsize=8)
    axes.set_title(title, fontsize=9, loc="left")
    axes.axis("off")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=160, bbox_inches="tight")
    plt.close(figure)


def draw_reliability(bins: Sequence[dict[str, float]], title: str, file: Path) -> None:
    """A reliability diagram of bins {n, chance, said}: what was forecast against what came true, and of how many.

    Written as `save_both` writes; `file` is the stem.
    """
    forecast, came, counts = ([row[key] for row in bins] for key in ("chance", "said", "n"))
    with plt.rc_context(PRINTED):
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(3.2, 3.8), sharex=True, height_ratios=(3, 1), layout="constrained"
        )
        above.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, linestyle="--", label="calibrated")
        above.plot(forecast, came, marker="o", markersize=4, color=SOURCE_COLOURS["context"], label="measured")
        above.set(ylabel="share that came true", title=title, ylim=(0, 1))
        above.legend(frameon=False, loc="upper left")
        below.bar(forecast, counts, width=0.06, color=SOURCE_COLOURS["adjacency"])
        below.set(xlabel="forecast chance", ylabel="candidates", yscale="log", xlim=(0, 1))
        save_both(figure, file)


def layout(parents: Sequence[int]) -> tuple[list[int], list[int]]:
    """Depth and row of every node: a node's first child continues its row, every other leaf opens a new one."""
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    depth, row = [0] * len(parents), [0] * len(parents)
    next_row = 0
    stack = [0]
    while stack:
        node = stack.pop()
        if parents[node] >= 0:
            depth[node] = depth[parents[node]] + 1
            first = children[parents[node]][0] == node
            row[node] = row[parents[node]] if first else next_row
        next_row = max(next_row, row[node] + 1)
        stack += reversed(children[node])
    return depth, row


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
