"""Draws what spine, balanced and harmonic trees are expected to emit: python scripts/plot_yield.py [--out FILE].

Upper row over a_s at B = 60, lower row over B at a_s = 0.6; one column per a_t. Model, not measurement.
a_s, a_t: acceptance probability of a spine and of a branch node (goose/drafters/allocation.py).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.show.figure_yield import YieldPanel, draw_yields
from goose.drafters.allocation import best_balanced_tree, best_harmonic_tree, best_spine_tree

A_T = (0.05, 0.2, 0.4)
A_S = [round(0.01 * i, 2) for i in range(1, 96)]
BUDGETS = [2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 60, 72, 84, 96, 104, 112, 120, 128, 160, 192, 224, 256]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/figures/allocation_yield.png"))
    args = parser.parse_args()
    over_a_s = [panel([(a_s, a_t, 60) for a_s in A_S], A_S, f"$a_t$ = {a_t}, B = 60", "$a_s$") for a_t in A_T]
    over_b = [panel([(0.6, a_t, b) for b in BUDGETS], BUDGETS, f"$a_t$ = {a_t}, $a_s$ = 0.6", "B") for a_t in A_T]
    draw_yields([over_a_s, over_b], "$a_s > a_t$, yet the balanced tree is ahead", args.out)
    print(args.out)


def panel(points: list[tuple[float, float, int]], x: Sequence[float], title: str, x_label: str) -> YieldPanel:
    """One curve a kind of tree over `points`, each (a_s, a_t, B)."""
    curves = {
        "best spine tree": [best_spine_tree(*point).emitted for point in points],
        "best balanced tree, every node $a_t$": [best_balanced_tree(a_t, b).emitted for _, a_t, b in points],
        "spine tree with harmonic branches, best length": [best_harmonic_tree(*point).emitted for point in points],
    }
    spine, balanced, _ = curves.values()
    marked_x = [
        at
        for at, (a_s, a_t, _), ours, theirs in zip(x, points, spine, balanced, strict=True)
        if a_s > a_t and ours <= theirs
    ]
    marked = (min(marked_x), max(marked_x)) if marked_x else None
    return YieldPanel(title, x_label, x, curves, marked, log_x=x_label == "B", log_y=x_label != "B")


if __name__ == "__main__":
    main()
