"""Environment: what a run was measured on, without saying whose machine it was."""

import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from benchmarks import environment
from benchmarks.environment import FINGERPRINT_KEYS, describe, fingerprint


def test_describe_is_plain_json_and_names_what_is_here():
    env = describe("cpu")
    assert json.loads(json.dumps(env, allow_nan=False)) == env
    assert env["device"] == "cpu"
    assert env["driver"] is None
    assert env["torch"] == torch.__version__
    assert env["threads"] == torch.get_num_threads()
    assert env["cores"] >= 1
    assert env["cpu"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", env["time"])


def test_describe_names_no_host_user_or_path():
    values = {str(value) for value in describe().values()}
    assert not values & {platform.node(), os.environ.get("USER"), os.environ.get("LOGNAME")}
    assert not any("/" in value or "~" in value for value in values)


def test_cuda_device_is_named_with_its_driver(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU of {device}")
    monkeypatch.setattr(environment, "_output", lambda *command, cwd=None: "580.1" if "nvidia-smi" in command else None)
    env = describe("cuda:1")
    assert (env["device"], env["driver"]) == ("GPU of cuda:1", "580.1")


def test_fingerprint_ignores_time_and_commit_but_not_threads():
    env = describe("cpu")
    assert set(fingerprint(env)) == set(FINGERPRINT_KEYS) <= set(env)
    later = env | {"time": "later", "git_commit": "f" * 40, "git_dirty": True, "project": "9"}
    assert fingerprint(later) == fingerprint(env)
    for key in FINGERPRINT_KEYS:
        assert fingerprint(env | {key: "other"}) != fingerprint(env)
    assert fingerprint({}) != fingerprint(env)  # a record from before these keys is not comparable, and no crash


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def source_file(tmp_path, monkeypatch):
    """A stand-in for environment.py in a folder of its own."""
    file = tmp_path / "environment.py"
    file.write_text("x = 1\n")
    monkeypatch.setattr(environment, "__file__", str(file))
    for variable in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(variable, raising=False)
    return file


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_commit_and_dirty_flag(source_file, monkeypatch):
    folder = source_file.parent
    assert environment._git_state() == (None, None)
    git(folder, "init")
    git(folder, "commit", "--allow-empty", "-m", "zero")
    assert environment._git_state() == (None, None)  # somebody's checkout that this file is not part of
    git(folder, "add", ".")
    git(folder, "commit", "-m", "one")
    commit, dirty = environment._git_state()
    assert re.fullmatch(r"[0-9a-f]{40}", commit)
    assert dirty is False
    source_file.write_text("x = 2\n")
    assert environment._git_state() == (commit, True)
    monkeypatch.setenv("PATH", "")
    assert environment._git_state() == (None, None)  # git is not installed
