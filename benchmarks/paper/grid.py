"""Tables 1, 2 and 8: speed-up over plain decoding, acceptance length, and whether the output stayed the same."""

from collections.abc import Callable, Sequence

import pandas as pd

from benchmarks.paper import layout
from benchmarks.paper.compare import Comparison, side_by_side
from benchmarks.paper.layout import PaperTable, cell, facts, speed_up_text
from benchmarks.paper.runs import Arm
from benchmarks.record.turn import BASELINE
from benchmarks.show.format import number

MADE_BY = "make grid EXP=main (the paper's 5 x 5 grid) or EXP=embedded"
SPEED = ("speed_up", "speed_up_low", "speed_up_high", "mean_of_ratios", "tokens_per_second")
SPEED_END_TO_END = (*SPEED, "end_to_end_tokens_per_second", "repeat_spread")
LENGTH = ("mal", "tau", "mean_nodes", "max_nodes", "empty_draft_share", "draft_acceptance")


def speed_up(arms: Sequence[Arm]) -> PaperTable:
    comparison = layout.main_arms(arms)
    shown = _methods_by_datasets(comparison, speed_up_text, timed=True)
    notes = [
        "ratio of totals: tokens/s of the method / tokens/s of plain decoding in the same run; in brackets the 95 % "
        "interval of a paired bootstrap over prompts; decoding alone, without the prefill",
        *layout.notes_of(comparison, shown, MADE_BY),
    ]
    numbers = _numbers(comparison.arms, SPEED_END_TO_END)
    return PaperTable("table1_speed_up", "Table 1. Speed-up over plain decoding", shown, numbers, notes)


def acceptance_length(arms: Sequence[Arm]) -> PaperTable:
    comparison = layout.main_arms(arms)
    shown = _methods_by_datasets(
        comparison, lambda arm: f"{number(arm.numbers['mal'], 2)} / {number(arm.numbers['tau'], 2)}"
    )
    notes = [
        "MAL / tau. MAL: emitted tokens / steps, bonus included, prefill not a step. tau (the GOOSE paper's): "
        "generated tokens / target forwards, prefill counted as a forward",
        *layout.notes_of(comparison, shown, MADE_BY),
    ]
    title = "Table 2. Mean acceptance length and tau"
    return PaperTable("table2_acceptance_length", title, shown, _numbers(comparison.arms, LENGTH), notes)


def lossless(arms: Sequence[Arm]) -> PaperTable:
    comparison = side_by_side(arms)
    rows = [_lossless_row(arm) for arm in _sorted(comparison.arms)]
    columns = ["model", "dataset", "B", "T", "method", "outputs", "first divergence"]
    shown = pd.DataFrame([{c: row[c] for c in columns} for row in rows], columns=columns)
    notes = [
        "outputs: equal to plain decoding's / compared. In fp32 any other output is broken; in half precision a "
        "divergence is judged again in fp32: a tie when both tokens lie within the numeric spread of the best",
        *layout.notes_of(comparison, shown, MADE_BY),
    ]
    numbers = pd.DataFrame([row["numbers"] for row in rows])
    return PaperTable("table8_lossless", "Table 8. Losslessness", shown, numbers, notes)


def cells(arms: Sequence[Arm]) -> pd.DataFrame:
    """Every arm of every run with every number, also of the runs that no table shows: results/tables/cells.csv."""
    return pd.DataFrame([facts(arm) | arm.numbers | arm.step_seconds for arm in _sorted(arms)])


def _methods_by_datasets(comparison: Comparison, text: Callable[[Arm], str], timed: bool = False) -> pd.DataFrame:
    """One row per model and method, one column per dataset; then the paper's models without a run."""
    arms = [arm for arm in comparison.arms if arm.method != BASELINE]
    datasets = layout.datasets_of(arms)
    rows = []
    for model in layout.models_of(arms):
        own = [arm for arm in arms if arm.run.model == model]
        rows += [(model, own[0].run.node_budget, method) for method in layout.methods_of(own)]
    shown = layout.by_dataset(arms, rows, datasets, text, timed)
    return pd.concat([shown, layout.not_run_models(arms, list(shown.columns))], ignore_index=True)


def _numbers(arms: Sequence[Arm], names: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame([facts(arm) | {name: arm.numbers.get(name) for name in names} for arm in _sorted(arms)])


def _sorted(arms: Sequence[Arm]) -> list[Arm]:
    models, datasets, methods = layout.models_of(arms), layout.datasets_of(arms), layout.methods_of(arms)

    def place(arm: Arm) -> tuple:
        run = arm.run
        return (
            models.index(run.model),
            datasets.index(run.dataset),
            run.node_budget,
            run.temperature,
            methods.index(arm.method),
        )

    return sorted(arms, key=place)


def _lossless_row(arm: Arm) -> dict:
    verdict, first = arm.losslessness, arm.first_divergence
    where = "" if first is None else f"{first['prompt_id']}, token {first['index']}"
    facts_of_it = (
        ""
        if first is None
        else ", ".join(
            f"{name} {first[name]:.2g}" for name in ("margin", "gap_fp32", "spread") if first.get(name) is not None
        )
    )
    return {
        "model": arm.run.model,
        "dataset": arm.run.dataset,
        "B": str(arm.run.node_budget),
        "T": f"{arm.run.temperature:g}",
        "method": arm.method,
        "outputs": cell(arm, lambda arm: str(verdict) if arm.is_judged else f"{verdict} ({layout.NOT_JUDGED})"),
        "first divergence": ": ".join(part for part in (where, facts_of_it) if part),
        "numbers": facts(arm)
        | {"outputs": verdict.n_outputs, "equal": verdict.n_equal, "ties": verdict.n_ties, "broken": verdict.broken}
        | {
            f"first_{name}": (first or {}).get(name) for name in ("prompt_id", "index", "margin", "gap_fp32", "verdict")
        },
    }
