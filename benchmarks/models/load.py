"""Turns a model config into a loaded model: finds the files, refuses early what cannot work, loads.

It sets no generation parameter and does not know how a model is decoded; which families can be verified exactly is the
engine's knowledge (`goose.engine.families.unsupported_reason`)."""

import hashlib
import json
import re
import reprlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from benchmarks.errors import UserError, first_line
from benchmarks.models.embedded import GGUF_SHA256, ensure_embedded, tiny_model, tiny_tokenizer
from benchmarks.models.hub import LOCAL_COPY, cached_commit, probe
from benchmarks.models.shapes import random_model
from goose.engine.families import FAMILIES, unsupported_reason

CONF = Path(__file__).resolve().parents[2] / "conf" / "model"
SOURCES = ("hub", "embedded", "tiny")
WEIGHTS = ("pretrained", "random")
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class ModelSpec:
    """One file of conf/model. `path` (a local folder) overrides `source`; `device_map` spreads a model over GPUs.

    weights: "pretrained" takes the model's own; "random" makes them up at its `shape` (shapes.py), which
    needs no files: for timing alone, since what such a model writes means nothing.
    """

    name: str
    source: str
    hub_id: str | None = None
    path: str | None = None
    gpu_dtype: str = "float16"
    cpu_dtype: str = "float32"
    device_map: str | None = None
    shape: dict[str, Any] | None = field(default=None, hash=False)
    weights: str = "pretrained"

    def __post_init__(self) -> None:
        if self.weights not in WEIGHTS:
            raise UserError(f"model.weights is {self.weights!r}; choose one of {', '.join(WEIGHTS)}")
        if self.source not in SOURCES:
            raise UserError(f"model.source is {self.source!r}; choose one of {', '.join(SOURCES)}")
        if self.source == "hub" and not (self.hub_id or self.path):
            raise UserError(f"model {self.name!r} names no weights; set model.hub_id=OWNER/NAME or model.path=FOLDER")


@dataclass(frozen=True)
class LoadedModel:
    """A model and where it came from. Everything but the first two fields is text, ready for a record.

    tokenizer None with random weights at a shape
    source    hub id, folder, "embedded" or "random:<name>"
    revision  "hub:<commit>" when known; "gguf-sha256:<hash>" of the embedded model's origin; else
              "files-sha256:<hash>" over config.json and the weight files' names and sizes (never their content), or
              "weights-sha256:<hash>" of tiny's; "shape-sha256:<hash>" of random weights at a shape
    weights   "pretrained" | "random"
    """

    model: Any
    tokenizer: Any
    name: str
    source: str
    revision: str
    weights: str
    dtype: str
    device: str


def spec_of(config: dict[str, Any]) -> ModelSpec:
    """The spec in the settings of a model, as its file or the record of a run holds them."""
    try:
        return ModelSpec(**{key: value for key, value in config.items() if key != "chat_frame"})  # prompts.py reads it
    except TypeError as error:
        raise UserError(f"model: {str(error).replace('ModelSpec.__init__() ', '')}") from error


def spec_named(name: str, **changes: Any) -> ModelSpec:
    """The spec of conf/model/NAME.yaml with `changes` to its fields, for scripts that need no other setting."""
    return spec_of(_read_conf(name) | changes)


def _read_conf(name: str) -> dict[str, Any]:
    """conf/model/NAME.yaml over the files that its `defaults` name."""
    file = CONF / f"{name}.yaml"
    if not file.is_file():
        names = ", ".join(sorted(other.stem for other in CONF.glob("*.yaml")))
        raise UserError(f"there is no model {name!r}; conf/model has {names}")
    own = yaml.safe_load(file.read_text(encoding="utf-8"))
    below = [_read_conf(base) for base in own.pop("defaults", []) if base != "_self_"]
    return {key: value for one in [*below, own] for key, value in one.items()}


@dataclass(frozen=True)
class _Location:
    where: str  # a hub id or a folder
    source: str
    local_only: bool
    commit: str | None = None  # of a hub id


def load_model(spec: ModelSpec, *, device: str = "auto", dtype: str = "auto") -> LoadedModel:
    """device: auto | cpu | cuda | cuda:N. dtype: auto (the spec's, by device) | float32 | float16 | bfloat16."""
    device = resolve_device(device)
    dtype = resolve_dtype(spec, device, dtype)
    if spec.weights == "random":
        return _load_random(spec, device, dtype)
    is_tiny = spec.source == "tiny" and not spec.path
    if spec.device_map and (is_tiny or device == "cpu"):
        raise UserError(f"model.device_map spreads a checkpoint over GPUs, not {spec.name} on {device}; leave it unset")
    if is_tiny:
        return _load_tiny(spec, device, dtype)
    location = _locate(spec)
    pin = _pin(location)
    config = _checked_config(location, pin)
    tokenizer = _load_tokenizer(location, pin)
    # On CPU no map: transformers would want accelerate for it, and the weights are in the right place anyway.
    device_map = spec.device_map or (None if device == "cpu" else device)
    model = _load_weights(location, config=config, dtype=DTYPES[dtype], device_map=device_map, **pin)
    revision = f"hub:{location.commit}" if location.commit else _folder_revision(location)
    return LoadedModel(model, tokenizer, spec.name, location.source, revision, "pretrained", dtype, device)


def _load_random(spec: ModelSpec, device: str, dtype: str) -> LoadedModel:
    if spec.shape is None:
        raise UserError(f"model {spec.name} has no shape in its file, so weights=random has nothing to fill; add one")
    for key in ("path", "device_map"):
        if getattr(spec, key):
            raise UserError(f"model.{key} places a checkpoint, and weights=random has none; leave one of them unset")
    model = random_model(spec.shape, device, DTYPES[dtype])
    digest = hashlib.sha256(json.dumps(spec.shape, sort_keys=True).encode()).hexdigest()
    source, revision = f"random:{spec.name}", f"shape-sha256:{digest}"
    return LoadedModel(model, None, spec.name, source, revision, "random", dtype, device)


def load_tokenizer(spec: ModelSpec) -> Any:
    """The model's tokenizer alone, to read a record's ids."""
    if spec.source == "tiny" and not spec.path:
        return tiny_tokenizer()
    location = _locate(spec)
    return _load_tokenizer(location, _pin(location))


def _load_tiny(spec: ModelSpec, device: str, dtype: str) -> LoadedModel:
    model, digest = tiny_model(), hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):  # the seed does not name them: torch's generator may change
        digest.update(name.encode() + tensor.numpy().tobytes())
    for parameter in model.parameters():  # model.to(dtype) would round the rotary frequencies too
        parameter.data = parameter.data.to(DTYPES[dtype])
    revision = f"weights-sha256:{digest.hexdigest()}"
    return LoadedModel(model.to(device), tiny_tokenizer(), spec.name, "random:tiny", revision, "random", dtype, device)


def resolve_device(device: str) -> str:
    n_cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return "cuda" if n_cuda else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise UserError(f"device is {device!r}; choose auto, cpu, cuda or cuda:N")
    if device != "cpu" and int(device.partition(":")[2] or 0) >= n_cuda:
        raise UserError(f"device is {device!r} and torch sees {n_cuda} CUDA devices; choose device=auto or device=cpu")
    return device


def resolve_dtype(spec: ModelSpec, device: str, dtype: str) -> str:
    chosen = dtype if dtype != "auto" else spec.cpu_dtype if device == "cpu" else spec.gpu_dtype
    if chosen not in DTYPES:
        raise UserError(f"dtype is {chosen!r}; choose {', '.join(DTYPES)} (or dtype=auto for the model's own)")
    return chosen


def _locate(spec: ModelSpec) -> _Location:
    if spec.path:
        folder = Path(spec.path).expanduser()
        if not folder.is_dir():
            raise UserError(f"model.path={spec.path} is not a folder; name one that holds config.json and weights")
        if not (folder / "config.json").is_file():
            raise UserError(f"model.path={spec.path} has no config.json; name a folder in Hugging Face format")
        return _Location(str(folder), str(folder), local_only=True)
    if spec.source == "embedded":
        return _Location(str(ensure_embedded()), "embedded", local_only=True)
    cached = cached_commit(spec.hub_id)
    return _Location(spec.hub_id, spec.hub_id, local_only=bool(cached), commit=cached or probe(spec.hub_id))


def _pin(location: _Location) -> dict[str, Any]:
    """One commit for config, tokenizer and weights; local folders have none and ignore it."""
    return {"revision": location.commit or "main", "local_files_only": location.local_only, "trust_remote_code": False}


def _checked_config(location: _Location, pin: dict[str, Any]) -> Any:
    try:
        config = AutoConfig.from_pretrained(location.where, **pin)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"the config of {location.source} could not be read ({first_line(error)}); "
            f"choose a model in Hugging Face format of one of these families: {', '.join(FAMILIES)}"
        ) from error
    reason = unsupported_reason(config)
    if reason:
        raise UserError(f"{location.source}: {reason}")
    return config


def _load_tokenizer(location: _Location, pin: dict[str, Any]) -> Any:
    try:
        tokenizer = AutoTokenizer.from_pretrained(location.where, **pin)
        if not tokenizer("a", add_special_tokens=False)["input_ids"]:  # some classes start empty without their file
            raise ValueError("it has no vocabulary")
        return tokenizer
    except (OSError, ValueError, ImportError) as error:
        raise UserError(
            f"the tokenizer of {location.source} could not be loaded ({first_line(error)}); put tokenizer.json beside "
            "the weights, or run `pip install sentencepiece protobuf` when the model only ships tokenizer.model"
        ) from error


def _load_weights(location: _Location, **options: Any) -> Any:
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            location.where, attn_implementation="sdpa", output_loading_info=True, **options
        )
        if missing := report["missing_keys"]:  # transformers fills them with random numbers and only warns
            raise OSError(f"{len(missing)} missing tensors, such as {min(missing)}")
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"{location.source} does not fit on the GPU; choose a smaller model, or more GPUs and model.device_map=auto"
        ) from error
    except (OSError, ImportError, RuntimeError, SafetensorError) as error:
        raise UserError(
            f"the weights of {location.source} could not be loaded ({first_line(error)}); "
            f"fetch the model again, or {LOCAL_COPY} that is whole"
        ) from error
    places = {str(place) for place in getattr(model, "hf_device_map", {}).values()}
    if places & {"cpu", "disk"}:
        raise UserError(
            f"{location.source} does not fit on the GPUs, and timing a model that runs from CPU memory would mislead; "
            "choose a smaller model or more GPUs"
        )
    return model.eval()


def _folder_revision(location: _Location) -> str:
    if location.source == "embedded":
        return f"gguf-sha256:{GGUF_SHA256}"
    folder = Path(location.where)
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for file in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
    return f"files-sha256:{digest.hexdigest()}"


# Fields of generation_config. Unset or falsy always leaves greedy decoding alone; in the first group 1 does so too.
_ONE_IS_NEUTRAL = ("temperature", "num_beams", "repetition_penalty", "encoder_repetition_penalty", "guidance_scale")
_ZERO_IS_NEUTRAL = (
    "do_sample", "min_length", "min_new_tokens", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
    "bad_words_ids", "force_words_ids", "constraints", "sequence_bias", "suppress_tokens", "begin_suppress_tokens",
    "forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty", "diversity_penalty",
    "penalty_alpha", "dola_layers", "stop_strings", "remove_invalid_values", "watermarking_config", "token_healing",
)  # fmt: skip
_ONLY_WHEN_SAMPLING = ("top_p", "top_k", "min_p", "typical_p", "top_h", "epsilon_cutoff", "eta_cutoff")


def generation_notice(model: Any) -> str | None:
    """A sentence on what the checkpoint's generation_config would add to greedy decoding; None when it adds nothing."""
    config = getattr(model, "generation_config", None)
    fields = _ZERO_IS_NEUTRAL + _ONE_IS_NEUTRAL + (_ONLY_WHEN_SAMPLING if getattr(config, "do_sample", None) else ())
    found = []
    for name in fields:
        value = getattr(config, name, None)
        if value and not (value == 1 and name in _ONE_IS_NEUTRAL):
            found.append(f"{name}={reprlib.repr(value)}")
    return f"the model's generation_config sets {', '.join(found)}; ignored in every arm" if found else None


def stop_ids(model: Any, tokenizer: Any, rule: str) -> frozenset[int]:
    """The ids that end an output; an empty set when nothing declares one, and then only the length limit does.
    rule "generation_config": the checkpoint's eos_token_id (or several), else the tokenizer's; "tokenizer": only that.
    """
    if rule not in ("generation_config", "tokenizer"):
        raise UserError(f"stop_rule is {rule!r}; choose generation_config or tokenizer")
    ids = tokenizer.eos_token_id
    if rule == "generation_config":
        declared = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        ids = ids if declared in (None, []) else declared
    if ids is None:
        return frozenset()
    return frozenset(int(token) for token in (ids if isinstance(ids, (list, tuple)) else [ids]))
