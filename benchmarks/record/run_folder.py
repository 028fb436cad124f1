"""The folder of one run: `cell.json` first, `turns.jsonl` line by line, `run.json` last. Its presence means complete.

A run may be killed at any byte and resumed: finished lines stay, an interrupted one goes, nothing is measured twice.
This file does not know what a line measures, beyond the four fields of its key, and computes nothing from it.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import numpy as np

from benchmarks.errors import UserError
from benchmarks.files import disk_errors, parse_object, read_object, strict_json, write_atomically
from benchmarks.record.history import READABLE, SCHEMA_VERSION, upgraded

try:
    import fcntl
except ImportError:  # no advisory locks on this system: one writer a folder is then the user's care
    fcntl = None

KEY_FIELDS = {"prompt_id": str, "turn": int, "method": str, "repeat": int}
CELL, TURNS, RUN = "cell.json", "turns.jsonl", "run.json"
Key = tuple[str, int, str, int]


class RunFolder:
    """Made by `create` or `open`. One process writes at a time; any number may read, also meanwhile."""

    def __init__(self, path: Path, header: dict):
        self.path = path
        self.header = header
        self.notices: list[str] = []
        self._keys: set[Key] = set()
        self._size_bytes = 0  # of turns.jsonl up to the last complete line
        self._file: BinaryIO | None = None  # opened and locked by the first append

    @classmethod
    def create(cls, runs_dir: str | os.PathLike, label: str, header: dict) -> "RunFolder":
        """A new folder in `runs_dir`, never one that was there before, with `header` in its cell.json."""
        runs_dir = Path(runs_dir)
        safe_label = re.sub(r"[^A-Za-z0-9._-]+", "-", label)[:100]
        with disk_errors(runs_dir):
            runs_dir.mkdir(parents=True, exist_ok=True)
        while True:
            now = datetime.now(UTC)
            run_id = f"{now:%Y%m%dT%H%M%SZ}-{safe_label}-{secrets.token_hex(3)}"
            path = runs_dir / run_id
            with disk_errors(path):
                try:
                    path.mkdir(exist_ok=False)
                    break
                except FileExistsError:
                    continue
        own = {"schema_version": SCHEMA_VERSION, "run_id": run_id, "created": now.isoformat(timespec="seconds")}
        try:
            folder = cls(path, json.loads(strict_json(_merged(own, header))))
            write_atomically(path / CELL, folder.header)
        except BaseException:  # a full disk, Ctrl-C: a folder without its cell.json is no run
            shutil.rmtree(path, ignore_errors=True)
            raise
        return folder

    @classmethod
    def open(cls, path: str | os.PathLike, each: Callable[[dict], None] = lambda line: None) -> "RunFolder":
        """A folder made earlier, to read or to resume. An incomplete last line is dropped, and `notices` says so.

        `each` is given every complete line as it is read, so that a reader need not hold them all.
        """
        path = Path(path)
        header = read_object(path / CELL, "It is not a run folder, or the run was killed before it began.")
        version = header.get("schema_version")
        if version not in READABLE:
            raise UserError(
                f"{path / CELL}: expected schema version {' or '.join(map(str, READABLE))}, found {version!r}. "
                "Read it with the version of the harness that wrote it, or start a new run."
            )
        folder = cls(path, upgraded(header))

        def take(number: int, line: dict) -> None:
            key = _key(line, f"{path / TURNS}, line {number}")
            if key in folder._keys:
                raise UserError(f"{path / TURNS}, line {number}: {key} occurs twice. Delete one of the two lines.")
            folder._keys.add(key)
            each(line)

        folder._size_bytes, n_bytes = _read_turns(path / TURNS, take)
        if folder.is_complete:
            n_lines = folder.summary().get("n_lines")
            if n_lines != len(folder._keys):
                n_found = len(folder._keys)
                raise UserError(
                    f"{path / RUN} says {n_lines} lines, {TURNS} has {n_found}: the finished run was changed. "
                    f"Restore {TURNS}, or delete {RUN} to resume the run."
                )
        elif n_bytes > folder._size_bytes:
            folder._drop_incomplete_line(n_bytes)
        return folder

    @property
    def is_complete(self) -> bool:
        return (self.path / RUN).exists()

    def lines(self) -> list[dict]:
        """Every complete line, read from the file: per-step columns of a long run are not kept in memory."""
        lines: list[dict] = []
        _read_turns(self.path / TURNS, lambda number, line: lines.append(line))
        return lines

    def summary(self) -> dict:
        """What `finish` wrote, the header included; UserError while the run is not complete."""
        return upgraded(read_object(self.path / RUN, "Delete it to resume the run."))

    def done_keys(self) -> set[Key]:
        """(prompt id, turn, method, repeat) of every complete line."""
        return set(self._keys)

    def append(self, line: dict) -> None:
        """Adds one line and returns when it is on the disk; a line that could not be written leaves no trace."""
        turns = self.path / TURNS
        if self.is_complete:
            raise UserError(f"{self.path} is finished ({RUN} is there) and takes no more lines. Start a new run.")
        key = _key(line, f"line for {turns}")
        if key in self._keys:
            raise UserError(f"{turns} already has a line for {key}; it was not added again.")
        data = strict_json(line).encode() + b"\n"
        with disk_errors(turns):
            file = self._file = self._file or self._open_for_writing()
            try:
                view = memoryview(data)
                while view:  # an unbuffered write may take only a part
                    view = view[file.write(view) :]
                os.fsync(file.fileno())
            except BaseException:  # a full disk, but also Ctrl-C: half a line must not stay in the middle of the file
                with contextlib.suppress(OSError):
                    file.truncate(self._size_bytes)
                self.close()  # so that a next append looks at the file again before it trusts it
                raise
        self._size_bytes += len(data)
        self._keys.add(key)

    def finish(self, summary: dict) -> None:
        """Writes run.json: the header, what this file adds, and `summary`. The folder is read-only from here on."""
        if self.is_complete:
            raise UserError(f"{self.path / RUN} is there already; a finished run is not finished again.")
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        own = {**self.header, "finished": finished, "n_lines": len(self._keys)}
        with disk_errors(self.path / TURNS):
            self._file = self._file or self._open_for_writing()  # only the one who may write may say it is complete
        write_atomically(self.path / RUN, _merged(own, summary))
        self.close()

    def close(self) -> None:
        """Lets another process write; done by `finish` and at the end of the process anyway."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open_for_writing(self) -> BinaryIO:
        """turns.jsonl, locked, and still as long as it was when its keys were read."""
        turns = self.path / TURNS
        file = open(turns, "ab", buffering=0)  # noqa: SIM115 - stays open from line to line, and so does the lock
        if not _lock(file):
            file.close()
            raise UserError(f"{turns} is being written by another process. Wait for it, or start a new run.")
        if os.fstat(file.fileno()).st_size != self._size_bytes:
            file.close()
            raise UserError(f"{turns} was changed by another process after it was opened here. Open the run again.")
        return file

    def _drop_incomplete_line(self, n_bytes: int) -> None:
        what = f"{self.path / TURNS}: the last line is incomplete ({n_bytes - self._size_bytes} bytes) and is left out"
        try:
            with open(self.path / TURNS, "r+b") as file:
                if _lock(file) and os.fstat(file.fileno()).st_size == n_bytes:
                    file.truncate(self._size_bytes)
                    os.fsync(file.fileno())
                else:  # not cut off but still being written: it belongs to the process that is writing it
                    what += "; another process is writing this run"
        except OSError as error:  # a read-only folder can still be read; only a resume needs the repair
            what += f"; the file could not be repaired ({error.strerror})"
        self.notices.append(what + ".")


def _read_turns(turns: Path, each: Callable[[int, dict], None]) -> tuple[int, int]:
    """Gives every complete line and its number to `each`; returns the bytes of these, and of the whole file."""
    size_bytes = n_bytes = 0
    with disk_errors(turns):
        if not turns.exists():
            return 0, 0
        with open(turns, "rb") as file:
            for number, raw in enumerate(file, start=1):
                n_bytes += len(raw)
                if not raw.endswith(b"\n"):
                    break
                try:
                    line = parse_object(raw)
                except ValueError as error:
                    if not file.read(1):  # incomplete all the same: blocks of a crashed disk can come back blank
                        break
                    raise UserError(
                        f"{turns}, line {number} is not a JSON object ({error}), and more follows it, so it was not "
                        "cut off by a killed run. Repair or delete that line, or start a new run."
                    ) from error
                each(number, line)
                size_bytes = n_bytes
    return size_bytes, n_bytes


def _key(line: dict, where: str) -> Key:
    key = []
    for field, kind in KEY_FIELDS.items():
        value = line.get(field)
        value = value.item() if isinstance(value, np.generic) else value
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UserError(f"{where}: {field} must be {kind.__name__}, got {value!r}.")
        key.append(value)
    return tuple(key)


def _merged(own: dict, given: dict) -> dict:
    clash = own.keys() & given.keys()
    if clash:
        raise ValueError(f"these keys are written by the run folder itself: {', '.join(sorted(clash))}")
    return {**own, **given}


def _lock(file: BinaryIO) -> bool:
    """Takes the file for this process until it is closed; False when another process has it."""
    return take_lock(file) is not False


def take_lock(file: BinaryIO) -> bool | None:
    """As _lock; None where the system, or a file system as some network ones are, has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
