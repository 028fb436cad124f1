"""Cells of a grid that failed before they had a run folder: a model that does not load, a set that is not there.

record/grid.py keeps what became of every planned cell; here it goes into the tables, so that none disappears.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.paper.layout import FAILED, NOT_RUN, PaperTable
from benchmarks.paper.runs import Arm
from benchmarks.record import grid


@dataclass(frozen=True)
class FailedCell:
    model: str | None  # None: the grid's plan does not say, and its runs are of several
    dataset: str | None
    text: str  # which cell of which grid, and why


def failed_cells(roots: Sequence[Path], arms: Sequence[Arm]) -> list[FailedCell]:
    """The failed cells of every grid at or below `roots`. What a plan leaves to the config is read off its runs."""
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


def with_failures(table: PaperTable, failed: Sequence[FailedCell]) -> PaperTable:
    """The table with `failed` where it says `not run` of a cell that was tried, and the reasons below."""
    shown, notes = table.shown.copy(), []
    for cell in failed:
        if "model" not in shown or cell.dataset not in shown:
            continue
        tried = (shown["model"] == cell.model) & (shown[cell.dataset] == NOT_RUN)
        shown.loc[tried, cell.dataset] = FAILED
        if tried.any():
            notes.append(cell.text)
    return replace(table, shown=shown, notes=[*table.notes, *notes])
