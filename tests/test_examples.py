"""The examples run, as a user runs them, on a small random checkpoint in a folder."""

import os
import subprocess
import sys

from benchmarks.models.tiny import tiny_model, tiny_tokenizer
from paths import REPO


def test_draft_trees_decodes_with_three_drafters_and_draws_one_tree(tmp_path):
    tiny_model().save_pretrained(tmp_path / "checkpoint")
    tiny_tokenizer().save_pretrained(tmp_path / "checkpoint")
    picture = tmp_path / "tree.png"
    command = [sys.executable, str(REPO / "examples" / "draft_trees.py"), str(tmp_path / "checkpoint")]
    # A worktree's own code, wherever the editable install points.
    env = os.environ | {"PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, "--out", str(picture)], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["plain", "pld", "goose", "step"]
    assert all(line.endswith("same output") for line in lines[:3])
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_without_a_checkpoint_it_says_what_to_do(tmp_path):
    command = [sys.executable, str(REPO / "examples" / "draft_trees.py"), str(tmp_path / "none")]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(REPO)}, capture_output=True, text=True)
    assert done.returncode == 2
    assert "make model" in done.stderr
