"""Prompts of real runs are found again by the page and by scoring: sets of `data_dir`, chat frames, later turns."""

import pytest
import yaml

from benchmarks.models.tiny import tiny_tokenizer
from benchmarks.quality.answers import read_answers
from benchmarks.record.run_folder import RunFolder
from benchmarks.show.viewer_data import Readers, ViewerLimits, shown_run
from command_line import run_here
from paths import REPO
from tiny_sets import mt_bench, written

WIDE = ViewerLimits(n_prompts=9, n_bytes=10**9)
VICUNA = yaml.safe_load((REPO / "conf" / "model" / "vicuna7b.yaml").read_text())["chat_frame"]


@pytest.fixture
def measured(monkeypatch, capsys, tmp_path):
    """Runs two prompts of a small MT-Bench in `data_dir`; where the run found it, no hub and no package has it."""

    def run(*overrides: str) -> RunFolder:
        written(tmp_path, "mtbench")
        arguments = ["model=tiny", "dataset=mtbench", f"data_dir={tmp_path}", "method=pld", "limit=2", "offset=1"]
        status, out, err = run_here(
            monkeypatch, capsys, *arguments, "max_new_tokens=6", f"runs_dir={tmp_path / 'runs'}", *overrides
        )
        assert status == 0, out + err
        (path,) = (tmp_path / "runs").iterdir()
        return RunFolder.open(path)

    return run


def shown(folder: RunFolder) -> list[dict]:
    found = shown_run(folder.header, folder.lines(), Readers(), WIDE)
    assert found.notices == []
    return found.data["prompts"]


def test_a_run_from_data_dir_is_shown_with_its_prompts_and_can_be_scored(measured):
    folder = measured()
    rows = {str(row["question_id"]): row for row in mt_bench()}
    prompts = shown(folder)
    assert len(prompts) == 2
    assert [prompt["text"] for prompt in prompts] == [rows[prompt["id"]]["turns"][0] for prompt in prompts]
    assert set(read_answers(folder).items) == {prompt["id"] for prompt in prompts}


def test_both_turns_of_a_chat_in_vicunas_frame_are_shown(measured, monkeypatch):
    def frameless():
        tokenizer = tiny_tokenizer()
        tokenizer.chat_template = None
        return tokenizer

    monkeypatch.setattr("benchmarks.models.load.tiny_tokenizer", frameless)
    frame = VICUNA.replace("'", r"\'")
    folder = measured("prompt_style=chat", f"model.chat_frame='{frame}'")
    assert folder.header["chat_template"] == "model.chat_frame"
    prompts = shown(folder)
    assert [prompt["turn"] for prompt in prompts] == [0, 1, 0, 1]
    for first, second in zip(prompts[::2], prompts[1::2], strict=True):
        assert first["text"].endswith(f"USER: q{first['id']} t0 ASSISTANT:")
        assert second["text"].startswith(first["text"])
        assert second["text"].endswith(f"USER: q{first['id']} t1 ASSISTANT:")
