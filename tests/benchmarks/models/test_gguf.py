"""GGUF files made by hand: dequantised once, kept by what they hold, refused in a sentence. Never the network."""

import json
import struct
from pathlib import Path
from types import SimpleNamespace

import gguf_files
import pytest
import torch

from benchmarks.errors import UserError
from benchmarks.models import cache, gguf
from benchmarks.models.gguf import prepared, read_header
from benchmarks.models.load import ModelSpec, load_model, load_tokenizer
from benchmarks.models.tiny import TINY_TEMPLATE


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def file(tmp_path) -> Path:
    return gguf_files.written(tmp_path / "some-model-q8.gguf")


def loaded(file: Path, **options):
    return load_model(ModelSpec("hf", "hub", path=str(file)), device="cpu", **options)


def refused(file: Path, **options) -> str:
    with pytest.raises(UserError) as caught:
        loaded(file, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_kept_or_read_each_time_it_is_the_same_model(tmp_path, family, root, capsys):
    file = gguf_files.written(tmp_path / f"{family}.gguf", family=family)
    unkept = loaded(file, cache=False)
    assert not root.exists()
    assert "cache=false" in capsys.readouterr().err
    kept = loaded(file)
    assert "dequantising" in capsys.readouterr().err
    again = loaded(file)
    assert "dequantising" not in capsys.readouterr().err
    assert unkept.weights_digest == kept.weights_digest == again.weights_digest
    assert (kept.name, kept.source) == (family, str(file))
    assert kept.revision == unkept.revision == f"gguf-sha256:{gguf.prepared(file).sha256}"
    ids = torch.tensor([kept.tokenizer("hello there")["input_ids"]])
    with torch.inference_mode():
        assert torch.equal(kept.model(ids).logits, unkept.model(ids).logits)
    assert kept.tokenizer.chat_template == unkept.tokenizer.chat_template == TINY_TEMPLATE
    assert kept.model.generation_config.eos_token_id == kept.tokenizer.eos_token_id == 257


def test_it_is_kept_by_what_it_holds_and_not_by_its_name(tmp_path, file, root):
    first = prepared(file)
    moved = file.rename(tmp_path / "moved.gguf")
    assert prepared(moved) == first
    other = gguf_files.written(file, seed=1)
    assert prepared(other).folder != first.folder
    assert len(list((root / "gguf").iterdir())) == 2
    assert json.loads((first.folder / cache.MANIFEST).read_text())["gguf_sha256"] == first.sha256


def test_a_damaged_copy_is_made_again(file):
    folder = prepared(file).folder
    (folder / "model.safetensors").write_bytes(b"half")
    assert cache.is_complete(prepared(file).folder)


def test_an_interrupted_conversion_leaves_nothing_that_looks_whole(file, root, monkeypatch):
    def half(path, out):
        out.mkdir()
        (out / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(gguf, "convert", half)
    with pytest.raises(KeyboardInterrupt):
        prepared(file)
    assert list((root / "gguf").iterdir()) == []


def test_without_room_it_is_refused_before_the_work(file, root, monkeypatch):
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda root: SimpleNamespace(free=1e6))
    message = refused(file)
    assert "some-model-q8.gguf needs 0.1 GB under" in message
    assert "cache=false" in message
    assert loaded(file, cache=False).model is not None


def test_a_cache_folder_that_takes_no_files_is_no_obstacle(file, root, capsys):
    root.write_text("a file where the folder should be")
    assert loaded(file).name == "some-model-q8"
    assert "was not kept" in capsys.readouterr().err


def test_the_tokenizer_alone(file):
    tokenizer = load_tokenizer(ModelSpec("hf", "hub", path=str(file)))
    assert tokenizer.decode(tokenizer("hello")["input_ids"]) == "hello"


# One sentence each


def test_a_file_that_is_no_gguf(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"not a GGUF at all")
    assert "is a file and no GGUF; name a folder" in refused(tmp_path / "model.safetensors")
    (tmp_path / "empty").touch()
    assert "is a file and no GGUF" in refused(tmp_path / "empty")


def test_a_file_cut_anywhere_is_refused_by_its_header(file):
    data = file.read_bytes()
    for n_bytes in (4, 10, 30, 300, 3000, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:n_bytes])
        assert "cut short" in refused(file)


def test_a_damaged_header_is_refused(file):
    data = bytearray(file.read_bytes())
    data[8:16] = struct.pack("<Q", 1 << 60)  # tensors
    file.write_bytes(data)
    assert "cut short or damaged" in refused(file)
    data[4:8] = struct.pack("<I", 77)  # version
    file.write_bytes(data)
    assert "its version is 77" in refused(file)


def test_a_family_that_is_not_supported(tmp_path):
    unknown = gguf_files.written(tmp_path / "a.gguf", family="mpt")
    assert "GGUF files of the family 'mpt' are not supported" in refused(unknown)
    recurrent = gguf_files.written(tmp_path / "b.gguf", family="gpt2")  # transformers reads it, the engine does not
    assert "'gpt2' is not supported" in refused(recurrent)
    assert "'gpt2' is not supported" in refused(recurrent, cache=False)


def test_a_gguf_without_a_tokenizer(tmp_path):
    assert "holds no tokenizer" in refused(gguf_files.written(tmp_path / "a.gguf", tokenizer=False))


def test_a_missing_package_is_named(file, monkeypatch):
    monkeypatch.setattr(gguf.importlib.util, "find_spec", lambda name: None)
    assert "gguf and accelerate is not installed" in refused(file)


def test_the_header_says_what_the_file_holds(file):
    header = read_header(file)
    assert header.family == "llama"
    assert header.n_bytes == file.stat().st_size
    assert header.values["tokenizer.ggml.tokens"] == gguf_files.VOCAB
    n_layer = gguf_files.HIDDEN * (2 * gguf_files.HIDDEN + gguf_files.HIDDEN + 3 * gguf_files.INNER + 2)
    assert header.n_elements == gguf_files.HIDDEN * (2 * gguf_files.VOCAB + 1) + gguf_files.LAYERS * n_layer
