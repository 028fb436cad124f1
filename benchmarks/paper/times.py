"""Tables 10 and 11: where the time of a step goes, and what the recorded steps gain at another verification cost."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from benchmarks import metrics
from benchmarks.cost.curve import CostCurve, load_curve
from benchmarks.errors import UserError
from benchmarks.paper import layout
from benchmarks.paper.layout import PaperTable, cell, facts, speed_up_text
from benchmarks.paper.runs import Arm
from benchmarks.record.turn import BASELINE
from benchmarks.show.format import NOT_AVAILABLE, number, percent

MAKE_CURVE = "python scripts/measure_cost.py model=MODEL"
PARTS = ("draft_s", "forward_s", "fetch_s", "walk_s", "commit_s", "observe_s", "other_s")


def step_times(arms: Sequence[Arm]) -> PaperTable:
    comparison = layout.main_arms(arms)
    kept = [arm for arm in comparison.arms if arm.state == "measured"]
    body, numbers = [], []
    for arm in kept:
        times = [number(1e3 * arm.step_seconds[part], 2) if arm.step_seconds else NOT_AVAILABLE for part in PARTS]
        explained = number(arm.numbers["decomposed_speed_up"], 2, "x")
        shares = (percent(arm.numbers["draft_overhead"], 1, " %"), explained, cell(arm, speed_up_text, timed=True))
        body.append((arm.run.model, arm.run.dataset, arm.method, *times, *shares))
        numbers.append(
            facts(arm)
            | arm.step_seconds
            | {n: arm.numbers[n] for n in ("draft_overhead", "decomposed_speed_up", "speed_up")}
        )
    columns = [
        "model",
        "dataset",
        "method",
        *(part.removesuffix("_s") for part in PARTS),
        "drafter",
        "explained",
        "speed-up",
    ]
    shown = pd.DataFrame(body, columns=columns)
    notes = [
        "mean milliseconds per step (forward: launching it, on a CPU all of it; fetch: waiting for it; other: the "
        "drafter's begin and the loop), the drafter's share of decoding, and explained: MAL x t(1) / (t(n) + host) "
        "beside the measured speed-up",
        *layout.notes_of(comparison, shown, "make grid EXP=main or EXP=embedded", kept),
    ]
    title = "Table 10. Where the time of a step goes"
    return PaperTable("table10_step_times", title, shown, pd.DataFrame(numbers), notes)


def load_curves(folder: Path) -> tuple[list[CostCurve], list[str]]:
    """The cost curves of a folder, and a sentence for every file that is none."""
    curves, problems = [], []
    for file in sorted(folder.glob("*.json")):
        try:
            curves.append(load_curve(file))
        except UserError as error:
            problems.append(f"left out: {error}")
    return curves, problems


def projected(arms: Sequence[Arm], curves: Sequence[CostCurve]) -> PaperTable:
    """The recorded steps of the main arms at the verify cost of each curve."""
    comparison = layout.main_arms(arms)
    kept = [arm for arm in comparison.arms if arm.method != BASELINE]
    datasets = layout.datasets_of(kept)
    body, numbers = [], []
    for curve in curves:
        seconds = cache(curve.seconds)  # shared by the arms: they meet the same sizes and lengths
        found = {}
        for arm in kept:
            if arm.state == "measured":
                value = metrics.projected_speed_up([{"steps": arm.steps}], seconds)
                found[arm.run.model, arm.method, arm.run.dataset] = value
                numbers.append({"curve": curve.label} | facts(arm) | {"projected_speed_up": value})
        for model in layout.models_of(kept):
            for method in layout.methods_of(arm for arm in kept if arm.run.model == model):
                values = [found.get((model, method, dataset), layout.NOT_RUN) for dataset in datasets]
                texts = [value if isinstance(value, str) else number(value, 2, "x") for value in values]
                body.append((curve.label, model, method, *texts))
    shown = pd.DataFrame(body, columns=["curve", "model", "method", *datasets])
    notes = [
        "projected, not measured: seconds of plain decoding of the same text / seconds of the method, both from the "
        "recorded steps (nodes and context length of each) at the curve's verification cost; prefill, commits and "
        "the host's work are not included",
        *([] if curves else [f"no cost curve in results/cost: {MAKE_CURVE}"]),
        *layout.notes_of(comparison, shown, "make grid EXP=main or EXP=embedded", kept),
    ]
    title = "Table 11. Projected speed-ups"
    return PaperTable("table11_projected", title, shown, pd.DataFrame(numbers), notes)
