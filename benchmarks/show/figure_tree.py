"""One recorded draft tree as a picture (scripts/draw_tree.py): colour = source, filled = accepted."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from benchmarks.show.figures import SOURCE_COLOURS
from goose.engine.tree import SOURCE_NAMES


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
