"""The figures of the paper from the arms: what each shows is chosen here, how it looks in benchmarks/show/figure_*.py.

A figure whose numbers nobody has measured is not drawn; `draw_all` says which, and what would make them.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.cost.curve import TREE, CostCurve
from benchmarks.paper import layout
from benchmarks.paper.compare import side_by_side
from benchmarks.paper.opt_tree import delta_arms, swept
from benchmarks.paper.runs import Arm
from benchmarks.paper.times import MAKE_CURVE, PARTS
from benchmarks.paper.trees import OVER_BUDGET, TOPOLOGIES
from benchmarks.record.turn import BASELINE
from benchmarks.show.figure_average_tree import TreePanel, draw_average_trees
from benchmarks.show.figure_bars import BOTH, NOTHING, Bar, BarPanel, TimePanel, draw_bars, draw_times
from benchmarks.show.figure_curves import CurvePanel, draw_curves
from benchmarks.show.figure_gap import Gap, draw_gap
from benchmarks.show.format import number

GOOSE = ("goose", "goose_elastic", "goose_opt")


def draw_all(arms: Sequence[Arm], curves: Sequence[CostCurve], folder: Path) -> tuple[list[Path], list[str]]:
    """Draws every figure that has numbers; the files, and a sentence for each figure without, and each run left out."""
    files: list[Path] = []
    missing: list[str] = []
    for name, (draw, made_by) in FIGURES.items():
        drawn = draw(arms, folder / name)
        files += drawn
        if not drawn:
            missing.append(f"figure {name}: nothing to draw yet; {made_by}")
    if curves:
        files += verify_cost(curves, folder / "verify_cost")
    else:
        missing.append(f"figure verify_cost: nothing to draw yet; {MAKE_CURVE}")
    refused = [f"refused: {text}" for text in layout.main_arms(arms).refused]
    return files, missing + refused


def speed_up(arms: Sequence[Arm], file: Path) -> list[Path]:
    kept = [arm for arm in layout.main_arms(arms).arms if arm.method != BASELINE]
    rows = _panels(kept, lambda arm: _speed_bar(arm), lambda model, dataset, budget: f"{model}, {dataset}")
    return draw_bars(rows, "speed-up over plain decoding", file, reference=1.0) if rows else []


def topology(arms: Sequence[Arm], file: Path) -> list[Path]:
    wanted = [arm for arm in arms if arm.stem in TOPOLOGIES and arm.run.temperature == 0]
    kept = side_by_side(wanted).arms
    rows = _panels(kept, lambda arm: _mal_bar(arm), lambda model, dataset, budget: f"{model}, {dataset}, B = {budget}")
    return draw_bars(rows, "mean acceptance length", file, reference=1.0) if rows else []


def _panels(
    arms: Sequence[Arm], bar: Callable[[Arm], Bar], title: Callable[[str, str, int], str]
) -> list[list[BarPanel]]:
    """A row of panels for each model and budget, a panel for each dataset that was run, the same methods in all."""
    rows = []
    for model in layout.models_of(arms):
        for budget in sorted({arm.run.node_budget for arm in arms if arm.run.model == model}):
            own = {(a.run.dataset, a.method): a for a in arms if (a.run.model, a.run.node_budget) == (model, budget)}
            methods = layout.methods_of(own.values())
            panels = [
                BarPanel(
                    title(model, dataset, budget),
                    [
                        bar(own[dataset, m]) if (dataset, m) in own else Bar(m, None, text=layout.NOT_RUN)
                        for m in methods
                    ],
                )
                for dataset in layout.datasets_of(own.values())
                if any(key[0] == dataset for key in own)
            ]
            rows += [panels[i : i + 5] for i in range(0, len(panels), 5)]
    return rows


def _speed_bar(arm: Arm) -> Bar:
    value = arm.numbers.get("speed_up")
    if value is None:
        return Bar(arm.method, None, text=layout.cell(arm, layout.speed_up_text))
    text = layout.cell(arm, lambda arm: number(arm.numbers["speed_up"], 2, "x"), timed=True)
    return Bar(arm.method, value, arm.numbers["speed_up_low"], arm.numbers["speed_up_high"], drafts_from(arm), text)


def _mal_bar(arm: Arm) -> Bar:
    value = None if arm.overdraws else arm.numbers.get("mal")
    if value is None:
        return Bar(arm.method, None, text=OVER_BUDGET if arm.overdraws else layout.cell(arm, lambda arm: "n/a"))
    text = layout.cell(arm, lambda arm: number(arm.numbers["mal"], 2))
    return Bar(arm.method, value, draft=drafts_from(arm), text=text)


def drafts_from(arm: Arm) -> str:
    """The source of an arm's nodes, as the colours of the figures name it."""
    used = [name for name, counts in arm.by_source.items() if counts.drafted]
    return NOTHING if not used else used[0] if len(used) == 1 else "draft_model" if "draft_model" in used else BOTH


def acceptance_gap(arms: Sequence[Arm], file: Path) -> list[Path]:
    main = layout.main_arms(arms).arms
    gaps = []
    for model in layout.models_of(main):
        for dataset in layout.datasets_of(main):
            own = {a.method: a for a in main if (a.run.model, a.run.dataset) == (model, dataset)}
            arm = next((own[m] for m in GOOSE if m in own and own[m].numbers.get("p_ratio")), None)
            if arm:
                gaps.append(Gap(f"{model} ({arm.method})", dataset, arm.numbers["p_s"], arm.numbers["p_t"]))
    return draw_gap(gaps, file) if gaps else []


def sizes(arms: Sequence[Arm], file: Path) -> list[Path]:
    wanted = [a for a in arms if a.run.temperature == 0 and a.method != BASELINE]
    kept = swept(side_by_side(wanted).arms)
    panels = [
        CurvePanel(
            f"{model}, {dataset}",
            {m: _over_budget(own, m) for m in layout.methods_of(own)},
            "node budget B",
            "mean acceptance length",
            log_x=True,
        )
        for (model, dataset), own in _by_cell(kept).items()
    ]
    return draw_curves(_in_rows(panels), file) if panels else []


def _over_budget(arms: Sequence[Arm], method: str) -> tuple[list[float], list[float]]:
    own = sorted((a for a in arms if a.method == method and a.state == "measured"), key=lambda a: a.run.node_budget)
    return [a.run.node_budget for a in own], [a.numbers["mal"] for a in own]


def expectation(arms: Sequence[Arm], file: Path) -> list[Path]:
    kept = [a for a in layout.main_arms(arms).arms if a.expectation_curve]
    panels = [
        CurvePanel(
            f"{model}, {dataset}",
            {
                a.method: ([e.expected for e in a.expectation_curve], [e.accepted for e in a.expectation_curve])
                for a in own
            },
            "E(A), expected",
            "A, seen",
            diagonal="expected = seen",
        )
        for (model, dataset), own in _by_cell(kept).items()
    ]
    return draw_curves(_in_rows(panels), file, "steps in equal shares by their E(A)") if panels else []


def deltas(arms: Sequence[Arm], file: Path) -> list[Path]:
    kept = [arm for arm in delta_arms(arms).arms if arm.state == "measured"]
    rows: list[list[CurvePanel]] = [[], []]
    for (model, dataset), own in _by_cell(kept).items():
        for row, (name, label) in zip(rows, (("mal", "MAL"), ("speed_up", "speed-up")), strict=True):
            curves = {}
            for key in dict.fromkeys(f"{a.stem}, B = {a.run.node_budget}" for a in own):
                points = [a for a in own if f"{a.stem}, B = {a.run.node_budget}" == key and a.numbers[name] is not None]
                points.sort(key=lambda a: a.drafter["delta"])
                curves[key] = ([a.drafter["delta"] for a in points], [a.numbers[name] for a in points])
            row.append(CurvePanel(f"{model}, {dataset}", curves, "delta", label))
    return draw_curves(rows, file) if rows[0] else []


def step_times(arms: Sequence[Arm], file: Path) -> list[Path]:
    kept = [a for a in layout.main_arms(arms).arms if a.step_seconds]
    panels = []
    for (model, dataset), own in _by_cell(kept).items():
        by_method = {arm.method: arm for arm in own}
        bars = {
            m: {part.removesuffix("_s"): 1e3 * by_method[m].step_seconds[part] for part in PARTS}
            for m in layout.methods_of(own)
        }
        panels.append(TimePanel(f"{model}, {dataset}", bars))
    return draw_times(panels, file) if panels else []


def average_trees(arms: Sequence[Arm], file: Path) -> list[Path]:
    """One file a model and dataset: average_tree_MODEL_DATASET."""
    kept = [a for a in layout.main_arms(arms).arms if a.tree is not None and a.tree.n_nodes > 1]
    files: list[Path] = []
    for (model, dataset), own in _by_cell(kept).items():
        by_method = {arm.method: arm for arm in own}
        panels = [_tree_panel(by_method[m]) for m in layout.methods_of(own)]
        title = f"The average draft tree, {model} on {dataset}, B = {own[0].run.node_budget}"
        files += draw_average_trees(panels, title, file.with_name(f"{file.name}_{model}_{dataset}"))
    return files


def _tree_panel(arm: Arm) -> TreePanel:
    mean_nodes, mal = number(arm.numbers["mean_nodes"], 1), number(arm.numbers["mal"], 2)
    return TreePanel(arm.method, f"{mean_nodes} nodes and {mal} tokens a step", arm.tree)


def verify_cost(curves: Sequence[CostCurve], file: Path) -> list[Path]:
    """Seconds of a forward over its nodes, a panel a curve, with the quartiles where there was something to spread."""
    panels = []
    for curve in curves:
        lines, bands = {}, {}
        for length in curve.context_lengths:
            points = [p for p in curve.points if p.context == length and p.shape == TREE]
            points.sort(key=lambda point: point.n_nodes)
            name = f"{length} tokens of context"
            lines[name] = ([p.n_nodes for p in points], [1e3 * p.seconds for p in points])
            bands[name] = ([1e3 * p.low_s for p in points], [1e3 * p.high_s for p in points])
        how = curve.engine if curve.kind == "measured" else curve.kind
        title = f"{curve.model}, {curve.dtype}, {curve.device}, {how}"
        axes = {
            "x_label": "nodes of the tree",
            "y_label": "milliseconds of a forward",
            "log_x": True,
            "from_zero": True,
        }
        panels.append(CurvePanel(title, lines, bands=bands, **axes))
    return draw_curves(_in_rows(panels), file)


def _by_cell(arms: Sequence[Arm]) -> dict[tuple[str, str], list[Arm]]:
    cells: dict[tuple[str, str], list[Arm]] = {}
    for model in layout.models_of(arms):
        for dataset in layout.datasets_of(arms):
            own = [arm for arm in arms if (arm.run.model, arm.run.dataset) == (model, dataset)]
            if own:
                cells[model, dataset] = own
    return cells


def _in_rows(panels: Sequence[CurvePanel], n_columns: int = 3) -> list[Sequence[CurvePanel]]:
    return [panels[i : i + n_columns] for i in range(0, len(panels), n_columns)]


GRID = "make grid EXP=main or EXP=embedded"
FIGURES: dict[str, tuple[Callable[[Sequence[Arm], Path], list[Path]], str]] = {
    "average_tree": (average_trees, GRID),
    "speed_up": (speed_up, GRID),
    "acceptance_gap": (acceptance_gap, GRID),
    "topology": (topology, "make grid EXP=topology"),
    "tree_size": (sizes, "make grid EXP=opt_tree, or one method at several node_budget="),
    "expected_accepted": (expectation, "make grid EXP=opt_tree"),
    "delta": (deltas, "make grid EXP=opt_tree, or opt_tree at several method.drafter.delta="),
    "step_times": (step_times, GRID),
}
