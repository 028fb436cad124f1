"""The run folder: never shared, resumed at any byte with no line lost or doubled, complete only when it is (29, 31)."""

import json
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.errors import UserError
from benchmarks.record.run_folder import SCHEMA_VERSION, RunFolder
from paths import REPO

ROOT = REPO


def line(number: int, **extra) -> dict:
    return {"prompt_id": f"Tiny/{number}", "turn": 0, "method": "ar", "repeat": 0, **extra}


def filled(runs_dir, n_lines: int) -> RunFolder:
    folder = RunFolder.create(runs_dir, "tiny", {})
    for number in range(n_lines):
        folder.append(line(number, text='é "\n'))
    folder.close()
    return folder


def test_layout_and_round_trip(tmp_path):
    folder = RunFolder.create(tmp_path / "a" / "runs", "org/model x humaneval", {"config": {"b": 60, "cache": True}})
    assert sorted(p.name for p in folder.path.iterdir()) == ["cell.json"]
    assert re.fullmatch(r"\d{8}T\d{6}Z-org-model-x-humaneval-[0-9a-f]{6}", folder.path.name)
    assert folder.header["schema_version"] == SCHEMA_VERSION
    assert folder.header["run_id"] == folder.path.name
    folder.append(line(0, steps=[1, 2]))
    folder.append(line(0, repeat=1))
    assert not folder.is_complete
    folder.finish({"status": "ok"})
    assert folder.is_complete
    assert sorted(p.name for p in folder.path.iterdir()) == ["cell.json", "run.json", "turns.jsonl"]
    run = json.loads((folder.path / "run.json").read_text())
    assert (run["config"], run["status"], run["n_lines"]) == ({"b": 60, "cache": True}, "ok", 2)
    again = RunFolder.open(folder.path)
    assert again.header == folder.header
    assert again.lines() == [line(0, steps=[1, 2]), line(0, repeat=1)]
    assert again.done_keys() == {("Tiny/0", 0, "ar", 0), ("Tiny/0", 0, "ar", 1)}
    assert (again.notices, again.is_complete) == ([], True)
    with pytest.raises(UserError, match="finished"):
        again.append(line(1))
    with pytest.raises(UserError, match="not finished again"):
        again.finish({})


def test_two_runs_never_share_a_folder(tmp_path, monkeypatch):
    draws = iter(["same"] * 20 + [f"other{i}" for i in range(20)])
    monkeypatch.setattr("benchmarks.record.run_folder.secrets.token_hex", lambda n: next(draws))
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: RunFolder.create(tmp_path, "x", {}), range(16)))
    assert len({f.path for f in folders}) == 16


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_cut_at_any_byte_resumes_with_exactly_the_complete_lines(data):
    n_lines = data.draw(st.integers(1, 5))
    with tempfile.TemporaryDirectory() as runs_dir:
        folder = filled(runs_dir, n_lines)
        turns = folder.path / "turns.jsonl"
        whole = turns.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        turns.write_bytes(whole[:cut])
        n_kept = whole[:cut].count(b"\n")
        incomplete = not whole[:cut].endswith(b"\n") and cut > 0
        resumed = RunFolder.open(folder.path)
        assert [r["prompt_id"] for r in resumed.lines()] == [f"Tiny/{i}" for i in range(n_kept)]
        assert len(resumed.notices) == int(incomplete)
        assert turns.read_bytes() == b"".join(whole.splitlines(keepends=True)[:n_kept])
        for number in range(n_lines):
            if (f"Tiny/{number}", 0, "ar", 0) not in resumed.done_keys():
                resumed.append(line(number, text='é "\n'))
        resumed.finish({})
        assert turns.read_bytes() == whole
        assert RunFolder.open(folder.path).notices == []


WRITER = """
import sys
from benchmarks.record.run_folder import RunFolder
folder = RunFolder.create(sys.argv[1], "killed", {})
for number in range(1_000_000):
    folder.append({"prompt_id": f"Tiny/{number}", "turn": 0, "method": "ar", "repeat": 0, "ids": [7] * 5000})
    print(number, flush=True)
"""


def test_killed_after_ten_of_forty_and_resumed_gives_forty_unique_lines(tmp_path):
    with subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, cwd=ROOT) as child:
        while int(child.stdout.readline()) < 9:
            pass
        child.send_signal(signal.SIGKILL)
    (path,) = tmp_path.iterdir()
    with open(path / "turns.jsonl", "ab") as file:
        file.write(b'{"prompt_id": "Tiny/cut", "tu')  # what a kill in the middle of a write leaves
    folder = RunFolder.open(path)
    assert len(folder.notices) == 1
    assert "incomplete" in folder.notices[0]
    done = {key[0] for key in folder.done_keys()}
    assert done >= {f"Tiny/{i}" for i in range(10)}
    for number in range(max(40, len(done))):
        if f"Tiny/{number}" not in done:
            folder.append(line(number))
    folder.finish({})
    ids = [r["prompt_id"] for r in RunFolder.open(path).lines()]
    assert ids == [f"Tiny/{i}" for i in range(max(40, len(done)))]


@pytest.mark.parametrize("tail", [b"{\n", b"\0\0\0\0\n", b"[1]\n", b"\xff\xfe\n", b'{"a": 1'])
def test_broken_end_is_dropped_broken_middle_is_an_error(tmp_path, tail):
    turns = filled(tmp_path, 2).path / "turns.jsonl"
    whole = turns.read_bytes()
    turns.write_bytes(whole + tail)
    folder = RunFolder.open(turns.parent)
    assert (len(folder.lines()), len(folder.notices)) == (2, 1)
    assert turns.read_bytes() == whole
    turns.write_bytes(whole + tail.rstrip(b"\n") + b"\n" + whole)
    with pytest.raises(UserError, match=rf"{re.escape(str(turns))}, line 3 is not a JSON object"):
        RunFolder.open(turns.parent)


def test_duplicate_and_malformed_keys_are_refused(tmp_path):
    folder = filled(tmp_path, 1)
    with pytest.raises(UserError, match="already has a line"):
        folder.append(line(0, anything="else"))
    with pytest.raises(UserError, match="already has a line"):
        folder.append(line(0) | {"repeat": np.int64(0)})
    with pytest.raises(UserError, match="repeat must be int, got True"):
        folder.append(line(1) | {"repeat": True})
    with pytest.raises(UserError, match="prompt_id must be str, got 3"):
        folder.append(line(1) | {"prompt_id": 3})
    with pytest.raises(UserError, match="method must be str, got None"):
        folder.append({"prompt_id": "a", "turn": 0, "repeat": 0})
    assert len(folder.lines()) == 1
    turns = folder.path / "turns.jsonl"
    turns.write_bytes(turns.read_bytes() * 2)
    with pytest.raises(UserError, match=r"line 2.*occurs twice"):
        RunFolder.open(folder.path)


def test_numpy_is_converted_and_what_is_not_json_is_refused_without_a_trace(tmp_path):
    folder = RunFolder.create(tmp_path, "x", {"seed": np.int64(3)})
    assert folder.header["seed"] == 3
    folder.append(line(0, a=np.arange(3), b=np.float32(0.5), c=np.bool_(True), d=[np.int8(1)]))
    assert folder.lines() == [line(0, a=[0, 1, 2], b=0.5, c=True, d=[1])]
    for bad in (float("nan"), np.float64("inf"), np.array([1.0, np.nan]), [np.float32("nan")]):
        with pytest.raises(ValueError, match="cannot be recorded"):
            folder.append(line(1, a=bad))
    with pytest.raises(TypeError, match="set cannot be recorded"):
        folder.append(line(1, a={1}))
    with pytest.raises(ValueError, match="run_id"):
        RunFolder.create(tmp_path, "x", {"run_id": "mine"})
    folder.append(line(1))
    assert len(folder.lines()) == 2


def test_a_folder_that_is_no_run_and_one_of_another_schema_are_errors(tmp_path):
    with pytest.raises(UserError, match=r"cell\.json was not found"):
        RunFolder.open(tmp_path)
    folder = filled(tmp_path, 1)
    cell = folder.path / "cell.json"
    cell.write_text(json.dumps(folder.header | {"schema_version": 99}))
    with pytest.raises(UserError, match="expected schema version 1 or 2, found 99"):
        RunFolder.open(folder.path)
    cell.write_text("{")
    with pytest.raises(UserError, match="could not be read"):
        RunFolder.open(folder.path)


def test_a_finished_run_that_lost_lines_is_not_read_as_complete(tmp_path):
    folder = filled(tmp_path, 3)
    folder = RunFolder.open(folder.path)
    folder.finish({})
    turns = folder.path / "turns.jsonl"
    damaged = turns.read_bytes()[:-5]
    turns.write_bytes(damaged)
    with pytest.raises(UserError, match="says 3 lines"):
        RunFolder.open(folder.path)
    assert turns.read_bytes() == damaged


def test_run_json_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    folder = filled(tmp_path, 1)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("benchmarks.files.os.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.finish({})
    folder.close()
    again = RunFolder.open(folder.path)
    assert not again.is_complete
    again.finish({})
    assert RunFolder.open(folder.path).is_complete


def test_a_second_writer_is_refused_and_a_reader_leaves_the_line_in_the_making_alone(tmp_path):
    pytest.importorskip("fcntl")
    writer = RunFolder.create(tmp_path, "x", {})
    second = RunFolder.open(writer.path)
    writer.append(line(0))
    with pytest.raises(UserError, match="another process"):
        second.append(line(1))
    turns = writer.path / "turns.jsonl"
    turns.write_bytes(turns.read_bytes() + b'{"prompt_id"')
    reader = RunFolder.open(writer.path)
    assert reader.lines() == [line(0)]
    assert "another process" in reader.notices[0]
    assert turns.read_bytes().endswith(b'{"prompt_id"')
    writer.close()
    with pytest.raises(UserError, match="was changed by another process"):
        second.append(line(1))


FULL_DISK = """
import resource, sys
from benchmarks.errors import UserError
from benchmarks.record.run_folder import RunFolder
folder = RunFolder.create(sys.argv[1], "full", {})
line = {"prompt_id": "a", "turn": 0, "method": "ar", "repeat": 0}
folder.append(line)
size = folder._size_bytes
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, resource.RLIM_INFINITY))  # stands in for a full disk
try:
    folder.append(line | {"repeat": 1, "ids": [1] * 1000})
except UserError as error:
    print(error)
print((folder.path / "turns.jsonl").stat().st_size == size)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
folder.append(line | {"repeat": 1})
print(len(RunFolder.open(folder.path).lines()))
"""


def test_full_disk_is_a_user_error_and_leaves_no_half_line(tmp_path):
    pytest.importorskip("resource")
    command = [sys.executable, "-c", FULL_DISK, tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    message, clean, n_lines = done.stdout.splitlines()
    assert "turns.jsonl" in message
    assert (clean, n_lines) == ("True", "2")


FULL_FOR_A_FILE = """
import resource, sys
from pathlib import Path
from benchmarks.files import write_text_atomically
from benchmarks.errors import UserError

file = Path(sys.argv[1]) / "table.md"
write_text_atomically(file, "first")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_text_atomically(file, "second" * 1000)
except UserError as error:
    print(error)
print(file.read_text(), [other.name for other in file.parent.iterdir()])
"""


def test_a_file_that_the_disk_does_not_take_leaves_the_one_before_it(tmp_path):
    pytest.importorskip("resource")
    command = [sys.executable, "-c", FULL_FOR_A_FILE, tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    message, left = done.stdout.splitlines()
    assert "table.md" in message
    assert left == "first ['table.md']"


def test_unwritable_place_is_a_user_error_naming_it(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=re.escape(str(tmp_path / "file" / "runs"))):
        RunFolder.create(tmp_path / "file" / "runs", "x", {})
    with pytest.raises(UserError, match=re.escape(str(tmp_path / "file"))):
        RunFolder.create(tmp_path / "file", "x", {})


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_run_whose_cell_json_cannot_be_written_leaves_no_folder(tmp_path, monkeypatch, error):
    def full(descriptor):
        raise error

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises((UserError, KeyboardInterrupt)):
        RunFolder.create(tmp_path / "runs", "x", {})
    assert list((tmp_path / "runs").iterdir()) == []
