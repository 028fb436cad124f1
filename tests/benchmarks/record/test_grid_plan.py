"""A grid's folder: cells found again by their settings, the plan, outcomes and the summary."""

import json
from pathlib import Path

import pytest

from benchmarks.errors import UserError
from benchmarks.record import grid
from benchmarks.record.grid import COMPLETE, FAILED, PROBLEMS, Outcome

SETTINGS = {"runs_dir": "a", "grid": "g", "limit": 3, "model": {"name": "tiny"}, "data_dir": None, "cache": True}
METHODS = {"ar": {"_target_": "x"}, "goose": {"_target_": "y", "rho": 0.5}}


# Finding a cell again


def test_the_hash_is_of_every_setting_but_where_a_cell_is_kept():
    plain = grid.config_hash(SETTINGS, METHODS)
    assert grid.config_hash({**SETTINGS, "runs_dir": "b", "grid": None}, METHODS) == plain
    assert grid.config_hash(dict(reversed(SETTINGS.items())), dict(METHODS)) == plain
    for key, value in (("limit", 4), ("model", {"name": "other"}), ("data_dir", "x")):
        assert grid.config_hash({**SETTINGS, key: value}, METHODS) != plain
    assert grid.config_hash(SETTINGS, {**METHODS, "goose": {"_target_": "y", "rho": 0.25}}) != plain
    assert grid.config_hash(SETTINGS, {"ar": METHODS["ar"]}) != plain


def test_what_a_named_file_holds_is_part_of_the_hash(tmp_path):
    file = tmp_path / "curve.json"
    file.write_text("1")
    methods = {"ar": {}, "m": {"drafter": {"cost": {"file": str(file)}, "prior_file": None, "name": str(file)}}}
    for settings, own in (({**SETTINGS, "cost_curve": str(file)}, METHODS), (SETTINGS, methods)):
        file.write_text("1")
        assert list(grid.named_files([settings, own])) == [str(file)]
        first = grid.config_hash(settings, own)
        file.write_text("2")
        assert grid.config_hash(settings, own) != first
    assert grid.named_files([{"cost_curve": str(tmp_path / "absent")}, METHODS]) == {}


def test_a_complete_run_is_found_before_an_interrupted_one_and_the_newest_of_several(tmp_path):
    h, k = (grid.config_hash({**SETTINGS, "limit": limit, "cache": True}, METHODS, {}) for limit in (1, 2))

    def run(name: str, limit: int, complete: bool) -> Path:
        (tmp_path / name).mkdir()
        header = {"schema_version": 1, "config": {**SETTINGS, "limit": limit}, "methods": METHODS}
        (tmp_path / name / "cell.json").write_text(json.dumps(header))
        if complete:
            (tmp_path / name / "run.json").write_text("{}")
        return tmp_path / name

    assert grid.find(tmp_path, h) is None
    run("9-other", 2, True)
    (tmp_path / "8-killed-before-it-began").mkdir()
    interrupted = run("1", 1, False)
    assert grid.find(tmp_path, h) == interrupted
    newer = run("2", 1, False)
    assert grid.find(tmp_path, h) == newer
    complete = run("0", 1, True)
    assert grid.find(tmp_path, h) == complete
    (tmp_path / "9-other" / "cell.json").write_text("{cut")
    assert grid.find(tmp_path, k) is None


# Plan, outcomes, summary


def test_the_summary_names_every_cell_that_is_not_complete_and_takes_the_worst_status(tmp_path):
    folder = tmp_path / "g"
    cells = [["model=tiny", f"dataset={name}"] for name in "abcde"]
    grid.begin(folder, cells)
    assert [state.outcome for state in grid.states(folder)] == [None] * 5
    assert grid.cell_number(folder, 3) == grid.CellNumber(3, 5)
    grid.record(folder, 0, Outcome(COMPLETE, None, "run0"))
    grid.record(folder, 1, Outcome(COMPLETE, None, "run1", skipped=True))
    grid.record(folder, 2, Outcome(PROBLEMS, "pld: 1 failed", "run2"))
    grid.record(folder, 3, Outcome(FAILED, "no such file"))
    status, text = grid.summary(folder)
    assert status == FAILED
    assert text.splitlines() == [
        f"grid {folder}: 5 cells: 1 complete, 1 complete before, 1 with problems, 1 failed, 1 not run",
        "cell 3 with problems (dataset=c): pld: 1 failed",
        "cell 4 failed (dataset=d): no such file",
        "cell 5 not run (dataset=e): its process was killed, or the disk is full",
    ]
    for number in (3, 4):
        grid.record(folder, number, Outcome(COMPLETE))
    assert grid.summary(folder)[0] == PROBLEMS
    assert [state.overrides for state in grid.states(folder)] == cells
    grid.begin(folder, cells[:1])  # a new start forgets how the last one ended
    assert grid.states(folder) == [grid.CellState(cells[0], None)]


def test_the_time_left_is_at_the_pace_since_the_start_and_skipped_cells_count_for_nothing(tmp_path):
    grid.begin(tmp_path, [["a"], ["b"], ["c"], ["d"], ["e"]])
    start = json.loads((tmp_path / grid.PLAN).read_text())["started"]
    assert grid.progress(tmp_path, start + 50) == "0 of 5 cells done"
    grid.record(tmp_path, 0, Outcome(COMPLETE, skipped=True))
    assert grid.progress(tmp_path, start + 50) == "1 of 5 cells done"
    grid.record(tmp_path, 1, Outcome(COMPLETE))
    assert grid.progress(tmp_path, start + 50) == "2 of 5 cells done, about 0:02:30 left"
    grid.record(tmp_path, 2, Outcome(FAILED, "why"))
    assert grid.progress(tmp_path, start + 4000) == "3 of 5 cells done, about 1:06:40 left"
    for number in (3, 4):
        grid.record(tmp_path, number, Outcome(COMPLETE))
    assert grid.progress(tmp_path, start + 4000) == "5 of 5 cells done"


def test_no_plan_is_no_cells(tmp_path):
    assert grid.states(tmp_path) == []
    assert grid.cell_number(tmp_path, 0) is None
    assert grid.summary(tmp_path)[0] == COMPLETE


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "/abs"])
def test_a_grids_name_is_the_name_of_a_folder(name):
    with pytest.raises(UserError, match="names a folder"):
        grid.grid_folder("runs", name)


def test_an_unwritable_place_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file.*choose another place with runs_dir=FOLDER"):
        grid.begin(tmp_path / "file" / "g", [])
