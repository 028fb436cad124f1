"""A run at a terminal: what becomes of it when its reader goes away or Ctrl-C is pressed.

Imports next to nothing, so that it stands before the slow imports. Knows neither runs nor records.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

INTERRUPTED = 130  # exit status


class _Unbreakable:
    """A text stream that goes on into nothing once a write fails: a closed pipe, a full disk, a lost terminal."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError:
            self._into_nothing()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._into_nothing()

    def _into_nothing(self) -> None:
        with suppress(OSError):  # what is still buffered goes there, too
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._stream.fileno())
            os.close(nothing)
        self._stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def unbreakable_output() -> Iterator[None]:
    """Within it, standard output and errors may go away without ending the run; None (`>&-`) counts as gone."""
    before = sys.stdout, sys.stderr
    nothing = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stdout, sys.stderr = (_Unbreakable(stream or nothing) for stream in before)
    try:
        yield
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        sys.stdout, sys.stderr = before


def stop_at_once(number: int = signal.SIGINT, frame: Any = None) -> None:
    """For Ctrl-C while modules are imported, and for a second one: nothing is tidied up, a record bears that."""
    with suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def stop_in_order(number: int, frame: Any) -> None:
    """For the first Ctrl-C of a run: it closes its record; another one stops at once."""
    signal.signal(signal.SIGINT, stop_at_once)
    raise KeyboardInterrupt


def on_ctrl_c(handler: Any) -> None:
    with suppress(ValueError):  # only a main thread has signals
        signal.signal(signal.SIGINT, handler)
