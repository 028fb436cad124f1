"""run.py on any checkpoint: `model=hf`, folders and GGUF files; what the record says was loaded."""

import json
from pathlib import Path

import gguf_files
import pytest

from benchmarks.models.tiny import tiny_model, tiny_tokenizer
from command_line import run_here


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path / "cache"))

    def of(*overrides: str) -> tuple[int, str, str]:
        return run_here(monkeypatch, capsys, "method=pld", "limit=1", "max_new_tokens=4", *overrides)

    return of


@pytest.fixture
def folder(tmp_path, capsys) -> Path:
    tiny_model().save_pretrained(tmp_path / "my-finetune")
    tiny_tokenizer().save_pretrained(tmp_path / "my-finetune")
    capsys.readouterr()  # transformers' own bars
    return tmp_path / "my-finetune"


def headers() -> list[dict]:
    return [json.loads(file.read_text()) for file in sorted(Path("results/runs").glob("*/cell.json"))]


def test_a_folder_under_any_config_is_called_by_its_own_name(run, folder):
    for model in ("hf", "qwen3"):
        status, out, err = run(f"model={model}", f"model.path={folder}")
        assert (status, err) == (0, "")
        assert "my-finetune (pretrained, float32" in out
    first, second = headers()
    assert first["model"] == second["model"]
    assert first["model"]["name"] == "my-finetune"
    assert len(first["model"]["weights_digest"]) == len(first["model"]["shape_digest"]) == 16


def test_a_gguf_file(run, tmp_path):
    file = gguf_files.written(tmp_path / "some-q8.gguf")
    status, _, err = run("model=hf", f"model.path={file}", "cache=false")
    assert status == 0
    assert "cache=false" in err
    assert not (tmp_path / "cache").exists()
    (header,) = headers()
    assert header["model"]["name"] == "some-q8"
    assert header["model"]["revision"].startswith("gguf-sha256:")
    assert header["config"]["cache"] is False


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model=hf"], "model 'hf' names no weights; set model.hub_id=OWNER/NAME, model.path=FOLDER or"),
        (["model=hf", "model.path="], "model.path= is empty"),
        (["model=tiny", "dataset.path="], "dataset.path= is empty"),
        (["model=hf", "model.path=/no/such"], "model.path=/no/such does not exist"),
    ],
)
def test_bad_settings_get_one_sentence(run, overrides, message):
    status, _, err = run(*overrides)
    assert status == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
