"""What all figures share: colours, type sizes, files with the same bytes each time; and the reliability diagram.

Only the figure*.py files import matplotlib. They draw what they are given and compute no metric.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.files import disk_errors, write_bytes_atomically

# Okabe-Ito colours: told apart by colour-blind readers and in grey.
SOURCE_COLOURS = {"root": "#000000", "context": "#0072B2", "adjacency": "#E69F00", "draft_model": "#009E73"}

GRID = {"color": "#CCCCCC", "lw": 0.5, "zorder": 0}
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
