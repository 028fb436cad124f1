"""The average tree of each method: where its nodes hang, from which source, and how often one there was accepted.

Draws tree_metrics.AverageTree and computes no metric. A node's area is the share of steps that accepted a node at its
place, its colour the source; where several sources shared a place it is a pie of what was accepted from each. A small
ring is a place that is drafted and hardly ever accepted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.path import Path as Curve

from benchmarks.metrics.tree_metrics import AverageTree
from benchmarks.show.figures import PRINTED, SOURCE_COLOURS, save_both
from goose.engine.tree import SOURCE_NAMES

AREA = 130.0  # points^2 of a node that every step accepts
RING = 5.0  # points^2 of a place that is hardly ever accepted
HARDLY = 0.004  # share of the steps below which a place is drawn as a ring
WHOLE = 0.999  # of what was accepted at a place: then it is one source's disc, not a pie
COLOURS = [SOURCE_COLOURS[name] for name in SOURCE_NAMES]
SHARES = (1.0, 0.3, 0.1, 0.03)  # of the legend


@dataclass(frozen=True)
class TreePanel:
    title: str
    subtitle: str
    tree: AverageTree


def draw_average_trees(panels: Sequence[TreePanel], title: str, stem: Path, n_columns: int = 2) -> list[Path]:
    """One panel a method, root to the left, depth to the right, the most trusted child straight on."""
    n_rows = [float(np.ptp(fishbone(panel.tree.parents))) for panel in panels]
    highest = [max(n_rows[i : i + n_columns]) for i in range(0, len(panels), n_columns)]
    inches = [0.62 + float(np.clip(0.062 * n, 0.35, 2.9)) for n in highest]
    with plt.rc_context(PRINTED):
        figure, grid = plt.subplots(
            len(inches), n_columns, squeeze=False, figsize=(3.55 * n_columns, sum(inches) + 0.85), height_ratios=inches
        )
        top, bottom = 1 - 0.72 / figure.get_figheight(), 0.32 / figure.get_figheight()
        figure.subplots_adjust(left=0.02, right=0.985, top=top, bottom=bottom, hspace=0.42, wspace=0.06)
        for panel, axes in zip(panels, grid.ravel(), strict=False):
            _draw(axes, panel)
        for axes in grid.ravel()[len(panels) :]:
            axes.axis("off")
        figure.text(0.02, 1 - 0.13 / figure.get_figheight(), title, fontsize=10, fontweight="bold", va="top")
        _legend(figure, panels)
        return save_both(figure, stem)


def fishbone(parents: Sequence[int]) -> np.ndarray:
    """float[n]: a row for every node. The first child goes straight on, the others to the emptier side, close by.

    Two nodes of one depth are at least one row apart; children follow in the order of their index.
    """
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    offset = np.zeros(len(parents))  # to the parent's row
    outlines: list[dict[int, tuple[float, float]]] = [{} for _ in parents]  # levels below -> lowest and highest row
    for node in reversed(range(len(parents))):  # children before their parents
        outline: dict[int, tuple[float, float]] = {}
        for child in children[node]:
            own = outlines[child]
            shared = [level for level in own if level + 1 in outline]
            down = max((outline[level + 1][1] - own[level][0] + 1 for level in shared), default=0.0)
            up = max((own[level][1] - outline[level + 1][0] + 1 for level in shared), default=0.0)
            offset[child] = down if down <= up else -up
            for level, (low, high) in own.items():
                moved = (low + offset[child], high + offset[child])
                old = outline.get(level + 1, moved)
                outline[level + 1] = (min(old[0], moved[0]), max(old[1], moved[1]))
        outlines[node] = {0: (0.0, 0.0), **outline}
    row = np.zeros(len(parents))
    for node, parent in enumerate(parents):
        if parent >= 0:
            row[node] = row[parent] + offset[node]
    return row


def _draw(axes, panel: TreePanel) -> None:
    tree = panel.tree
    x, y = _depths(tree.parents), fishbone(tree.parents)
    share = tree.accepted.sum(axis=1)
    drafted = [COLOURS[i] for i in tree.drafted.argmax(axis=1)]
    colours = [COLOURS[a.argmax()] if a.any() else drafted[node] for node, a in enumerate(tree.accepted)]
    _edges(axes, tree.parents, x, y, colours, share)
    # One artist for all nodes of a kind: an artist a node takes matplotlib seconds a tree.
    is_ring = share < HARDLY
    is_pie = ~is_ring & (tree.accepted.max(axis=1) < WHOLE * share)
    size = np.maximum(AREA * share, RING)
    rings, discs = np.flatnonzero(is_ring), np.flatnonzero(~is_ring & ~is_pie)
    axes.scatter(x[~is_ring], y[~is_ring], s=size[~is_ring], color="white", linewidth=1.4, zorder=2)
    ring = {"facecolor": "white", "edgecolor": [drafted[i] for i in rings], "linewidth": 0.6}
    axes.scatter(x[rings], y[rings], s=RING, zorder=3, **ring)
    axes.scatter(x[discs], y[discs], s=size[discs], color=[colours[i] for i in discs], linewidth=0, zorder=3)
    for node in np.flatnonzero(is_pie):
        _pie(axes, x[node], y[node], tree.accepted[node], size[node])
    axes.set_title(panel.title, loc="left", fontweight="bold", pad=4)
    axes.set_title(panel.subtitle, loc="right", fontsize=7, color="#555555", pad=4)
    depth = int(x.max())
    axes.set_xlim(-0.045 * max(depth, 4), max(depth, 4) * 1.03)
    room = max(0.0, 4.0 - (y.max() - y.min())) / 2 + 1.2
    axes.set_ylim(y.max() + room, y.min() - room)
    _depth_axis(axes, depth, [share[x == d].sum() for d in range(depth + 1)])


def _depths(parents: Sequence[int]) -> np.ndarray:
    depths = np.zeros(len(parents), dtype=int)
    for node, parent in enumerate(parents):
        if parent >= 0:
            depths[node] = depths[parent] + 1
    return depths


def _depth_axis(axes, depth: int, reached: Sequence[float]) -> None:
    """Below each depth, the share of the steps that accepted a node there."""
    step = ceil(depth / 7) or 1
    ticks = list(range(step if depth else 0, depth + 1, step))
    axes.set_xticks(ticks, [f"{d}\n{_percent(reached[d])}" for d in ticks])
    axes.tick_params(bottom=False, pad=1, labelsize=6.5, labelcolor="#555555")
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    for d in range(depth + 1):
        axes.axvline(d, color="#EEEEEE", lw=0.6, zorder=0)


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%" if share >= 0.095 else f"{100 * share:.1f}%"


def _edges(axes, parents: Sequence[int], x: np.ndarray, y: np.ndarray, colours: list[str], share: np.ndarray) -> None:
    """From every node's parent to the node, as wide as the share of steps that accepted it."""
    curves, looks, widths = [], [], []
    for node, parent in enumerate(parents):
        if parent >= 0:
            middle = (x[parent] + x[node]) / 2
            corners = [(x[parent], y[parent]), (middle, y[parent]), (middle, y[node]), (x[node], y[node])]
            curves.append(Curve(corners, [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4]))
            looks.append(to_rgba(colours[node], 0.35 if share[node] < HARDLY else 0.75))
            widths.append(0.45 + 3.2 * share[node] ** 0.5)
    edges = PathCollection(
        curves,
        facecolors="none",
        edgecolors=looks,
        linewidths=widths,
        capstyle="round",
        zorder=1,
        transform=axes.transData,
    )
    axes.add_collection(edges, autolim=False)  # the axes' limits are set by hand


def _pie(axes, x: float, y: float, accepted: np.ndarray, size: float) -> None:
    """A disc of the accepted share, cut by source; markers keep round whatever the axes' scales."""
    total = float(accepted.sum())
    start = 0.25  # turns; the first slice begins at the top
    for source in np.flatnonzero(accepted):
        part = float(accepted[source]) / total
        angles = 2 * np.pi * np.linspace(start, start + part, max(3, ceil(48 * part)))
        slice_ = np.concatenate([[[0.0, 0.0]], np.column_stack([np.cos(angles), np.sin(angles)])])
        # A custom marker is scaled by its own extent, so the size has to be given for this slice.
        axes.scatter(x, y, marker=slice_, s=size * np.abs(slice_).max() ** 2, color=COLOURS[source], lw=0, zorder=3)
        start += part


def _legend(figure, panels: Sequence[TreePanel]) -> None:
    used = np.sum([panel.tree.drafted[1:].sum(axis=0) for panel in panels], axis=0) > 0
    marks = {"ls": "", "marker": "o", "markeredgewidth": 0}
    handles = [
        Line2D([], [], color=COLOURS[i], ms=6.5, label=name.replace("_", " "), **marks)
        for i, name in enumerate(SOURCE_NAMES)
        if used[i]
    ]
    handles += [
        Line2D([], [], color="#999999", ms=(AREA * share) ** 0.5, label=f"{share:.0%}", **marks) for share in SHARES
    ]
    ring = {"markerfacecolor": "white", "markeredgecolor": "#999999", "markeredgewidth": 0.7}
    handles.append(Line2D([], [], ls="", marker="o", ms=RING**0.5, label="drafted, hardly ever accepted", **ring))
    place = (0.012, 1 - 0.29 / figure.get_figheight())
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=place, ncols=len(handles), frameon=False,
                  columnspacing=1.1, handletextpad=0.35, fontsize=7)  # fmt: skip
