"""Model configs, loading from folders, refusals, end tokens: all offline. The hub is in test_hub.py."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from benchmarks.errors import UserError
from benchmarks.models import load
from benchmarks.models.cache import is_complete
from benchmarks.models.embedded import FOLDER
from benchmarks.models.generation import generation_notice, stop_ids
from benchmarks.models.load import ModelSpec, load_model
from benchmarks.models.spec import STANDS_FOR
from benchmarks.models.tiny import tiny_model, tiny_tokenizer
from goose.engine.user_cache import cache_root
from paths import REPO

TINY = ModelSpec("tiny", "tiny", cpu_dtype="float32")
HUB = ModelSpec("there", "hub", hub_id="someone/there")


def refused(spec: ModelSpec, **options) -> str:
    with pytest.raises(UserError) as caught:
        load_model(spec, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path):
    """A local checkpoint with tiny's weights."""
    path = tmp_path / "checkpoint"
    tiny_model().save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


def at(folder: Path) -> ModelSpec:
    return dataclasses.replace(TINY, path=str(folder))


def edit_json(file: Path, **changes) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


# Configs


@pytest.mark.parametrize("file", sorted((REPO / "conf" / "model").glob("*.yaml")), ids=lambda file: file.stem)
def test_every_config_is_a_spec(file):
    config = yaml.safe_load(file.read_text())
    if "defaults" in config:  # a file that changes another one
        original, own_last = config.pop("defaults")
        assert own_last == "_self_"
        config = yaml.safe_load((file.parent / f"{original}.yaml").read_text()) | config
    config.pop("chat_frame")  # benchmarks/data/prompts.py reads it
    assert list(config) == [field.name for field in dataclasses.fields(ModelSpec)]
    if file.stem == "hf":  # what it loads is for the user to say
        config["hub_id"] = "someone/there"
    spec = ModelSpec(**config)
    assert spec.name == file.stem
    assert spec.shown_name == ("there" if file.stem == "hf" else file.stem)
    assert file.stem in STANDS_FOR
    assert config["gpu_dtype"] in (*load.DTYPES, "auto")
    assert config["cpu_dtype"] in load.DTYPES


def test_specs_that_cannot_work():
    with pytest.raises(UserError, match=r"model.source is 'web'; choose one of hub, embedded, tiny"):
        ModelSpec("a", "web")
    with pytest.raises(
        UserError, match=r"'a' names no weights; set model.hub_id=OWNER/NAME, model.path=FOLDER or model.path=FILE.gguf"
    ):
        ModelSpec("a", "hub")


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (ModelSpec("qwen3", "hub", hub_id="Qwen/Qwen3-8B"), "qwen3"),
        (ModelSpec("qwen3", "hub", hub_id="someone/finetune"), "finetune"),
        (ModelSpec("qwen3", "hub", hub_id="Qwen/Qwen3-8B", path="/models/mine/"), "mine"),
        (ModelSpec("hf", "hub", path="/models/mine-q4.gguf"), "mine-q4"),
        (ModelSpec("hf", "hub", path="/models/qwen2.5-coder"), "qwen2.5-coder"),
        (ModelSpec("mine", "hub", path="/models/other"), "mine"),
        (ModelSpec("smollm2", "embedded"), "smollm2"),
    ],
)
def test_the_name_says_what_was_loaded(spec, name):
    assert spec.shown_name == name


def test_an_empty_option_says_so():
    for key in ("path", "hub_id"):
        with pytest.raises(UserError, match=f"model.{key}= is empty"):
            ModelSpec("a", "hub", **{key: ""})


def test_two_checkpoints_in_folders_of_one_name_differ_in_their_digests(folder, tmp_path):
    other = tmp_path / "b" / "checkpoint"
    model = tiny_model()
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    model.save_pretrained(other)
    tiny_tokenizer().save_pretrained(other)
    first, second, again = (load_model(at(path), device="cpu") for path in (folder, other, folder))
    assert first.revision == second.revision  # names and sizes of the files are the same
    assert first.shape_digest == second.shape_digest
    assert first.weights_digest == again.weights_digest != second.weights_digest
    assert first.weights_digest == load_model(TINY, device="cpu").weights_digest


@pytest.mark.parametrize(
    ("own", "expected"), [("float16", "float16"), ("bfloat16", "bfloat16"), ("float32", "bfloat16")]
)
def test_dtype_auto_on_a_gpu_is_the_checkpoints_own_half_precision(folder, own, expected):
    edit_json(folder / "config.json", dtype=own)
    spec = dataclasses.replace(at(folder), gpu_dtype="auto")
    assert load.resolve_dtype(spec, "cuda", "auto") == expected
    assert load.resolve_dtype(spec, "cpu", "auto") == "float32"
    assert load.resolve_dtype(spec, "cuda", "float32") == "float32"


# tiny


def test_tiny_loads():
    loaded = load_model(TINY, device="cpu")
    assert (loaded.name, loaded.source, loaded.weights) == ("tiny", "random:tiny", "random")
    assert (loaded.dtype, loaded.device) == ("float32", "cpu")
    assert loaded.revision.startswith("weights-sha256:")
    assert loaded.revision == load_model(TINY, device="cpu").revision
    assert not loaded.model.training
    assert loaded.model.config._attn_implementation == "sdpa"
    assert loaded.tokenizer.decode(loaded.tokenizer("hi")["input_ids"]) == "hi"


def test_dtype_comes_from_the_spec_unless_named():
    half = load_model(dataclasses.replace(TINY, cpu_dtype="bfloat16"), device="cpu")
    assert half.dtype == "bfloat16"
    assert half.model.dtype == torch.bfloat16
    assert half.model.model.rotary_emb.inv_freq.dtype == torch.float32
    assert half.revision == load_model(TINY, device="cpu", dtype="float16").revision
    assert load_model(TINY, device="cpu", dtype="float16").model.dtype == torch.float16
    spec = ModelSpec("a", "tiny", gpu_dtype="bfloat16", cpu_dtype="float32")
    assert load.resolve_dtype(spec, "cuda:1", "auto") == "bfloat16"
    assert load.resolve_dtype(spec, "cuda:1", "float32") == "float32"


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [load.resolve_device(name) for name in ("auto", "cpu", "cuda:1")] == ["cuda", "cpu", "cuda:1"]
    with pytest.raises(UserError, match="'cuda:2' and torch sees 2 CUDA devices"):
        load.resolve_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert load.resolve_device("auto") == "cpu"
    assert "torch sees 0 CUDA devices; choose device=auto" in refused(TINY, device="cuda")
    assert "device is 'gpu'; choose auto, cpu, cuda or cuda:N" in refused(TINY, device="gpu")


def test_options_that_would_have_no_effect_are_refused(folder):
    assert "dtype is 'int8'; choose float32" in refused(TINY, device="cpu", dtype="int8")
    assert "dtype is 'half'" in refused(dataclasses.replace(TINY, cpu_dtype="half"), device="cpu")
    spread = dataclasses.replace(TINY, device_map="auto")
    assert "leave it unset" in refused(spread, device="cpu")
    assert "leave it unset" in refused(dataclasses.replace(spread, path=str(folder)), device="cpu")


# Local folders


@pytest.mark.parametrize(("spec", "name"), [(TINY, "checkpoint"), (HUB, "there")], ids=["ours", "the user's"])
def test_a_local_folder_overrides_the_source(folder, spec, name):
    """A name of ours does not stand for what lies in a folder; a name that the user gave does."""
    loaded = load_model(dataclasses.replace(spec, path=str(folder)), device="cpu")
    assert (loaded.source, loaded.weights, loaded.name) == (str(folder), "pretrained", name)
    assert loaded.model.config._attn_implementation == "sdpa"
    assert not loaded.model.training
    ids = torch.tensor([loaded.tokenizer("def f(x):")["input_ids"]])
    with torch.inference_mode():
        assert torch.equal(loaded.model(ids).logits, tiny_model()(ids).logits)


def test_the_revision_of_a_folder_follows_its_files(folder):
    spec = at(folder)
    first = load_model(spec, device="cpu").revision
    assert first.startswith("files-sha256:")
    assert load_model(spec, device="cpu").revision == first
    edit_json(folder / "config.json", rope_theta=5000.0)
    assert load_model(spec, device="cpu").revision != first


def test_folders_that_cannot_be_loaded(folder, tmp_path):
    def message(path: Path) -> str:
        return refused(at(path), device="cpu")

    assert f"model.path={tmp_path}/none does not exist" in message(tmp_path / "none")
    assert "has no config.json; name a folder in Hugging Face format" in message(tmp_path)
    (tmp_path / "some.gguf").touch()
    assert "has no config.json; name its file some.gguf" in message(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert "has a config.json and no weights" in message(tmp_path)
    (folder / "tokenizer.json").unlink()
    assert "put tokenizer.json beside the weights" in message(folder)
    edit_json(folder / "tokenizer_config.json", tokenizer_class="LlamaTokenizer")
    assert "it has no vocabulary" in message(folder)


@pytest.mark.parametrize("damage", ["gone", "cut", "another shape", "tensor missing"])
def test_damaged_weights_are_refused(folder, damage):
    weights = folder / "model.safetensors"
    if damage == "gone":
        weights.unlink()
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:5000])
    elif damage == "another shape":
        edit_json(folder / "config.json", vocab_size=300)
    else:
        tensors = load_file(weights)
        del tensors["model.layers.1.mlp.up_proj.weight"]
        save_file(tensors, weights, metadata={"format": "pt"})
    message = refused(at(folder), device="cpu")
    assert ("has a config.json and no weights" if damage == "gone" else "could not be loaded") in message
    assert "fetch the model again" in message
    assert ("1 missing tensors, such as model.layers.1.mlp.up_proj.weight" in message) == (damage == "tensor missing")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, "'gpt2' is not supported"),
        (
            {"model_type": "never-heard-of"},
            "choose a model in Hugging Face format of one of the families llama, mistral, qwen2",
        ),
        ({"model_type": "mistral", "sliding_window": 32}, "sliding-window"),
    ],
)
def test_unsupported_families_are_refused_before_the_weights_are_read(folder, monkeypatch, changes, expected):
    monkeypatch.setattr(load, "_load_weights", lambda *_, **__: pytest.fail("the weights were read"))
    edit_json(folder / "config.json", **changes)
    assert expected in refused(at(folder), device="cpu")


def test_a_torn_config_is_refused(folder):
    (folder / "config.json").write_text('{"model_type": "lla')
    assert "could not be read" in refused(at(folder), device="cpu")


def test_a_model_beyond_the_gpu(folder, monkeypatch):
    def from_pretrained(*_, **__):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(load.AutoModelForCausalLM, "from_pretrained", from_pretrained)
    assert "does not fit on the GPU" in refused(at(folder), device="cpu")
    spilled = SimpleNamespace(hf_device_map={"model": 0, "lm_head": "cpu"})
    monkeypatch.setattr(
        load.AutoModelForCausalLM, "from_pretrained", lambda *_, **__: (spilled, {"missing_keys": set()})
    )
    assert "timing a model that runs from CPU memory" in refused(at(folder), device="cpu")


# generation_config and end tokens


def with_generation(**fields) -> SimpleNamespace:
    return SimpleNamespace(generation_config=SimpleNamespace(**fields))


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9}, ["do_sample=True", "temperature=0.6", "top_p=0.9"]),
        ({"repetition_penalty": 1.1}, ["repetition_penalty=1.1"]),
        ({"temperature": 0.7}, ["temperature=0.7"]),
        ({"no_repeat_ngram_size": 3}, ["no_repeat_ngram_size=3"]),
        ({"min_length": 1, "min_new_tokens": 5}, ["min_length=1", "min_new_tokens=5"]),
        ({"bad_words_ids": [[5]], "forced_eos_token_id": 2}, ["bad_words_ids=[[5]]", "forced_eos_token_id=2"]),
        ({"suppress_tokens": list(range(90))}, ["suppress_tokens=[0, 1, 2, 3, 4, 5, ...]"]),
    ],
)
def test_notice_names_what_is_ignored(fields, shown):
    notice = generation_notice(with_generation(**fields))
    assert all(part in notice for part in shown)
    assert notice.endswith("ignored in every arm")


def test_no_notice_when_greedy_stays_greedy():
    neutral = {"do_sample": False, "temperature": 1.0, "top_p": 0.9, "top_k": 50, "repetition_penalty": 1.0}
    assert generation_notice(with_generation(**neutral, min_length=0, suppress_tokens=[], num_beams=1)) is None
    assert generation_notice(SimpleNamespace(generation_config=None)) is None
    assert generation_notice(tiny_model()) is None


@pytest.mark.parametrize(
    ("declared", "own", "rule", "expected"),
    [
        (2, 7, "generation_config", {2}),
        ([2, 3], 7, "generation_config", {2, 3}),
        (0, 7, "generation_config", {0}),
        (None, 7, "generation_config", {7}),
        ([], 7, "generation_config", {7}),
        (None, None, "generation_config", set()),
        ([2, 3], 7, "tokenizer", {7}),
        (2, None, "tokenizer", set()),
    ],
)
def test_stop_ids(declared, own, rule, expected):
    tokenizer = SimpleNamespace(eos_token_id=own)
    assert stop_ids(with_generation(eos_token_id=declared), tokenizer, rule) == frozenset(expected)


def test_stop_ids_of_tiny_and_of_an_unknown_rule():
    loaded = load_model(TINY, device="cpu")
    assert stop_ids(loaded.model, loaded.tokenizer, "generation_config") == {257}
    with pytest.raises(UserError, match="stop_rule is 'eos'; choose generation_config or tokenizer"):
        stop_ids(loaded.model, loaded.tokenizer, "eos")


@pytest.mark.real_model
def test_the_embedded_model_loads():
    if not is_complete(cache_root() / FOLDER):
        pytest.skip("the embedded model is not in the cache; run `python -m benchmarks.models.embedded`")
    loaded = load_model(ModelSpec("smollm2", "embedded"), device="cpu")
    assert (loaded.source, loaded.weights, loaded.dtype) == ("embedded", "pretrained", "float32")
    assert loaded.revision.startswith("gguf-sha256:b179c952")
    assert stop_ids(loaded.model, loaded.tokenizer, "generation_config") == {2}
    assert generation_notice(loaded.model) is None
