"""Table 7, OPT-Tree's: MAL by tree structure and draft, E(A) beside A, tree size, delta, temperature."""

from collections.abc import Sequence

import pandas as pd

from benchmarks.paper import layout
from benchmarks.paper.compare import Comparison, side_by_side
from benchmarks.paper.layout import PaperTable, cell, facts, speed_up_text
from benchmarks.paper.runs import Arm
from benchmarks.record.turn import BASELINE
from benchmarks.show.format import number

MADE_BY = "make grid EXP=opt_tree"
STRUCTURES = {  # method -> tree structure, draft
    "pld": ("chain", "context"),
    "iso3": ("balanced, 3 children", "adjacency table"),
    "iso5": ("balanced, 5 children", "adjacency table"),
    "sequoia": ("static optimum", "adjacency table"),
    "opt_tree": ("optimum of each step", "adjacency table"),
    "sequoia_draft": ("static optimum", "draft model"),
    "opt_tree_draft": ("optimum of each step", "draft model"),
}


def tables(arms: Sequence[Arm]) -> list[PaperTable]:
    return [structures(arms), expectations(arms), sizes(arms), deltas(arms), temperatures(arms)]


def structures(arms: Sequence[Arm]) -> PaperTable:
    comparison = layout.main_arms([arm for arm in arms if arm.stem in STRUCTURES])
    kept = comparison.arms
    rows = [
        (model, layout.main_budget(kept, model), method)
        for model in layout.models_of(kept)
        for method in layout.methods_of(arm for arm in kept if arm.run.model == model)
    ]
    shown = layout.by_dataset(kept, rows, layout.datasets_of(kept), lambda arm: number(arm.numbers["mal"], 2))
    shown.insert(3, "structure", [STRUCTURES[method.partition("[")[0]][0] for *_, method in rows])
    shown.insert(4, "draft", [STRUCTURES[method.partition("[")[0]][1] for *_, method in rows])
    notes = ["MAL", *layout.notes_of(comparison, shown, MADE_BY)]
    return PaperTable(
        "table7a_structures",
        "Table 7a. MAL by tree structure and draft",
        shown,
        _numbers(kept, "mal", "speed_up"),
        notes,
    )


def expectations(arms: Sequence[Arm]) -> PaperTable:
    """E(A), what the method expects of its tree, beside A, what was accepted."""
    comparison = side_by_side(arm for arm in arms if arm.expectation is not None)
    body, numbers = [], []
    for arm in comparison.arms:
        e = arm.expectation
        gap = e.expected - e.accepted
        texts = (number(e.expected, 2), number(e.accepted, 2), number(gap, 2, sign=True), str(e.n_steps))
        body.append(
            (arm.run.model, arm.run.dataset, str(arm.run.node_budget), f"{arm.run.temperature:g}", arm.method, *texts)
        )
        numbers.append(facts(arm) | {"expected": e.expected, "accepted": e.accepted, "steps": e.n_steps})
    columns = ["model", "dataset", "B", "T", "method", "E(A)", "A", "E(A) - A", "steps"]
    shown = pd.DataFrame(body, columns=columns)
    notes = [
        "means per step over the steps that recorded an expectation; both count the bonus; A is accepted nodes + 1 "
        "before the cut at a stop id or at the limit, so it can lie above MAL",
        *layout.notes_of(comparison, shown, MADE_BY),
    ]
    return PaperTable("table7b_expectations", "Table 7b. E(A) beside A", shown, pd.DataFrame(numbers), notes)


def sizes(arms: Sequence[Arm]) -> PaperTable:
    """MAL over the node budget, for the methods measured at more than one."""
    comparison = side_by_side(a for a in arms if a.run.temperature == 0 and a.method != BASELINE)
    kept = swept(comparison.arms)
    budgets = sorted({arm.run.node_budget for arm in kept})
    found = {(*_place(arm), arm.run.node_budget): arm for arm in kept}
    body = [
        (*place, *(cell(found.get((*place, b)), lambda arm: number(arm.numbers["mal"], 2)) for b in budgets))
        for place in dict.fromkeys(map(_place, kept))
    ]
    shown = pd.DataFrame(body, columns=["model", "dataset", "method", *(f"B = {b}" for b in budgets)])
    notes = ["MAL at each node budget B", *layout.notes_of(comparison, shown, MADE_BY, kept)]
    numbers = _numbers(kept, "mal", "mean_nodes", "max_nodes", "speed_up")
    return PaperTable("table7c_sizes", "Table 7c. MAL against tree size", shown, numbers, notes)


def swept(arms: Sequence[Arm]) -> list[Arm]:
    """The arms of every (model, dataset, method) that was measured at two node budgets or more."""
    budgets: dict[tuple, set[int]] = {}
    for arm in arms:
        if arm.state == "measured":
            budgets.setdefault(_place(arm), set()).add(arm.run.node_budget)
    return [arm for arm in arms if len(budgets.get(_place(arm), ())) > 1]


def deltas(arms: Sequence[Arm]) -> PaperTable:
    """MAL, nodes and speed-up over delta, the least gain of E that earns OPT-Tree another layer."""
    comparison = delta_arms(arms)
    body, numbers = [], []
    for arm in sorted(
        comparison.arms, key=lambda arm: (*_place(arm)[:2], arm.stem, arm.run.node_budget, arm.drafter["delta"])
    ):
        values = [number(arm.numbers[n], 2) for n in ("mal", "mean_nodes")] if arm.state == "measured" else ["", ""]
        budget, delta = arm.run.node_budget, arm.drafter["delta"]
        last = cell(arm, speed_up_text, timed=True)
        body.append((arm.run.model, arm.run.dataset, str(budget), arm.stem, f"{delta:g}", *values, last))
        wanted = ("mal", "mean_nodes", "speed_up", "speed_up_low", "speed_up_high")
        numbers.append(facts(arm) | {"delta": delta} | {name: arm.numbers.get(name) for name in wanted})
    shown = pd.DataFrame(body, columns=["model", "dataset", "B", "method", "delta", "MAL", "nodes", "speed-up"])
    notes = layout.notes_of(comparison, shown, MADE_BY)
    return PaperTable("table7d_delta", "Table 7d. Delta", shown, pd.DataFrame(numbers), notes)


def delta_arms(arms: Sequence[Arm]) -> Comparison:
    """Greedy OPT-Tree arms of every (model, dataset, draft, budget) that was measured at two deltas or more."""
    own = [arm for arm in arms if "delta" in arm.drafter and arm.run.temperature == 0]
    seen: dict[tuple, set[float]] = {}
    for arm in own:
        seen.setdefault(_sweep(arm), set()).add(arm.drafter["delta"])
    return side_by_side(arm for arm in own if len(seen[_sweep(arm)]) > 1)


def _sweep(arm: Arm) -> tuple:
    fixed = {key: value for key, value in arm.drafter.items() if key != "delta"}
    return arm.run.model, arm.run.dataset, arm.run.node_budget, repr(sorted(fixed.items()))


def temperatures(arms: Sequence[Arm]) -> PaperTable:
    """MAL and speed-up of every arm that was measured at more than one temperature."""
    comparison = side_by_side(arm for arm in arms if arm.method != BASELINE)
    seen: dict[tuple, set[float]] = {}
    for arm in comparison.arms:
        seen.setdefault((*_place(arm), arm.run.node_budget), set()).add(arm.run.temperature)
    kept = [arm for arm in comparison.arms if len(seen[(*_place(arm), arm.run.node_budget)]) > 1]
    temperatures = sorted({arm.run.temperature for arm in kept})
    found = {(*_place(arm), arm.run.node_budget, arm.run.temperature): arm for arm in kept}
    text = lambda arm: f"{number(arm.numbers['mal'], 2)}, {speed_up_text(arm)}"  # noqa: E731
    body = []
    for place in dict.fromkeys((*_place(arm), arm.run.node_budget) for arm in kept):
        texts = [cell(found.get((*place, t)), text, timed=True) for t in temperatures]
        body.append((*place[:3], str(place[3]), *texts))
    shown = pd.DataFrame(body, columns=["model", "dataset", "method", "B", *(f"T = {t:g}" for t in temperatures)])
    notes = [
        "MAL, then the speed-up over plain decoding at the same temperature",
        *layout.notes_of(comparison, shown, MADE_BY, kept),
    ]
    numbers = _numbers(kept, "mal", "speed_up", "speed_up_low", "speed_up_high")
    return PaperTable("table7e_temperature", "Table 7e. Temperature", shown, numbers, notes)


def _place(arm: Arm) -> tuple[str, str, str]:
    return arm.run.model, arm.run.dataset, arm.method


def _numbers(arms: Sequence[Arm], *names: str) -> pd.DataFrame:
    return pd.DataFrame([facts(arm) | {name: arm.numbers.get(name) for name in names} for arm in arms])
