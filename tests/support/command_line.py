"""run.py as its tests call it. Not a test file."""

import runpy
import sys

from paths import REPO


def run_here(monkeypatch, capsys, *overrides: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr of run.py with these overrides, in this process."""
    monkeypatch.setattr(sys, "argv", ["run.py", *overrides])
    status = 0
    try:
        runpy.run_path(str(REPO / "run.py"), run_name="__main__")
    except SystemExit as stop:
        status = stop.code
    return status, *capsys.readouterr()
