"""Files that are written whole or not at all, JSON that any reader takes, and disk errors that name the path."""

import contextlib
import json
import os
from pathlib import Path

import numpy as np

from benchmarks.errors import UserError


def strict_json(value: dict, indent: int | None = None) -> str:
    """JSON that any reader takes: NaN and infinity are refused, numpy values become plain ones."""
    try:
        return json.dumps(value, allow_nan=False, default=_plain, indent=indent)
    except ValueError as error:
        raise ValueError(f"cannot be recorded: {error}. Deal with NaN and infinity before recording.") from error


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be recorded; expected plain or numpy values, got {value!r:.80}")


def parse_object(raw: bytes) -> dict:
    value = json.loads(raw.decode())
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    return value


def read_object(file: Path, advice: str) -> dict:
    try:
        return parse_object(file.read_bytes())
    except FileNotFoundError as error:
        raise UserError(f"{file} was not found. {advice}") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{file} could not be read ({error}). {advice}") from error


def write_atomically(file: Path, value: dict) -> None:
    """The value as JSON, whole or not at all; UserError where the disk does not take it."""
    write_text_atomically(file, strict_json(value, indent=2) + "\n")


def write_text_atomically(file: Path, text: str) -> None:
    """As write_bytes_atomically, in UTF-8."""
    write_bytes_atomically(file, text.encode())


def write_bytes_atomically(file: Path, data: bytes) -> None:
    """Whole or not at all: what was there stays where the disk does not take it, which is a UserError."""
    temporary = file.with_name(file.name + ".tmp")
    with disk_errors(file):
        try:
            with open(temporary, "wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(temporary, file)
        except BaseException:  # half a file would keep the room that a full disk lacks
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


@contextlib.contextmanager
def disk_errors(path: Path):
    """What the disk refuses, as a UserError that names the path."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}. Make room there or choose another place.") from error
