"""A grid that is run: cells finished, skipped, and a failed one neither stops nor disappears."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks.record import grid, run_folder
from benchmarks.record.grid import FAILED, INTERRUPTED, PROBLEMS
from benchmarks.record.run_folder import RunFolder
from benchmarks.run import cell
from command_line import REPO, run_here
from goose.engine.lm import TreeLM
from tiny_sets import mbpp

COLUMNS = ("context", "emitted", "path", "tokens", "parents", "sources")
SMALL = ["model=tiny", "compare=[pld]", "limit=2", "max_new_tokens=6", "grid=g"]


@pytest.fixture
def here(monkeypatch, tmp_path):
    """An empty working directory: Hydra's sweep folder lands there too."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results" / "runs"


def runs(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.glob("*/cell.json"))


def outputs(folder: Path) -> dict[tuple, tuple]:
    """Settings and key of every line of a grid -> all that does not depend on a clock."""
    found = {}
    for run in runs(folder):
        opened = RunFolder.open(run)
        assert opened.is_complete
        for x in opened.lines():
            key = (opened.header["config_hash"], x["prompt_id"], x["turn"], x["method"], x["repeat"])
            assert key not in found
            found[key] = (x["output_ids"], x["place"], [x["steps"][c] for c in COLUMNS])
    return found


def test_an_experiment_runs_its_cells_and_a_second_start_skips_them(here, monkeypatch, capsys):
    status, out, err = run_here(monkeypatch, capsys, "+experiment=smoke")
    folder = here / "smoke"
    assert (status, err) == (0, "")
    assert [f"cell {n} of 2" in out for n in (1, 2, 3)] == [True, True, False]
    assert "grid results/runs/smoke: 2 cells: 2 complete" in out
    assert [RunFolder.open(run).header["config"]["node_budget"] for run in runs(folder)] == [8, 16]
    before = {run: (run / "turns.jsonl").stat().st_mtime_ns for run in runs(folder)}
    status, out, err = run_here(monkeypatch, capsys, "-m", "+experiment=smoke")
    assert (status, err) == (0, "")
    assert "grid results/runs/smoke: 2 cells: 2 complete before" in out
    assert {run: (run / "turns.jsonl").stat().st_mtime_ns for run in runs(folder)} == before
    assert [state.outcome.run for state in grid.states(folder)] == [run.name for run in runs(folder)]
    # What the command line says about an axis replaces it, and a changed setting is another cell.
    status, out, _ = run_here(monkeypatch, capsys, "-m", "+experiment=smoke", "node_budget=16,32")
    assert (status, len(runs(folder))) == (0, 3)
    assert "2 cells: 1 complete, 1 complete before" in out


def test_a_single_run_in_a_grid_is_skipped_and_finished_too(here, monkeypatch, capsys):
    assert run_here(monkeypatch, capsys, *SMALL)[0] == 0
    (run,) = runs(here / "g")
    status, out, _ = run_here(monkeypatch, capsys, *SMALL)
    assert (status, out) == (0, f"complete, not run again: results/runs/g/{run.name}\n")
    lines = (run / "turns.jsonl").read_text().splitlines(keepends=True)
    (run / "run.json").unlink()
    (run / "turns.jsonl").write_text("".join(lines[:3]) + lines[3][:20])
    status, out, _ = run_here(monkeypatch, capsys, *SMALL)
    assert (status, "the last line is incomplete" in " ".join(out.split())) == (0, True)
    assert (len(RunFolder.open(run).lines()), RunFolder.open(run).is_complete) == (4, True)
    assert runs(here / "g") == [run]


def test_a_failed_cell_neither_stops_nor_disappears(here, monkeypatch, capsys, tmp_path):
    # A missing file, a malformed row, then a good one.
    (tmp_path / "bad.jsonl").write_text(json.dumps(mbpp(11)) + "\n" + json.dumps({"task_id": 12}) + "\n")
    (tmp_path / "good.jsonl").write_text(json.dumps(mbpp(11)) + "\n" + json.dumps(mbpp(12)) + "\n")
    sweep = [*SMALL, "dataset=mbpp", "dataset.path=absent.jsonl,bad.jsonl,good.jsonl", "-m"]
    status, out, err = run_here(monkeypatch, capsys, *sweep)
    assert status == FAILED
    assert "grid results/runs/g: 3 cells: 1 complete, 2 failed" in out
    assert "cell 1 failed (dataset.path=absent.jsonl): dataset.path: cannot read absent.jsonl" in out
    assert "cell 2 failed (dataset.path=bad.jsonl): file bad.jsonl, line 2: missing text, code" in out
    assert err.count("error: ") == 2
    assert len(runs(here / "g")) == 1
    # Put right, only the failed ones are run.
    (tmp_path / "bad.jsonl").write_text(json.dumps(mbpp(11)) + "\n")
    status, out, _ = run_here(monkeypatch, capsys, *sweep)
    assert (status, "3 cells: 1 complete, 1 complete before, 1 failed" in out) == (FAILED, True)


def test_a_cell_whose_prompts_fail_is_complete_with_problems_also_when_it_is_skipped(
    here, monkeypatch, capsys, tmp_path
):
    (tmp_path / "long.jsonl").write_text(json.dumps(mbpp(11, text="x" * 3000)) + "\n" + json.dumps(mbpp(12)) + "\n")
    sweep = [*SMALL, "dataset=mbpp", "dataset.path=long.jsonl", "seed=0,1", "-m"]
    for kind in ("with problems", "with problems"):
        status, out, _ = run_here(monkeypatch, capsys, *sweep)
        assert status == PROBLEMS
        assert f"2 cells: 2 {kind}" in out
        assert "cell 1 with problems (seed=0): ar: 1 failed, first MBPP/11: ValueError: the prompt's 3003" in out


def test_a_model_that_runs_out_of_memory_in_one_cell_is_named_and_the_rest_goes_on(here, monkeypatch, capsys):
    load = cell.load_model

    def load_model(spec, *, device, dtype, cache):
        if dtype == "float16":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB\nand more")
        return load(spec, device=device, dtype=dtype, cache=cache)

    monkeypatch.setattr(cell, "load_model", load_model)
    status, out, err = run_here(monkeypatch, capsys, "-m", *SMALL, "dtype=float16,float32")
    assert status == FAILED
    assert "cell 1 failed (dtype=float16): OutOfMemoryError: CUDA out of memory. Tried to allocate 20 GiB\n" in out
    assert "2 cells: 1 complete, 1 failed" in out
    assert "Traceback" in err  # an error that is no UserError can be looked into


def test_a_full_disk_is_named_and_nothing_is_lost(here, monkeypatch, capsys):
    sweep = ["-m", *SMALL, "seed=0,1"]
    n_synced, fsync = [0], os.fsync

    def full(descriptor):
        n_synced[0] += 1
        if n_synced[0] in (5, 6):  # plan, cell.json, two lines, then the third, and the outcome
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(run_folder.os, "fsync", full)
        status, out, err = run_here(monkeypatch, capsys, *sweep)
    assert status == FAILED
    assert err.count("No space left on device. Make room there") == 2
    assert "cell 1 not run (seed=0): its process was killed, or the disk is full" in out
    assert "2 cells: 1 complete, 1 not run" in out
    kept = sorted(len(RunFolder.open(run).lines()) for run in runs(here / "g"))  # folders of one second have no order
    assert kept == [2, 4]
    status, out, _ = run_here(monkeypatch, capsys, *sweep)
    assert (status, "2 cells: 1 complete, 1 complete before" in out) == (0, True)
    assert len(outputs(here / "g")) == 8


def test_an_unwritable_folder_stops_the_grid_before_it_begins(here, monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    status, out, err = run_here(monkeypatch, capsys, "-m", *SMALL, "seed=0,1", "runs_dir=file")
    assert (status, out) == (2, "")
    assert err.startswith("error: file")
    assert "choose another place with runs_dir=FOLDER" in err


@pytest.mark.parametrize(
    ("owner", "step"),
    [(RunFolder, "append"), (TreeLM, "prepare"), (cell, "prepared")],
    ids=["a line", "preparing", "before the record"],
)
def test_ctrl_c_stops_the_whole_grid_and_the_same_command_finishes_it(here, monkeypatch, capsys, owner, step):
    whole_step = getattr(owner, step)

    def interrupted(*args):
        whole_step(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, interrupted)
        status, out, _ = run_here(monkeypatch, capsys, "-m", *SMALL, "seed=0,1")
    assert (status, "interrupted" in out) == (INTERRUPTED, True)
    first, second = grid.states(here / "g")
    assert (first.outcome.status, first.outcome.reason, second.outcome) == (INTERRUPTED, "interrupted", None)
    status, out, _ = run_here(monkeypatch, capsys, "-m", *SMALL, "seed=0,1")
    assert (status, len(outputs(here / "g"))) == (0, 8)


# Whole processes


def started(cwd: Path, *overrides: str) -> subprocess.Popen:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(REPO), *sys.path])}
    command = [sys.executable, str(REPO / "run.py"), *overrides]
    return subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The folder of an uninterrupted smoke grid."""
    cwd = tmp_path_factory.mktemp("whole")
    process = started(cwd, "+experiment=smoke")
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, ""), out
    return cwd / "results" / "runs" / "smoke"


def test_a_grid_killed_in_the_middle_ends_with_the_same_lines_as_an_uninterrupted_one(whole, tmp_path):
    process = started(tmp_path, "+experiment=smoke")
    folder, deadline = tmp_path / "results" / "runs" / "smoke", time.monotonic() + 240
    while sum(file.read_bytes().count(b"\n") for file in folder.glob("*/turns.jsonl")) < 8:  # 6 a cell
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    process = started(tmp_path, "+experiment=smoke")
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, ""), out
    assert "complete before" in out
    assert len(runs(folder)) == 2
    assert outputs(folder) == outputs(whole)


@pytest.mark.parametrize(
    ("preset", "package", "options"),
    [
        ("processes", "joblib", ["hydra.launcher.n_jobs=2"]),
        ("slurm_local", "submitit", []),
    ],
)
def test_a_launcher_in_other_processes_gives_the_same_lines_and_sees_a_failed_cell(
    whole, tmp_path, preset, package, options
):
    pytest.importorskip(package, reason=f"{package} is not installed; pip install -e '.[dev]'")
    process = started(tmp_path, "+experiment=smoke", f"hydra/launcher={preset}", *options)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    folder = tmp_path / "results" / "runs" / "smoke"
    assert outputs(folder) == outputs(whole)
    assert "2 cells: 2 complete" in out
    # One more cell, and that one fails: node_budget 0 is no budget.
    process = started(tmp_path, "+experiment=smoke", "node_budget=8,0", f"hydra/launcher={preset}", *options)
    out, err = process.communicate(timeout=300)
    assert process.returncode == FAILED, err
    assert "2 cells: 1 complete before, 1 failed" in out
    assert "cell 2 failed (node_budget=0): node_budget must be at least 1, got 0" in out


def test_two_identical_grids_at_once_measure_each_cell_once(tmp_path):
    both = [started(tmp_path, "+experiment=smoke") for _ in range(2)]
    ended = [(*process.communicate(timeout=300), process.returncode) for process in both]
    assert sum(status == 0 for _, _, status in ended) >= 1, ended
    for out, err, status in ended:
        assert "Traceback" not in err
        if status:  # else it came after the other had ended
            assert (status, out) == (FAILED, "")
            assert err == (
                "error: grid results/runs/smoke is being run by another process; wait for it, or choose another "
                "grid=NAME\n"
            )
    assert len(runs(tmp_path / "results" / "runs" / "smoke")) == 2


def test_a_grid_or_a_cell_that_another_process_runs_is_left_to_it(here, monkeypatch, capsys):
    for name, options in (("grid", ["-m", "seed=0,1"]), ("cell", [])):
        assert run_here(monkeypatch, capsys, *options, *SMALL)[0] == 0
        before = {file: file.read_bytes() for file in (here / "g").rglob("*.json")}
        locks = (here / "g" / ".locks").iterdir()
        held = [grid.locked(here / "g", file.name) for file in locks if (file.name == "grid") == (name == "grid")]
        status, _, err = run_here(monkeypatch, capsys, *options, *SMALL)
        assert (status, err.count("is being run by another process")) == (FAILED, 1)
        assert {file: file.read_bytes() for file in (here / "g").rglob("*.json")} == before
        for file in held:
            file.close()
        assert run_here(monkeypatch, capsys, *options, *SMALL)[0] == 0


def test_without_locks_a_grid_goes_on_with_a_notice(here, monkeypatch, capsys):
    monkeypatch.setattr(run_folder, "fcntl", None)
    status, _, err = run_here(monkeypatch, capsys, "-m", *SMALL)
    assert (status, "notice: results/runs/g lies where files cannot be locked" in err) == (0, True)


def test_a_multirun_writes_beside_its_runs_only(here, monkeypatch, capsys, tmp_path):
    assert run_here(monkeypatch, capsys, "-m", *SMALL, f"runs_dir={tmp_path / 'elsewhere'}")[0] == 0
    assert [file.name for file in tmp_path.iterdir()] == ["elsewhere"]
    (tmp_path / "file").write_text("")
    status, out, err = run_here(monkeypatch, capsys, "-m", *SMALL, "grid=null", "runs_dir=file")
    assert (status, out, err.count("\n"), "Set runs_dir=FOLDER" in err) == (2, "", 1, True)
