"""A grid's folder: the runs of many cells under one name, what was planned, and what became of each cell.

A cell is found again by the hash of its settings: a complete one is skipped, an interrupted one resumed. Outcomes
are kept beside the runs, so that a failed cell does not disappear. This file neither chooses nor launches cells
(Hydra's sweeper and launchers do) nor runs them (cell.py).
"""

import hashlib
import json
import re
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

from benchmarks.errors import UserError
from benchmarks.files import write_atomically
from benchmarks.record.history import READABLE, SHIPPED_PRIOR, upgraded, uses_shipped_prior
from benchmarks.record.run_folder import CELL, RUN, take_lock
from goose.drafters import probabilities

PLAN, OUTCOMES = "plan.json", "outcomes"  # in the grid's folder, beside its run folders
COMPLETE, PROBLEMS, FAILED, INTERRUPTED = 0, 1, 2, 130  # exit statuses
_WHERE = ("runs_dir", "grid")  # settings that say where a cell is kept, not what it is


@dataclass(frozen=True)
class CellNumber:
    """Which of the planned cells one is."""

    number: int  # from 0
    n_cells: int


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


def locked(folder: Path, name: str) -> BinaryIO:
    """The lock `name` ("grid", or a cell's hash) of a grid, held until the file is closed; UserError if it is taken."""
    file = folder / ".locks" / name
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        opened = open(file, "ab")  # noqa: SIM115 - the caller holds it
    except OSError as error:
        raise _no_room(error, folder) from error
    taken = take_lock(opened)
    if taken is False:
        opened.close()
        what = f"grid {folder}" if name == "grid" else f"this cell of grid {folder}"
        raise UserError(f"{what} is being run by another process; wait for it, or choose another grid=NAME")
    if taken is None:
        print(f"notice: {folder} lies where files cannot be locked; run one process a grid", file=sys.stderr)
    return opened


_held: list[BinaryIO] = []  # here and not in an object that a launcher would send to other processes


def hold(folder: Path) -> None:
    """Keeps other processes from launching this grid until `release`; UserError if one is launching it."""
    _held.append(locked(folder, "grid"))


def release() -> None:
    """Lets go of all that this process holds; the end of the process does it too."""
    while _held:
        _held.pop().close()


def begin(folder: Path, cells: Sequence[Sequence[str]]) -> None:
    """Writes down what will be run, each cell as its overrides; the outcomes of an earlier start are dropped."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / OUTCOMES).exists():
            shutil.rmtree(folder / OUTCOMES)
        (folder / OUTCOMES).mkdir()
    except OSError as error:
        raise _no_room(error, folder) from error
    write_atomically(folder / PLAN, {"started": time.time(), "cells": [list(overrides) for overrides in cells]})


def _no_room(error: OSError, folder: Path) -> UserError:
    return UserError(
        f"{error.filename or folder}: {error.strerror or error}. Make room there or choose another place with "
        "runs_dir=FOLDER."
    )


def config_hash(settings: dict[str, Any], methods: dict[str, dict], files: dict[str, str] | None = None) -> str:
    """Equal for equal settings and equal contents of the files that they name, wherever the cell is kept.

    settings: with every default resolved, as a record holds them. files: of named_files; None: as they are now.
    """
    what = {key: value for key, value in settings.items() if key not in _WHERE}
    named = named_files([what, methods]) if files is None else files
    canonical = json.dumps({"config": what, "methods": methods, "files": named}, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def named_files(settings: Any) -> dict[str, str]:
    """Path -> sha256 of the files under `cost_curve`, `file` and `..._file`: they decide what is drafted, too.

    So does the prior that comes with goose, where none is named. One that cannot be read is left out; who needs it says
    so.
    """
    if isinstance(settings, list):
        settings = dict(enumerate(settings))
    found: dict[str, str] = {}
    if uses_shipped_prior(settings):
        found[SHIPPED_PRIOR] = hashlib.sha256(probabilities.PRIOR_FILE.read_bytes()).hexdigest()
    for key, value in settings.items():
        if isinstance(value, dict | list):
            found |= named_files(value)
        elif isinstance(value, str) and (key in ("cost_curve", "file") or str(key).endswith("_file")):
            with suppress(OSError):
                found[value] = hashlib.sha256(Path(value).expanduser().read_bytes()).hexdigest()
    return found


def cell_number(folder: Path, number: int) -> CellNumber | None:
    """Which of the planned cells this is; None where no plan was written."""
    planned = _planned(folder)
    return CellNumber(number, len(planned)) if number < len(planned) else None


def find(folder: Path, config_hash: str) -> Path | None:
    """The run folder with these settings: a complete one before an interrupted one, of several the newest."""
    found = [file.parent for file in folder.glob(f"*/{CELL}") if _hash_of(_read(file)) == config_hash]
    return max(found, key=lambda run: ((run / RUN).exists(), run.name), default=None)


def _hash_of(header: dict) -> str | None:
    """Not the one that the record holds: that of another version was taken of other names."""
    if header.get("schema_version") not in READABLE or not {"config", "methods"} <= header.keys():
        return None
    header = upgraded(header)
    return config_hash(header["config"], header["methods"], header["files"])


def outcome_of(run: Path, skipped: bool) -> Outcome:
    """Of a complete run folder."""
    problems = _read(run / RUN).get("problems", [])
    return Outcome(PROBLEMS if problems else COMPLETE, "; ".join(problems) or None, run.name, skipped)


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
    outcomes = [state.outcome for state in states(folder)]
    worst = max((FAILED if outcome is None else outcome.status for outcome in outcomes), default=COMPLETE)
    counts = dict.fromkeys(("complete", "complete before", "with problems", "failed", "not run"), 0)
    for outcome in outcomes:
        counts[_kind(outcome)] += 1
    counted = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n)
    return worst, "\n".join([f"grid {folder}: {len(outcomes)} cells: {counted}", *remarks(folder)])


def remarks(folder: Path) -> list[str]:
    """A sentence on every planned cell that is not simply complete."""
    cells = states(folder)
    shared = {override for cell in cells for override in cell.overrides if all(override in c.overrides for c in cells)}
    found = []
    for number, cell in enumerate(cells, start=1):
        kind = _kind(cell.outcome)
        if kind.startswith("complete"):
            continue
        label = " ".join(override for override in cell.overrides if override not in shared)
        reason = "its process was killed, or the disk is full" if cell.outcome is None else cell.outcome.reason
        found.append(f"cell {number} {kind} ({label or 'the only one'}): {reason}")
    return found


def _kind(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not run"
    if outcome.status == COMPLETE:
        return "complete before" if outcome.skipped else "complete"
    return "with problems" if outcome.status == PROBLEMS else "failed"


def _planned(folder: Path) -> list[list[str]]:
    return _read(folder / PLAN).get("cells", [])


def _read(file: Path) -> dict:
    """An object from a JSON file; empty where there is none, or half of one."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
