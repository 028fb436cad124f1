"""`python run.py` from outside: what it prints, writes and returns, and that a killed run is finished by a resume.

Whole processes where a process matters (killing, exit status); the rest runs the same file inside this one.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.record.run_folder import RunFolder
from command_line import REPO, run_here
from goose.drafters.probabilities import PRIOR_FILE

METHODS = ["ar", "pld", "goose", "iso3", "goose_elastic"]
CELL = ["model=tiny", f"compare=[{','.join(METHODS)}]", "limit=8", "max_new_tokens=16"]
COLUMNS = ("context", "emitted", "path", "tokens", "parents", "sources")


def started(*overrides: str, cwd: Path = REPO) -> subprocess.Popen:
    command = [sys.executable, str(REPO / "run.py"), *overrides]
    env = {**os.environ, "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def listing(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def only_folder(runs_dir: Path) -> Path:
    (folder,) = runs_dir.iterdir()
    return folder


def outputs(folder: Path) -> dict[tuple, tuple]:
    """Key of a line -> all that does not depend on a clock."""
    lines = RunFolder.open(folder).lines()
    found = {
        (x["prompt_id"], x["method"], x["repeat"]): (x["output_ids"], x["place"], [x["steps"][c] for c in COLUMNS])
        for x in lines
    }
    assert len(found) == len(lines)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, int, str, str]:
    """An uninterrupted run of CELL, started in an empty folder: its record, and what it returned and printed."""
    cwd = tmp_path_factory.mktemp("whole")
    status, out, err = finished(started(*CELL, "runs_dir=runs", cwd=cwd))
    return only_folder(cwd / "runs"), status, out, err


def test_a_run_prints_its_table_and_leaves_its_record_and_nothing_else(whole):
    folder, status, out, err = whole
    assert (status, err) == (0, "")
    assert all(f"{method} " in out for method in METHODS)
    assert all(word in out for word in ("tokens/s", "speed-up", "8/8 equal", "greedy", "float32", "B = 60"))
    assert f"record: runs/{folder.name}" in out
    assert "problem" not in out
    files = ("cell.json", "run.json", "table.md", "turns.jsonl")
    assert listing(folder.parents[1]) == {f"runs/{folder.name}/{file}" for file in files}


def test_the_record_says_what_was_run(whole):
    folder = whole[0]
    record = json.loads((folder / "run.json").read_text())
    assert list(record["methods"]) == METHODS
    assert record["methods"]["goose_elastic"]["budget_mode"] == "elastic"
    assert (record["config"]["prompt_style"], record["config"]["max_new_tokens"]) == ("raw", 16)  # resolved
    assert record["model"]["dtype"] == "float32"
    assert len(record["prompts_sha256"]) == 8
    assert (record["n_lines"], record["divergences"]) == (40, [])
    assert "| goose_elastic |" in (folder / "table.md").read_text()


def killed_in_the_middle(runs_dir: Path) -> Path:
    """A run of CELL, killed with at least 10 of its 40 lines written; the last one incomplete."""
    process = started(*CELL, f"runs_dir={runs_dir}")
    deadline = time.monotonic() + 240
    turns: list[Path] = []
    while not turns or turns[0].read_bytes().count(b"\n") < 10:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
        turns = list(runs_dir.glob("*/turns.jsonl"))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    data = turns[0].read_bytes()
    turns[0].write_bytes(data[: data.rindex(b"\n", 0, -1) + 40])
    return turns[0].parent


def test_a_killed_run_is_finished_by_a_resume_as_if_it_had_not_been_killed(whole, tmp_path):
    # The folder's name has a space in it: a resume is given as a path.
    runs_dir = tmp_path / "my runs"
    folder = killed_in_the_middle(runs_dir)
    n_before = (folder / "turns.jsonl").read_bytes().count(b"\n")
    assert 9 <= n_before < 40
    assert not (folder / "run.json").exists()
    status, out, err = finished(started(f"resume={folder}"))
    assert (status, err) == (0, "")
    assert re.search(r"the last line is incomplete \(\d+ bytes\) and is left out", " ".join(out.split()))
    assert only_folder(runs_dir) == folder
    assert outputs(folder) == outputs(whole[0])
    assert len(outputs(folder)) == 40
    assert {file.name for file in folder.iterdir()} == {"cell.json", "run.json", "table.md", "turns.jsonl"}


def test_an_error_of_the_user_is_one_line_and_status_2_of_the_process(tmp_path):
    status, out, err = finished(started("model=tiny", "model.path=/nowhere/to be found", f"runs_dir={tmp_path}"))
    assert (status, out) == (2, "")
    says = "does not exist; name a folder in Hugging Face format, or a .gguf file"
    assert err == f"error: model.path=/nowhere/to be found {says}\n"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["compare=[ar,nope]"], "there is no method 'nope'"),
        (["dataset.path=/nowhere.jsonl"], "cannot read /nowhere.jsonl"),
        (["attention=flash_attention_2"], "choose one of grouped, sdpa, eager"),
        (["attention=nonsense"], "choose one of grouped, sdpa, eager"),
        (["dtype=int8"], "choose float32"),
        (["model.weights=random"], "what random weights accept means nothing"),
        (["device=cuda:99"], "device=cpu"),
        (["prompt_style=prose"], "one of raw, chat"),
        (["stop_rule=never"], "choose generation_config or tokenizer"),
        (["cost_curve="], "cost_curve= is empty"),
        (["limit=0"], "limit must be at least 1"),
        (["offset=500"], "leaves nothing"),
        (["temperature=nan"], "temperature"),
        (["resume=/nowhere", "limit=3"], "leave out model=tiny, limit=3"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_errors_are_one_line_without_a_traceback_and_leave_no_folder(
    monkeypatch, capsys, tmp_path, overrides, expected
):
    runs = [] if overrides[0].startswith("resume") else [f"runs_dir={tmp_path}"]
    status, out, err = run_here(monkeypatch, capsys, "model=tiny", *overrides, *runs)
    assert status == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert expected in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_what_hydra_itself_refuses_has_no_traceback_and_names_the_choices(monkeypatch, capsys, tmp_path):
    status, _, err = run_here(monkeypatch, capsys, "model=tiny", "method=nope", f"runs_dir={tmp_path}")
    assert status not in (0, None)
    assert "Traceback" not in err
    assert all(word in err for word in ("method/nope", *METHODS))
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_prior_has_changed_is_not_resumed(monkeypatch, capsys, tmp_path):
    prior = tmp_path / "prior.json"
    record = json.loads(PRIOR_FILE.read_text())
    prior.write_text(json.dumps(record))
    cell = ["model=tiny", "limit=1", "max_new_tokens=6", "method=goose_opt_strict",
            "method.drafter.evidence.n_single_token_rows=0",
            f"method.drafter.chances.prior_file={prior}", f"runs_dir={tmp_path / 'runs'}"]  # fmt: skip
    assert run_here(monkeypatch, capsys, *cell)[0] == 0
    folder = only_folder(tmp_path / "runs")
    (folder / "run.json").unlink()
    record["model"]["bias"] -= 1
    prior.write_text(json.dumps(record))
    status, _, err = run_here(monkeypatch, capsys, f"resume={folder}")
    assert (status, f"error: {prior}: not what it was when" in err) == (2, True)


def test_a_complete_run_or_no_run_is_not_resumed(whole, monkeypatch, capsys, tmp_path):
    status, _, err = run_here(monkeypatch, capsys, f"resume={whole[0]}")
    assert (status, "is complete; there is nothing to resume" in err) == (2, True)
    status, _, err = run_here(monkeypatch, capsys, f"resume={tmp_path}")
    assert (status, "was not found" in err) == (2, True)


def dataset_with_a_prompt_too_long(folder: Path) -> Path:
    row = {"entry_point": "f", "canonical_solution": "", "test": ""}
    rows = [{**row, "task_id": f"T/{i}", "prompt": "def f(x):\n" * n} for i, n in enumerate((3, 300, 4))]
    file = folder / "own.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return file


def test_a_failed_prompt_is_shown_and_the_status_is_1(monkeypatch, capsys, tmp_path):
    # tiny has 2048 positions, the second prompt 3000 bytes. From another working directory than the checkout.
    file = dataset_with_a_prompt_too_long(tmp_path)
    monkeypatch.chdir(tmp_path)
    small = ["model=tiny", "method=pld", f"dataset.path={file}", "max_new_tokens=4", "limit=null", "repeats=2"]
    status, out, _ = run_here(monkeypatch, capsys, *small)
    shown = " ".join(out.split())
    assert status == 1
    assert "problem: pld: 2 failed, first T/1: ValueError: the prompt's 3000 tokens leave no room" in shown
    assert "2 of 3 prompts finished by every method" in shown
    assert "4/4 equal" in shown
    folder = only_folder(tmp_path / "results" / "runs")
    assert listing(tmp_path) == {"own.jsonl", *(f"results/runs/{folder.name}/{n}" for n in os.listdir(folder))}
    lines = RunFolder.open(folder).lines()
    assert [x["error"] is None for x in lines if x["prompt_id"] != "T/1"] == [True] * 8
    assert not any("decode_s" in x for x in lines if x["prompt_id"] == "T/1")
    # Again at once, into the same runs_dir.
    run_here(monkeypatch, capsys, *small)
    assert len(os.listdir(tmp_path / "results" / "runs")) == 2


def test_half_precision_and_sampling_and_every_attention_run_on_tiny(monkeypatch, capsys, tmp_path):
    small = ["model=tiny", "compare=[pld,goose]", "limit=1", "max_new_tokens=12", f"runs_dir={tmp_path}"]
    for more in (["dtype=bfloat16"], ["dtype=float16"], ["temperature=0.7", "seed=-3"], ["attention=eager"]):
        status, out, _ = run_here(monkeypatch, capsys, *small, *more)
        assert status == 0, out
    records = [json.loads(file.read_text()) for file in tmp_path.glob("*/run.json")]
    assert {d["verdict"] for r in records for d in r["divergences"]} <= {"tie"}
    assert all(d["spread"] is not None for r in records for d in r["divergences"])


# Pipes and keys


@pytest.mark.parametrize("how", ["pipe", "closed", "full"])
def test_a_run_finishes_its_record_whatever_becomes_of_its_output(tmp_path, how):
    command = f"{sys.executable} {REPO / 'run.py'} model=tiny limit=2 max_new_tokens=6 runs_dir={tmp_path / 'runs'}"
    rest = {"pipe": "| true", "closed": ">&-", "full": "> /dev/full"}[how]
    script = f"set -o pipefail; {command} {rest}"
    done = subprocess.run(["bash", "-c", script], cwd=REPO, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert RunFolder.open(only_folder(tmp_path / "runs")).is_complete


@pytest.mark.parametrize("wanted", ["hydra", "numpy", "torch"])
def test_ctrl_c_while_modules_are_imported_is_one_line_and_status_130(tmp_path, wanted):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {wanted!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, str(REPO / "run.py"), "model=tiny", f"runs_dir={tmp_path / 'runs'}"]
    done = subprocess.run(command, cwd=REPO, env=env, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("n_times", [1, 2])
def test_ctrl_c_once_or_twice_while_measuring_has_no_traceback_and_the_run_can_be_resumed(tmp_path, n_times):
    process = started("model=tiny", "limit=60", "max_new_tokens=64", f"runs_dir={tmp_path}")
    deadline = time.monotonic() + 240
    while not any(file.stat().st_size for file in tmp_path.glob("*/turns.jsonl")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    for _ in range(n_times):
        process.send_signal(signal.SIGINT)
    status, out, err = finished(process)
    assert (status, "Traceback" in out + err) == (130, False)
    assert RunFolder.open(only_folder(tmp_path)).lines()
