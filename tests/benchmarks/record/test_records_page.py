"""docs/records.md names every key that a run, a grid and a curve write."""

import contextlib
import dataclasses
import io
import json
import re

import pytest

from benchmarks.cost.curve import SCHEMA, CostCurve, Point
from benchmarks.cost.machine import Machine
from benchmarks.metrics.lossless import Divergence
from benchmarks.record.grid import Outcome, begin
from benchmarks.record.history import READABLE
from benchmarks.record.turn import Steps, Turn
from command_line import run_here
from goose.engine.tree import SOURCE_NAMES
from paths import REPO

PAGE = (REPO / "docs" / "records.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([^`\s]+)`", PAGE))


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> tuple[dict, dict, dict]:
    """Header, one line and summary of a run of the tiny model."""
    runs = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()):
        status, *_ = run_here(
            patch, _Quiet, "model=tiny", "compare=[goose,opt_tree]", "limit=1", "max_new_tokens=8", f"runs_dir={runs}"
        )
    assert status == 0
    (folder,) = (path for path in runs.iterdir() if path.is_dir())
    line = json.loads((folder / "turns.jsonl").read_text().splitlines()[-1])
    return json.loads((folder / "cell.json").read_text()), line, json.loads((folder / "run.json").read_text())


class _Quiet:
    """Stands for capsys, which serves one test only."""

    readouterr = staticmethod(lambda: ("", ""))


def fields(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def test_every_key_of_a_line_is_explained_and_typed(records):
    _, line, _ = records
    assert set(line) <= set(Turn.__annotations__)
    assert set(line["steps"]) <= set(Steps.__annotations__)
    assert set(Turn.__annotations__) | set(Steps.__annotations__) <= NAMED


def test_every_key_of_a_header_and_a_summary_is_explained(records):
    header, _, summary = records
    assert set(header) | set(header["model"]) | set(header["dataset"]) <= NAMED
    assert set(summary) <= NAMED
    assert fields(Divergence) <= NAMED


def test_every_key_of_a_grid_is_explained(tmp_path):
    begin(tmp_path, [["a=1"]])
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert set(plan) | fields(Outcome) <= NAMED


def test_every_key_of_a_curve_is_explained_with_its_schema():
    assert {"schema"} | fields(CostCurve) | fields(Point) | fields(Machine) <= NAMED
    assert f"`schema` is {SCHEMA}" in PAGE


def test_the_history_lists_every_readable_version_and_the_sources_are_numbered_as_recorded():
    assert tuple(map(int, re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE))) == READABLE
    assert ", ".join(f"{i} {name.replace('_', ' ')}" for i, name in enumerate(SOURCE_NAMES)) in PAGE
