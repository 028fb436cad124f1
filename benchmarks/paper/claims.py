"""Table 9: the published numbers of results/paper/claims.csv beside ours, and for each whether it was reproduced.

The file's columns: table, model, dataset, method, metric, value, source. model `paper`: the five models of the GOOSE
paper; dataset `all`: every dataset of its grid. value: a number, `low..high`, or `<x`. metric: a name of METRICS, with
`mean`, `median` or `max` before it where the claim is about all cells together. source ends in `[conditions]`: the
hardware, and key=value of settings of the run or of the method, separated by `;`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, nextafter
from pathlib import Path

import pandas as pd

from benchmarks.errors import UserError
from benchmarks.paper import layout
from benchmarks.paper.claim_metrics import METRICS, STATISTICS, Metric
from benchmarks.paper.compare import side_by_side
from benchmarks.paper.layout import PAPER_DATASETS, PAPER_MODELS, PaperTable
from benchmarks.paper.runs import Arm

FILE = Path("results/paper/claims.csv")
COLUMNS = ["table", "model", "dataset", "method", "metric", "value", "source"]
BAND = 0.10
SHARE = 0.95  # of our cells that have to lie in a published range; the paper's own is 24 of 25
REPRODUCED, NOT_REPRODUCED, NOT_COMPARABLE = "reproduced", "not reproduced", "not comparable"
# A claim about `goose` is judged on both of our variants: the strict budget, and the published code's elastic one.
VARIANTS = {"goose": ("goose", "goose_elastic")}
RULE = (
    "a claim is judged on runs of its own model, dataset, method and stated settings: reproduced when the published "
    "value lies in our 95 % interval or ours within 10 % of it; a range, when 95 % of our cells lie in it. A speed-up "
    "measured on other hardware is not comparable. What compares numbers of one run (a gain, a ratio, an order) is "
    "judged on our other models too, by the same rule: in kind"
)


@dataclass(frozen=True)
class Claim:
    table: str
    model: str
    dataset: str
    method: str
    metric: str
    value: str
    source: str

    @property
    def statistic(self) -> str | None:
        """mean | median | max over the cells; None: each cell for itself."""
        first = self.metric.partition(" ")[0]
        return first if first in STATISTICS else None

    @property
    def quantity(self) -> str:
        return self.metric.removeprefix(f"{self.statistic} ")

    @property
    def conditions(self) -> list[str]:
        found = re.search(r"\[([^\]]*)\]$", self.source)
        return [part.strip() for part in found.group(1).split(";") if part.strip()] if found else []


@dataclass(frozen=True)
class Judgement:
    claim: Claim
    method: str  # ours
    verdict: str
    why: str
    ours: list[float] = field(default_factory=list)  # one per cell, or the one statistic over them


def load_claims(file: Path = FILE) -> list[Claim]:
    """The claims of a CSV file. Raises UserError where a column or a value is wrong."""
    try:
        frame = pd.read_csv(file, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise UserError(f"{file} could not be read ({error}); it holds the published numbers") from error
    if list(frame.columns) != COLUMNS:
        raise UserError(f"{file}: expected the columns {', '.join(COLUMNS)}, found {', '.join(frame.columns)}")
    claims = [Claim(**row) for row in frame.to_dict("records")]
    for number, claim in enumerate(claims, start=2):
        try:
            bounds(claim.value)
        except ValueError as error:
            raise UserError(f"{file}, line {number}: {error}") from error
    return claims


def bounds(value: str) -> tuple[float, float]:
    """The range that a published value stands for: `low..high` and `<x` as they say, a number with the 10 % band."""
    try:
        if ".." in value:
            low, high = map(float, value.split(".."))
            return low, high
        if value.startswith("<"):
            return -inf, nextafter(float(value[1:]), -inf)
        number = float(value)
    except ValueError:
        raise ValueError(f"a value is a number, low..high or <x, got {value!r}") from None
    low, high = sorted((number * (1 - BAND), number * (1 + BAND)))
    return low, high


# --- judging ---------------------------------------------------------------------------------------------------------


def judge(claim: Claim, arms: Sequence[Arm]) -> list[Judgement]:
    """The claim against `arms`, which may stand side by side: one judgement for each of our variants of the method."""
    metric = METRICS.get(claim.quantity)
    if metric is None:
        return [Judgement(claim, claim.method, NOT_COMPARABLE, "not measured by this harness")]
    found = [_judge_method(claim, metric, method, arms) for method in VARIANTS.get(claim.method, (claim.method,))]
    with_runs = [judgement for judgement in found if judgement.ours]
    return with_runs or found[:1]


def _judge_method(claim: Claim, metric: Metric, method: str, arms: Sequence[Arm]) -> Judgement:
    wanted = next((float(c.partition("=")[2]) for c in claim.conditions if c.startswith("temperature=")), 0.0)
    named = [arm for arm in arms if (arm.stem if metric.is_sweep else arm.method) == method]
    measured = [arm for arm in named if arm.state == "measured" and arm.run.temperature == wanted]
    own = [arm for arm in measured if _of_claim(claim, arm)]
    reasons = {reason for arm in own for reason in _misfits(claim, metric, arm)}
    fitting = [arm for arm in own if not _misfits(claim, metric, arm)]
    where, cells = "", fitting
    if not fitting and metric.in_kind:
        cells = measured
        where = f"in kind, on {', '.join(layout.models_of(cells))}: " if cells else ""
    if not cells:
        absent = f"no run of {method} on {claim.model}, {claim.dataset}"
        return Judgement(claim, method, NOT_COMPARABLE, "; ".join(sorted(reasons)) or absent)
    if not metric.is_sweep:
        cells = _at_main_budget(cells)
    values = [(arm, value) for arm in cells if (value := metric.value(arm, _neighbours(arm, arms))) is not None]
    if not values:
        return Judgement(claim, method, NOT_COMPARABLE, f"{where}no number: the runs lack what it is computed from")
    low, high = bounds(claim.value)
    if claim.statistic:
        ours = [STATISTICS[claim.statistic](value for _, value in values)]
        held = [low <= ours[0] <= high]
    else:
        ours = [value for _, value in values]
        held = [low <= value <= high or _interval_holds(claim, arm) for arm, value in values]
    verdict = REPRODUCED if sum(held) >= SHARE * len(held) else NOT_REPRODUCED
    return Judgement(claim, method, verdict, f"{where}{len(values)} cell(s)", ours)


def _of_claim(claim: Claim, arm: Arm) -> bool:
    models = PAPER_MODELS if claim.model == "paper" else (claim.model,)
    datasets = PAPER_DATASETS if claim.dataset == "all" else (claim.dataset,)
    return arm.run.model in models and arm.run.dataset in datasets


def _misfits(claim: Claim, metric: Metric, arm: Arm) -> list[str]:
    """The claim's conditions that the arm does not meet."""
    found = []
    for condition in claim.conditions:
        key, is_setting, wanted = condition.partition("=")
        if is_setting:
            values = _settings(arm.run.header["config"], key) + _settings(arm.drafter, key)
            if wanted not in map(str, values):
                found.append(f"{key} {', '.join(map(str, values)) or 'absent'} here, {wanted} there")
        elif metric.timed and wanted_device(condition) not in wanted_device(arm.run.header["environment"]["device"]):
            found.append(f"measured on {arm.run.header['environment']['device']} here, {condition} there")
    return found


def wanted_device(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _settings(settings: object, key: str) -> list[object]:
    """Every value of `key` anywhere in nested settings."""
    if not isinstance(settings, dict):
        return []
    own = [settings[key]] if key in settings else []
    return own + [value for inner in settings.values() for value in _settings(inner, key)]


def _at_main_budget(arms: Sequence[Arm]) -> list[Arm]:
    return [arm for arm in arms if arm.run.node_budget == layout.main_budget(arms, arm.run.model)]


def _neighbours(arm: Arm, arms: Sequence[Arm]) -> list[Arm]:
    return [a for a in arms if (a.run.model, a.run.dataset) == (arm.run.model, arm.run.dataset)]


def _interval_holds(claim: Claim, arm: Arm) -> bool:
    """The published number lies in our interval; there is one for the speed-up alone."""
    low, high = arm.numbers.get("speed_up_low"), arm.numbers.get("speed_up_high")
    if claim.quantity != "speed_up" or low is None or ".." in claim.value or claim.value.startswith("<"):
        return False
    return low <= float(claim.value) <= high


# --- the table -------------------------------------------------------------------------------------------------------


def beside_the_paper(arms: Sequence[Arm], claims: Sequence[Claim]) -> PaperTable:
    comparison = side_by_side(arms)
    judgements = [judgement for claim in claims for judgement in judge(claim, comparison.arms)]
    columns = ["table", "model", "dataset", "method", "metric", "published", "ours", "verdict", "why"]
    body, numbers = [], []
    for judgement in judgements:
        claim = judgement.claim
        ours = _text(judgement.ours)
        body.append(
            (
                claim.table,
                claim.model,
                claim.dataset,
                judgement.method,
                claim.metric,
                claim.value,
                ours,
                judgement.verdict,
                judgement.why,
            )
        )
        bounds_of_ours = (min(judgement.ours), max(judgement.ours)) if judgement.ours else (None, None)
        numbers.append(
            {
                **{name: getattr(claim, name) for name in COLUMNS},
                "our_method": judgement.method,
                "ours_low": bounds_of_ours[0],
                "ours_high": bounds_of_ours[1],
                "cells": len(judgement.ours),
                "verdict": judgement.verdict,
                "why": judgement.why,
            }
        )
    shown = pd.DataFrame(body, columns=columns)
    counts = shown.verdict.value_counts()
    summary = ", ".join(f"{counts.get(v, 0)} {v}" for v in (REPRODUCED, NOT_REPRODUCED, NOT_COMPARABLE))
    notes = [f"the rule: {RULE}", summary, *(f"refused: {text}" for text in comparison.refused)]
    return PaperTable("table9_beside_the_paper", "Table 9. Ours beside the paper", shown, pd.DataFrame(numbers), notes)


def _text(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low}..{high}"
