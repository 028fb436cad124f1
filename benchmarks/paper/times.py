"""Table 10: where the time of a step goes, and what acceptance and the forward's cost explain of the speed-up."""

from collections.abc import Sequence

import pandas as pd

from benchmarks.paper import layout
from benchmarks.paper.layout import PaperTable, cell, facts, number, percent, speed_up_text
from benchmarks.paper.runs import Arm

PARTS = ("draft_s", "forward_s", "fetch_s", "walk_s", "commit_s", "observe_s", "other_s")


def step_times(arms: Sequence[Arm]) -> PaperTable:
    comparison = layout.main_arms(arms)
    kept = [arm for arm in comparison.arms if arm.state == "measured"]
    body, numbers = [], []
    for arm in kept:
        times = [number(1e3 * arm.step_seconds[part], 2) if arm.step_seconds else "n/a" for part in PARTS]
        explained = number(arm.numbers["decomposed_speed_up"], 2, "x")
        shares = (percent(arm.numbers["draft_overhead"]), explained, cell(arm, speed_up_text, timed=True))
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
        "mean milliseconds a step (forward: launching it, and all of it on a CPU; fetch: waiting for it; other: the "
        "drafter's begin and the loop), the drafter's share of decoding, and explained: MAL x t(1) / (t(n) + host) "
        "beside the measured speed-up",
        *layout.notes_of(comparison, shown, "make grid EXP=main or EXP=embedded", kept),
    ]
    title = "Table 10. Where the time of a step goes"
    return PaperTable("table10_step_times", title, shown, pd.DataFrame(numbers), notes)
