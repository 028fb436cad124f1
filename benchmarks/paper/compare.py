"""Which arms may stand side by side: runs under equal conditions. The others are refused, with the key that differs.

A comparison is within one model and one dataset; node budget, temperature and method are its axes, and everything else
must agree (Run.conditions). This file knows no metric.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.paper.runs import Arm, Run
from benchmarks.record.turn import BASELINE


@dataclass(frozen=True)
class Comparison:
    arms: list[Arm]  # one per (model, dataset, node budget, temperature, method)
    superseded: list[str]  # names of arms measured more than once, of which the best run is shown
    refused: list[str]  # a sentence for each run that is left out: what differs

    def where(self, **wanted) -> list[Arm]:
        """Arms by fields of theirs or of their run: where(model="tiny", method=["pld", "tr"])."""
        return [arm for arm in self.arms if all(_has(arm, name, value) for name, value in wanted.items())]


def _has(arm: Arm, name: str, wanted: object) -> bool:
    value = getattr(arm if hasattr(arm, name) else arm.run, name)
    return value in wanted if isinstance(wanted, list | tuple | set) else value == wanted


def told_apart(arms: list[Arm]) -> list[Arm]:
    """Arms of one name and different settings get what differs into their name.

    The settings measured on the most datasets and prompts keep the plain name; where two are equal, none does.
    """
    by_name: dict[tuple[str, str], list[Arm]] = defaultdict(list)
    for arm in arms:
        by_name[arm.run.model, arm.method].append(arm)
    named = []
    for own in by_name.values():
        settings = [_flat(arm.drafter) for arm in own]
        varying = sorted(
            {key for a in settings for key in a.keys() | settings[0] if a.get(key) != settings[0].get(key)}
        )
        labels = [tuple(str(a.get(key)) for key in varying) for a in settings]
        usual = _most_measured(own, labels)
        for arm, label in zip(own, labels, strict=True):
            suffix = ", ".join(f"{key}={value}" for key, value in zip(varying, label, strict=True))
            named.append(arm if not varying or label == usual else replace(arm, method=f"{arm.method}[{suffix}]"))
    return named


def side_by_side(arms: Iterable[Arm]) -> Comparison:
    """The arms that may be compared. Of runs that disagree in their conditions, the set with the most lines stays."""
    kept: list[Arm] = []
    refused: list[str] = []
    by_cell: dict[tuple[str, str], list[Arm]] = defaultdict(list)
    for arm in arms:
        by_cell[arm.run.model, arm.run.dataset].append(arm)
    for cell in sorted(by_cell):
        runs = {arm.run.id: arm.run for arm in by_cell[cell]}
        chosen = _largest_set(list(runs.values()))
        refused += [_refusal(run, chosen[0]) for run in runs.values() if run not in chosen]
        kept += [arm for arm in by_cell[cell] if arm.run in chosen]
    return Comparison(*_one_each(kept), refused)


def differing(a: Run, b: Run) -> dict[str, tuple[object, object]]:
    """Condition -> its value in `a` and in `b`, where they differ.

    Weights are compared by their digest, wherever they lay; by source and revision where a record has no digest.
    """
    has_digests = a.conditions["weights_digest"] and b.conditions["weights_digest"]
    unasked = {"source", "revision"} if has_digests else {"weights_digest"}
    pairs = {key: (a.conditions[key], b.conditions[key]) for key in a.conditions if key not in unasked}
    return {key: (one, other) for key, (one, other) in pairs.items() if one != other}


def _largest_set(runs: Sequence[Run]) -> list[Run]:
    sets: list[list[Run]] = []
    for run in sorted(runs, key=lambda run: run.id):
        same = next((group for group in sets if not differing(group[0], run)), None)
        if same is None:
            sets.append([run])
        else:
            same.append(run)
    return max(sets, key=lambda group: (sum(run.n_lines for run in group), group[-1].id))


def _refusal(run: Run, chosen: Run) -> str:
    what = "; ".join(f"{key} {_short(a)}, not {_short(b)}" for key, (a, b) in differing(run, chosen).items())
    return f"{run.id} may not stand beside {chosen.id} ({run.model}, {run.dataset}): {what}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _most_measured(arms: list[Arm], labels: list[tuple]) -> tuple | None:
    """The label of the most datasets and prompts; None where two labels have as many."""
    weights = {}
    for label in labels:
        own = [arm for arm, its in zip(arms, labels, strict=True) if its == label]
        weights[label] = len({arm.run.dataset for arm in own}), sum(arm.n_prompts for arm in own)
    best = [label for label, weight in weights.items() if weight == max(weights.values())]
    return best[0] if len(best) == 1 else None


def _flat(settings: object, name: str = "") -> dict[str, object]:
    """Nested settings as {last part of the key: value}; the whole key where a last part occurs twice."""
    flat: dict[str, object] = {}
    if isinstance(settings, dict):
        for key, value in settings.items():
            for inner, leaf in _flat(value, key).items():
                flat[inner if inner not in flat else f"{name}.{inner}"] = leaf
        return flat
    return {name: settings}


def _one_each(arms: list[Arm]) -> tuple[list[Arm], list[str]]:
    """The best run of every arm: measured, then complete, then of the most prompts, then the newest."""
    best: dict[tuple, Arm] = {}
    superseded: dict[str, None] = {}
    order = lambda arm: (arm.state == "measured", arm.run.is_complete, arm.n_prompts, arm.run.id)  # noqa: E731
    for arm in sorted(arms, key=order):
        key = (arm.run.model, arm.run.dataset, arm.run.node_budget, arm.run.temperature, arm.method)
        if key in best and arm.method != BASELINE:
            superseded[f"{arm.method} ({arm.run.model}, {arm.run.dataset}, B = {arm.run.node_budget})"] = None
        best[key] = arm
    chosen = {id(arm) for arm in best.values()}
    return [arm for arm in arms if id(arm) in chosen], list(superseded)


def interrupted_and_failed(arms: Iterable[Arm]) -> list[str]:
    """A sentence for each run that is not finished, and for each arm that failed on some prompt."""
    arms = list(arms)
    notes = []
    for run in {arm.run.id: arm.run for arm in arms}.values():
        if not run.is_complete:
            notes.append(f"{run.id} is not finished ({run.n_lines} lines): python run.py resume={run.path}")
    for arm in arms:
        if arm.n_failed:
            where = f"{arm.method} ({arm.run.model}, {arm.run.dataset}, B = {arm.run.node_budget})"
            notes.append(f"{where}: {arm.n_failed} failed, the first with {arm.first_error}")
    return notes
