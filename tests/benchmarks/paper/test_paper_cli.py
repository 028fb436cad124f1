"""scripts/paper_tables.py from outside: no runs, some runs, refused runs."""

import os
import runpy
import sys
from pathlib import Path

import pytest

from benchmarks.record import grid
from paper_runs import usual_run
from paths import REPO


def run(monkeypatch, capsys, *arguments: str) -> tuple[object, str]:
    """Exit status and what was printed."""
    monkeypatch.setattr(sys, "argv", ["paper_tables.py", *arguments])
    try:
        runpy.run_path(str(REPO / "scripts" / "paper_tables.py"), run_name="__main__")
    except SystemExit as stop:
        return stop.code, capsys.readouterr().out
    return 0, capsys.readouterr().out


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def arguments(*more: str) -> list[str]:
    return ["runs", "--tables", "t", "--figures", "f", "--claims", str(REPO / "results/paper/claims.csv"), *more]


def test_without_runs_it_says_which_command_makes_them(monkeypatch, capsys):
    status, _ = run(monkeypatch, capsys, *arguments())
    assert str(status).startswith("error: runs holds no run")
    assert "make grid EXP=embedded" in status
    assert os.listdir() == []


def test_tables_and_figures_are_written_and_listed(monkeypatch, capsys, tmp_path):
    usual_run(tmp_path / "runs", ("ar", "pld", "goose"))
    status, out = run(monkeypatch, capsys, *arguments())
    assert status == 0
    assert {"table1_speed_up.md", "table9_beside_the_paper.tex", "cells.csv"} <= set(os.listdir("t"))
    assert {"speed_up.png", "speed_up.pdf", "average_tree_tiny_humaneval.png"} <= set(os.listdir("f"))
    assert "t: cells, table10_step_times" in out
    assert "notice: figure delta: nothing to draw yet; make grid EXP=opt_tree" in out


def test_only_one_of_the_two(monkeypatch, capsys, tmp_path):
    usual_run(tmp_path / "runs", ("ar", "pld"))
    assert run(monkeypatch, capsys, *arguments("--only", "tables"))[0] == 0
    assert not Path("f").exists()
    assert run(monkeypatch, capsys, *arguments("--only", "figures"))[0] == 0
    assert Path("f").exists()


@pytest.mark.parametrize("only", ["tables", "figures"])
def test_a_place_that_cannot_be_written_is_named(monkeypatch, capsys, tmp_path, only):
    usual_run(tmp_path / "runs", ("ar", "pld"))
    Path("a file").write_text("")
    status, _ = run(monkeypatch, capsys, *arguments("--only", only, f"--{only}", "a file/there"))
    assert str(status).startswith("error: a file/there: Not a directory")


def test_a_failed_cell_is_named_once(monkeypatch, capsys, tmp_path):
    usual_run(tmp_path / "runs" / "main", ("ar", "pld"))
    grid.begin(tmp_path / "runs" / "main", [["dataset=humaneval"], ["dataset=mbpp"]])
    grid.record(tmp_path / "runs" / "main", 0, grid.Outcome(grid.COMPLETE))
    grid.record(tmp_path / "runs" / "main", 1, grid.Outcome(grid.FAILED, "no such file"))
    _, out = run(monkeypatch, capsys, *arguments("--only", "tables"))
    assert [text for text in out.splitlines() if "no such file" in text] == [
        "notice: grid main: cell 2 failed (dataset=mbpp): no such file"
    ]


def test_refused_runs_are_named_with_the_key(monkeypatch, capsys, tmp_path):
    usual_run(tmp_path / "runs", ("ar", "pld", "goose"))
    other = usual_run(tmp_path / "runs", ("ar", "tr"), dtype="float16")
    status, out = run(monkeypatch, capsys, *arguments("--only", "tables"))
    assert status == 0
    (notice,) = {text for text in out.splitlines() if text.startswith("notice: refused: ")}
    assert other.header["run_id"] in notice
    assert "dtype float16, not float32" in notice
