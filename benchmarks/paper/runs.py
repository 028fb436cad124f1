"""Reads run folders, complete or interrupted, and makes the arms of each: one method in one cell, as numbers.

Every turns.jsonl is read once and its trees are counted line by line, so that no run's trees are held together. What
the numbers mean is benchmarks.metrics' business; which runs may stand side by side is compare.py's.
"""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks import metrics
from benchmarks.environment import fingerprint
from benchmarks.errors import UserError
from benchmarks.metrics import Losslessness, NodeCounts, tree_metrics
from benchmarks.metrics.lossless import divergences
from benchmarks.metrics.tree_counts import with_tree_counts
from benchmarks.metrics.tree_metrics import AverageTree, Expectation
from benchmarks.record import grid
from benchmarks.record.identity import model_labels
from benchmarks.record.run_folder import CELL, RunFolder
from benchmarks.record.turn import BASELINE

HEADER_KEYS = ("run_id", "config", "methods", "model", "dataset", "environment", "prompts_sha256", "stop_ids")
MODEL_KEYS = ("source", "revision", "weights", "dtype", "weights_digest")
SETTINGS = ("attention", "prompt_style", "max_new_tokens", "stop_rule", "seed")
PROJECTED_COLUMNS = ("n_nodes", "is_chain", "context", "emitted")  # what a projection onto a cost curve needs
MAKE_RUNS = "`make grid EXP=embedded`, or one cell: `python run.py 'compare=[pld,tr,goose]' limit=8`"


@dataclass(frozen=True)
class Run:
    """One run folder: a cell of one model, one dataset, one node budget and several methods."""

    path: Path
    header: dict  # cell.json
    is_complete: bool
    n_lines: int
    model_label: str | None = None  # where its model's name stands for other weights, too

    @property
    def id(self) -> str:
        return self.header["run_id"]

    @property
    def model(self) -> str:
        return self.model_label or self.header["model"]["name"]

    @property
    def dataset(self) -> str:
        return self.header["dataset"]["name"]

    @property
    def node_budget(self) -> int:
        return self.header["config"]["node_budget"]

    @property
    def temperature(self) -> float:
        return self.header["config"]["temperature"]

    @cached_property
    def conditions(self) -> dict[str, object]:
        """What has to be equal in runs that stand side by side. Budget and temperature are axes, so not here."""
        header = self.header
        model = {key: header["model"].get(key) for key in MODEL_KEYS}
        settings = {key: header["config"].get(key) for key in SETTINGS}
        prompts = hashlib.sha256(" ".join(header["prompts_sha256"]).encode()).hexdigest()[:12]
        data = {"dataset_sha256": header["dataset"]["sha256"], "prompts": f"{len(header['prompts_sha256'])}, {prompts}"}
        machine = {**fingerprint(header["environment"]), "engine": header["engine"]}
        return {**machine, **model, **settings, "stop_ids": header["stop_ids"], **data}


@dataclass(frozen=True)
class Arm:
    """One method of one run, counted over the prompts that every method of the run finished."""

    run: Run
    method: str
    drafter: dict  # its resolved config
    state: str  # "measured" | "failed" on every prompt it tried | "unfinished": the run was interrupted before it
    n_prompts: int  # counted
    n_stepping: int  # of these, with a step: the others ended with the prefill's token
    n_failed: int  # lines of this method
    first_error: str | None
    losslessness: Losslessness
    is_judged: bool  # False: an interrupted half-precision run, whose divergences nobody has explained yet
    first_divergence: dict | None
    numbers: dict[str, float | None] = field(default_factory=dict)  # of benchmarks.metrics; absent where not measured
    step_seconds: dict[str, float] = field(default_factory=dict)  # part -> mean seconds per step
    by_source: dict[str, NodeCounts] = field(default_factory=dict)
    by_depth: list[NodeCounts] = field(default_factory=list)
    by_rank: list[NodeCounts] = field(default_factory=list)
    expectation: Expectation | None = None
    expectation_curve: list[Expectation] = field(default_factory=list)
    tree: AverageTree | None = None
    steps: dict[str, np.ndarray] = field(default_factory=dict)  # PROJECTED_COLUMNS of all steps
    is_trusted: bool = True  # False: this method or plain decoding is broken or absent; no speed-up is kept

    @property
    def stem(self) -> str:
        """The method's name without the settings that tell arms of one name apart (compare.told_apart)."""
        return self.method.partition("[")[0]

    @property
    def is_unstable(self) -> bool:
        spread = self.numbers.get("repeat_spread")
        return spread is not None and spread > metrics.UNSTABLE_SPREAD

    @property
    def overdraws(self) -> bool:
        """It drew more nodes than the run's budget, so it may not stand among methods at equal budget."""
        return (self.numbers.get("max_nodes") or 0) > self.run.node_budget


def load_arms(roots: Sequence[Path]) -> tuple[list[Arm], list[str]]:
    """The arms of all run folders at or below `roots`, and a sentence for every folder that could not be read and every
    cell of a grid that has no whole run.

    Raises UserError where there is no run folder at all.
    """
    absent = [root for root in roots if not root.is_dir()]
    paths = sorted({file.parent for root in roots for file in root.rglob(CELL)})
    if not paths:
        where = ", ".join(map(str, absent or roots))
        tried = [text for root in roots for plan in root.rglob(grid.PLAN) for text in grid.remarks(plan.parent)]
        raise UserError(f"{where} holds no run. {''.join(f'{text}. ' for text in tried)}Make some: {MAKE_RUNS}")
    if absent:
        raise UserError(f"{', '.join(map(str, absent))} is not a folder; name folders that hold runs")
    with ProcessPoolExecutor(min(len(paths), 2)) as pool:
        results = list(pool.map(_read_or_refuse, paths))
    arms = with_model_labels([arm for found, _ in results for arm in found])
    plans = sorted({file for root in roots for file in root.rglob(grid.PLAN)})
    unfinished = [f"grid {plan.parent.name}: {text}" for plan in plans for text in grid.remarks(plan.parent)]
    return arms, [problem for _, problem in results if problem] + unfinished


def with_model_labels(arms: Sequence[Arm]) -> list[Arm]:
    """The same arms, their runs' models told apart where one name stands for different weights."""
    runs = {arm.run.id: arm.run for arm in arms}
    labels = model_labels([run.header["model"] for run in runs.values()])
    labelled = {run.id: replace(run, model_label=label) for run, label in zip(runs.values(), labels, strict=True)}
    return [replace(arm, run=labelled[arm.run.id]) for arm in arms]


def _read_or_refuse(path: Path) -> tuple[list[Arm], str | None]:
    try:
        return read_run(path), None
    except UserError as error:
        return [], f"left out: {error}"


def read_run(path: Path) -> list[Arm]:
    """The arms of one run folder, in the order of its methods. Raises UserError for a folder that is damaged."""
    lines: list[dict] = []

    def take(line: dict) -> None:
        try:
            lines.append(with_tree_counts(line))
        except (KeyError, ValueError, IndexError, TypeError) as error:
            where = f"{line['prompt_id']}, {line['method']}"
            raise UserError(f"{path}: the line of {where} lacks what a recorded line has ({error!r})") from error

    folder = RunFolder.open(path, each=take)
    missing = [key for key in HEADER_KEYS if key not in folder.header]
    if missing:
        raise UserError(f"{path / CELL} lacks {', '.join(missing)}; it was not written by this harness")
    run = Run(path, folder.header, folder.is_complete, len(lines))
    is_exact = folder.header["model"]["dtype"] == "float32"
    if folder.is_complete:
        found, is_judged = folder.summary()["divergences"], True
    else:
        found = divergences(lines, BASELINE, {}, judge=None)
        is_judged = is_exact or not found
    finished = [m for m in run.header["methods"] if any(x["method"] == m and x["error"] is None for x in lines)]
    turns = metrics.common_turns(lines, finished)
    verdicts = {m: metrics.losslessness(lines, m, found) for m in run.header["methods"]}
    trusted_baseline = bool(turns.get(BASELINE)) and is_judged and not verdicts[BASELINE].broken
    arms = []
    for method, drafter in run.header["methods"].items():
        own = [line for line in lines if line["method"] == method]
        errors = [line["error"] for line in own if line["error"] is not None]
        state = "measured" if turns.get(method) else "failed" if errors else "unfinished"
        facts = {
            "run": run,
            "method": method,
            "drafter": drafter,
            "state": state,
            "n_failed": len(errors),
            "first_error": errors[0] if errors else None,
            "losslessness": verdicts[method],
            "is_judged": is_judged,
            "first_divergence": next((d for d in found if d["method"] == method), None),
            "is_trusted": trusted_baseline and not verdicts[method].broken,
        }
        measured = _measured(turns[method], turns.get(BASELINE, []), facts["is_trusted"]) if turns.get(method) else {}
        arms.append(Arm(**{"n_prompts": 0, "n_stepping": 0, **facts, **measured}))
    return arms


def _measured(own: list[dict], baseline: list[dict], is_trusted: bool) -> dict:
    """The measured fields of an arm, from its turns and plain decoding's on the same prompts."""
    sources = metrics.acceptance_by_source(own)
    interval = metrics.speed_up_interval(own, baseline) if is_trusted and own[0]["method"] != BASELINE else None
    mean_nodes, max_nodes = metrics.nodes_per_step(own)
    numbers = {
        "tokens_per_second": metrics.tokens_per_second(own),
        "end_to_end_tokens_per_second": metrics.end_to_end_tokens_per_second(own),
        "speed_up": metrics.speed_up(own, baseline) if is_trusted else None,
        "speed_up_low": interval[0] if interval else None,
        "speed_up_high": interval[1] if interval else None,
        "mean_of_ratios": metrics.mean_of_ratios(own, baseline) if is_trusted else None,
        "decomposed_speed_up": tree_metrics.decomposed_speed_up(own, baseline) if is_trusted else None,
        "mal": metrics.mean_acceptance_length(own),
        "tau": metrics.tau(own),
        "mean_nodes": mean_nodes,
        "max_nodes": max_nodes,
        "empty_draft_share": metrics.empty_draft_share(own),
        "draft_acceptance": metrics.draft_acceptance(own),
        "p_s": sources["context"].acceptance,
        "p_s_tested": sources["context"].conditional_acceptance,
        "p_t": sources["adjacency"].acceptance,
        "p_t_tested": sources["adjacency"].conditional_acceptance,
        "p_ratio": tree_metrics.acceptance_ratio(sources),
        "draft_overhead": metrics.draft_overhead(own),
        "repeat_spread": metrics.repeat_spread(own),
    }
    columns = {name: np.concatenate([turn["steps"][name] for turn in own]) for name in PROJECTED_COLUMNS}
    return {
        "n_prompts": len({turn["prompt_id"] for turn in own}),
        "n_stepping": metrics.n_stepping(own),
        "numbers": {name: None if value is None else float(value) for name, value in numbers.items()},
        "step_seconds": tree_metrics.mean_step_seconds(own),
        "by_source": sources,
        "by_depth": tree_metrics.acceptance_by_depth(own),
        "by_rank": tree_metrics.acceptance_by_rank(own),
        "expectation": tree_metrics.expectation(own),
        "expectation_curve": tree_metrics.expectation_curve(own),
        "tree": tree_metrics.average_tree(own),
        "steps": columns,
    }


# --- planned cells without a run folder ----------------------------------------------------------------------------


@dataclass(frozen=True)
class FailedCell:
    """A planned cell that failed before it had a run folder: its model did not load, its dataset was not there."""

    model: str | None  # None: the grid's plan does not say, and its runs are of several
    dataset: str | None
    text: str  # which cell of which grid, and why


def failed_cells(roots: Sequence[Path], arms: Sequence[Arm]) -> list[FailedCell]:
    """The failed cells of every grid at or below `roots`, so that none disappears from the tables.

    What a plan leaves to the config is read off its runs.
    """
    found = []
    for folder in sorted({file.parent for root in roots for file in root.rglob(grid.PLAN)}):
        runs = [arm.run for arm in arms if arm.run.path.parent == folder]
        usual = {name: {getattr(run, name) for run in runs} for name in ("model", "dataset")}
        texts = {text.split(" ")[1]: text for text in grid.remarks(folder)}
        for number, state in enumerate(grid.states(folder), start=1):
            if state.outcome is None or state.outcome.status != grid.FAILED:
                continue
            given = dict(override.lstrip("+").split("=", 1) for override in state.overrides)
            names = [given.get(n) or (min(usual[n]) if len(usual[n]) == 1 else None) for n in ("model", "dataset")]
            found.append(FailedCell(*names, f"grid {folder.name}: {texts[str(number)]}"))
    return found
