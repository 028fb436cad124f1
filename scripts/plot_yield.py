"""Draws what spine, balanced and harmonic trees are expected to emit: python scripts/plot_yield.py [--out FILE].

Upper row over p_s at B = 60, lower row over B at p_s = 0.6; one column a p_t. Model, not measurement.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.show.figure_yield import YieldPanel, draw_yields
from goose.drafters.allocation import best_balanced_tree, best_harmonic_tree, best_spine_tree

P_T = (0.05, 0.2, 0.4)
P_S = [round(0.01 * i, 2) for i in range(1, 96)]
BUDGETS = [2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 60, 72, 84, 96, 104, 112, 120, 128, 160, 192, 224, 256]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/figures/allocation_yield.png"))
    args = parser.parse_args()
    over_p_s = [panel([(p_s, p_t, 60) for p_s in P_S], P_S, f"$p_t$ = {p_t}, B = 60", "$p_s$") for p_t in P_T]
    over_b = [panel([(0.6, p_t, b) for b in BUDGETS], BUDGETS, f"$p_t$ = {p_t}, $p_s$ = 0.6", "B") for p_t in P_T]
    draw_yields([over_p_s, over_b], "$p_s > p_t$, yet the balanced tree is ahead", args.out)
    print(args.out)


def panel(points: list[tuple[float, float, int]], x: Sequence[float], title: str, x_label: str) -> YieldPanel:
    """One curve a kind of tree over `points`, each (p_s, p_t, B)."""
    curves = {
        "best spine tree": [best_spine_tree(*point).emitted for point in points],
        "best balanced tree, every node $p_t$": [best_balanced_tree(p_t, b).emitted for _, p_t, b in points],
        "spine tree with harmonic branches, best length": [best_harmonic_tree(*point).emitted for point in points],
    }
    spine, balanced, _ = curves.values()
    marked_x = [
        at
        for at, (p_s, p_t, _), ours, theirs in zip(x, points, spine, balanced, strict=True)
        if p_s > p_t and ours <= theirs
    ]
    marked = (min(marked_x), max(marked_x)) if marked_x else None
    return YieldPanel(title, x_label, x, curves, marked, log_x=x_label == "B", log_y=x_label != "B")


if __name__ == "__main__":
    main()
