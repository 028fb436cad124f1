"""A grid: cells under one name, each run once, whatever becomes of the others.

A cell is found again by the hash of its settings: complete, it is skipped; torn, it is resumed. What became of every
cell is kept beside the runs, so that a failed one does not disappear. This file neither chooses nor launches cells
(Hydra's sweeper and launchers do), and does not know what a cell measures.
"""

import json
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks import cell
from benchmarks.errors import UserError
from benchmarks.records import CELL, RUN, write_atomically

PLAN, OUTCOMES = "plan.json", "outcomes"  # in the grid's folder, beside its run folders
COMPLETE, PROBLEMS, FAILED, INTERRUPTED = 0, 1, 2, 130  # exit statuses


@dataclass(frozen=True)
class Outcome:
    """What became of one cell."""

    status: int  # COMPLETE | PROBLEMS: complete, but a prompt failed or an output is broken | FAILED | INTERRUPTED
    reason: str | None = None  # of any other status than COMPLETE
    run: str | None = None  # the name of its run folder, where it has one
    skipped: bool = False  # it was complete before


@dataclass(frozen=True)
class CellState:
    """A planned cell and what became of it. Without an outcome it was not run, or its process was killed."""

    overrides: list[str]
    outcome: Outcome | None


def grid_folder(runs_dir: str | Path, name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise UserError(f"grid={name!r} names a folder; use letters, digits, '.', '_' and '-'")
    return Path(runs_dir) / name


def begin(folder: Path, cells: Sequence[Sequence[str]]) -> None:
    """Writes down what will be run, each cell as its overrides; the outcomes of an earlier start are dropped."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / OUTCOMES).exists():
            shutil.rmtree(folder / OUTCOMES)
        (folder / OUTCOMES).mkdir()
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: {error.strerror or error}. Make room there or choose another place with "
            "runs_dir=FOLDER."
        ) from error
    write_atomically(folder / PLAN, {"started": time.time(), "cells": [list(overrides) for overrides in cells]})


def place(folder: Path, number: int) -> cell.Place | None:
    """Which of the planned cells this is; None where no plan was written."""
    planned = _planned(folder)
    return cell.Place(number, len(planned)) if number < len(planned) else None


def find(folder: Path, config_hash: str) -> Path | None:
    """The run folder with these settings: a complete one before a torn one, of several the newest."""
    found = [file.parent for file in folder.glob(f"*/{CELL}") if _read(file).get("config_hash") == config_hash]
    return max(found, key=lambda run: ((run / RUN).exists(), run.name), default=None)


def run_once(settings: dict[str, Any], methods: dict[str, dict], makers: cell.Makers, at: cell.Place | None) -> Outcome:
    """Runs the cell, finishes it, or leaves it as it is. Raises what a cell raises."""
    folder = grid_folder(settings["runs_dir"], settings["grid"])
    config_hash = cell.config_hash(settings, methods)
    found = find(folder, config_hash)
    skipped = found is not None and (found / RUN).exists()
    if skipped:
        status = PROBLEMS if _read(found / RUN).get("problems") else COMPLETE
        print(f"complete, not run again: {found}")
    elif found is not None:
        status = cell.resume(str(found), makers, at)
    else:
        status = cell.start(settings, methods, makers, at)
    run = find(folder, config_hash)
    problems = _read(run / RUN).get("problems", [])
    reason = "interrupted" if status == INTERRUPTED else "; ".join(problems) or None
    return Outcome(status, reason, run.name, skipped)


def record(folder: Path, number: int, outcome: Outcome) -> None:
    write_atomically(folder / OUTCOMES / f"{number:04}.json", asdict(outcome))


def progress(folder: Path, now: float) -> str:
    """How many cells are done, and how long the others take at the pace since the start; whatever launches them."""
    outcomes = [state.outcome for state in states(folder)]
    done = [outcome for outcome in outcomes if outcome is not None]
    n_run, n_left = sum(not outcome.skipped for outcome in done), len(outcomes) - len(done)
    text = f"{len(done)} of {len(outcomes)} cells done"
    if n_left and n_run:
        left_s = (now - _read(folder / PLAN)["started"]) / n_run * n_left
        text += f", about {timedelta(seconds=round(left_s))} left"
    return text


def states(folder: Path) -> list[CellState]:
    """Every planned cell in order; empty where no plan was written."""
    found = []
    for number, overrides in enumerate(_planned(folder)):
        outcome = _read(folder / OUTCOMES / f"{number:04}.json")
        found.append(CellState(overrides, Outcome(**outcome) if outcome else None))
    return found


def summary(folder: Path) -> tuple[int, str]:
    """The worst exit status of the planned cells, and a text that names every cell that is not simply complete."""
    cells = states(folder)
    varied = {override for c in cells for override in c.overrides if not all(override in d.overrides for d in cells)}
    lines, counts = [], {"complete": 0, "complete before": 0, "with problems": 0, "failed": 0}
    for number, c in enumerate(cells, start=1):
        outcome = c.outcome or Outcome(FAILED, "no outcome was recorded; its process was killed, or the disk is full")
        if outcome.status == COMPLETE:
            counts["complete before" if outcome.skipped else "complete"] += 1
            continue
        kind = "with problems" if outcome.status == PROBLEMS else "failed"
        counts[kind] += 1
        label = " ".join(override for override in c.overrides if override in varied)
        lines.append(f"cell {number} {kind} ({label or 'the only one'}): {outcome.reason}")
    counted = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n)
    worst = max((FAILED if c.outcome is None else c.outcome.status for c in cells), default=COMPLETE)
    return worst, "\n".join([f"grid {folder}: {len(cells)} cells: {counted}", *lines])


def _planned(folder: Path) -> list[list[str]]:
    return _read(folder / PLAN).get("cells", [])


def _read(file: Path) -> dict:
    """An object from a JSON file; empty where there is none, or half of one."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
