"""Turns a model config into a loaded model: finds the files, refuses early what cannot work, loads.

It does not know how a model is decoded; which families can be verified exactly is the
engine's knowledge (`goose.engine.families.unsupported_reason`)."""

import hashlib
import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from benchmarks.errors import UserError, first_line
from benchmarks.models.embedded import GGUF_SHA256, ensure_embedded
from benchmarks.models.gguf import prepared, reading
from benchmarks.models.hub import LOCAL_COPY, cached_commit, probe
from benchmarks.models.shapes import random_model
from benchmarks.models.spec import AUTO, DTYPES, ModelSpec
from benchmarks.models.tiny import tiny_model, tiny_tokenizer
from goose.engine.families import FAMILIES, unsupported_reason
from goose.engine.identity import shape_digest, weights_digest


@dataclass(frozen=True)
class LoadedModel:
    """A model and where it came from. Everything but the first two fields is text, ready for a record.

    tokenizer None with random weights at a shape
    name      the config's own, or what was loaded in its place (ModelSpec.shown_name)
    source    hub id, folder, GGUF file, "embedded" or "random:<name>"
    revision  "hub:<commit>" when known; "gguf-sha256:<hash>" of a GGUF file; else "files-sha256:<hash>" over
              config.json and the weight files' names and sizes (never their content), or "weights-sha256:<hash>" of
              tiny's; "shape-sha256:<hash>" of random weights at a shape
    weights   "pretrained" | "random"
    weights_digest, shape_digest   what the model is, whatever it is called (goose/engine/identity.py)
    """

    model: Any
    tokenizer: Any
    name: str
    source: str
    revision: str
    weights: str
    dtype: str
    device: str
    weights_digest: str
    shape_digest: str

    def identity(self) -> dict[str, str]:
        """All of the text, as a record's header holds it."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("model", "tokenizer")}


def spec_of(config: dict[str, Any]) -> ModelSpec:
    """The spec in the settings of a model, as its file or the record of a run holds them."""
    try:
        return ModelSpec(**{key: value for key, value in config.items() if key != "chat_frame"})  # prompts.py reads it
    except TypeError as error:
        raise UserError(f"model: {str(error).replace('ModelSpec.__init__() ', '')}") from error


@dataclass(frozen=True)
class _Location:
    where: str  # a hub id or a folder
    source: str
    local_only: bool
    commit: str | None = None  # of a hub id
    gguf: str | None = None  # a GGUF file in the folder, to be read as it is
    gguf_sha256: str | None = None  # of the file that the weights come from


def load_model(spec: ModelSpec, *, device: str = "auto", dtype: str = "auto", cache: bool = True) -> LoadedModel:
    """device: auto | cpu | cuda | cuda:N. dtype: auto (the spec's, by device) | float32 | float16 | bfloat16.

    cache: whether a GGUF file's dequantised weights are kept. Raises UserError for whatever cannot be loaded.
    """
    device = resolve_device(device)
    chosen = _named_dtype(spec, device, dtype)
    if spec.weights == "random":
        return _load_random(spec, device, _settled(chosen, None))
    is_tiny = spec.source == "tiny" and not spec.path
    if spec.device_map and (is_tiny or device == "cpu"):
        raise UserError(
            f"model.device_map spreads a checkpoint over GPUs, not {spec.shown_name} on {device}; leave it unset"
        )
    if is_tiny:
        return _load_tiny(spec, device, _settled(chosen, None))
    location = _locate(spec, cache)
    pin = _pin(location)
    config = _checked_config(location, pin)
    dtype = _settled(chosen, config)
    tokenizer = _load_tokenizer(location, pin)
    # On CPU no map: transformers would want accelerate for it, and the weights are in the right place anyway.
    device_map = spec.device_map or (None if device == "cpu" else device)
    if location.gguf:
        pin |= reading(location.gguf)
    model = _load_weights(location, config=config, dtype=DTYPES[dtype], device_map=device_map, **pin)
    return _loaded(spec, model, tokenizer, location.source, _revision(location), "pretrained", dtype, device)


def _loaded(spec: ModelSpec, model: Any, tokenizer: Any, *facts: str) -> LoadedModel:
    return LoadedModel(model, tokenizer, spec.shown_name, *facts, weights_digest(model), shape_digest(model.config))


def _load_random(spec: ModelSpec, device: str, dtype: str) -> LoadedModel:
    if spec.shape is None:
        raise UserError(
            f"model {spec.shown_name} has no shape in its file, so weights=random has nothing to fill; add one"
        )
    for key in ("path", "device_map"):
        if getattr(spec, key):
            raise UserError(f"model.{key} places a checkpoint, and weights=random has none; leave one of them unset")
    model = random_model(spec.shape, device, DTYPES[dtype])
    digest = hashlib.sha256(json.dumps(spec.shape, sort_keys=True).encode()).hexdigest()
    source, revision = f"random:{spec.shown_name}", f"shape-sha256:{digest}"
    return _loaded(spec, model, None, source, revision, "random", dtype, device)


def load_tokenizer(spec: ModelSpec, cache: bool = True) -> Any:
    """The model's tokenizer alone, to read a record's ids."""
    if spec.source == "tiny" and not spec.path:
        return tiny_tokenizer()
    location = _locate(spec, cache)
    return _load_tokenizer(location, _pin(location))


def _load_tiny(spec: ModelSpec, device: str, dtype: str) -> LoadedModel:
    model, digest = tiny_model(), hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):  # the seed does not name them: torch's generator may change
        digest.update(name.encode() + tensor.numpy().tobytes())
    for parameter in model.parameters():  # model.to(dtype) would round the rotary frequencies too
        parameter.data = parameter.data.to(DTYPES[dtype])
    revision = f"weights-sha256:{digest.hexdigest()}"
    return _loaded(spec, model.to(device), tiny_tokenizer(), "random:tiny", revision, "random", dtype, device)


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
    """The dtype that load_model takes; asks for the checkpoint's config alone, and only where that decides."""
    chosen = _named_dtype(spec, device, dtype)
    is_gguf = spec.path and Path(spec.path).expanduser().is_file()
    if chosen != AUTO or is_gguf or spec.weights == "random" or (spec.source == "tiny" and not spec.path):
        return _settled(chosen, None)
    location = _locate(spec, cache=True)
    return _settled(chosen, _checked_config(location, _pin(location)))


def _named_dtype(spec: ModelSpec, device: str, dtype: str) -> str:
    chosen = dtype if dtype != "auto" else spec.cpu_dtype if device == "cpu" else spec.gpu_dtype
    if chosen not in (*DTYPES, AUTO):
        raise UserError(f"dtype is {chosen!r}; choose {', '.join(DTYPES)} (or dtype=auto for the model's own)")
    return chosen


def _settled(chosen: str, config: Any) -> str:
    """AUTO as the checkpoint's own half precision, bfloat16 for one that has none."""
    if chosen != AUTO:
        return chosen
    own = str(getattr(config, "dtype", None)).removeprefix("torch.")
    return own if own in ("float16", "bfloat16") else "bfloat16"


def _locate(spec: ModelSpec, cache: bool = True) -> _Location:
    if spec.path:
        return _locate_path(spec.path, cache)
    if spec.source == "embedded":
        return _Location(str(ensure_embedded()), "embedded", local_only=True, gguf_sha256=GGUF_SHA256)
    cached = cached_commit(spec.hub_id)
    return _Location(spec.hub_id, spec.hub_id, local_only=bool(cached), commit=cached or probe(spec.hub_id))


def _locate_path(named: str, cache: bool) -> _Location:
    path = Path(named).expanduser()
    if path.is_file():
        model = prepared(path, cache)
        return _Location(str(model.folder), str(path), local_only=True, gguf=model.file, gguf_sha256=model.sha256)
    if not path.is_dir():
        raise UserError(f"model.path={named} does not exist; name a folder in Hugging Face format, or a .gguf file")
    if not (path / "config.json").is_file():
        ggufs = sorted(file.name for file in path.glob("*.gguf"))
        hint = f"name its file {ggufs[0]}" if ggufs else "name a folder in Hugging Face format"
        raise UserError(f"model.path={named} has no config.json; {hint}")
    if not any([*path.glob("*.safetensors"), *path.glob("*.bin")]):
        raise UserError(
            f"model.path={named} has a config.json and no weights (*.safetensors or *.bin); fetch the model again"
        )
    return _Location(str(path), str(path), local_only=True)


def _pin(location: _Location) -> dict[str, Any]:
    """One commit for config, tokenizer and weights; local folders have none and ignore it."""
    pin = {"revision": location.commit or "main", "local_files_only": location.local_only, "trust_remote_code": False}
    return pin | ({"gguf_file": location.gguf} if location.gguf else {})


def _checked_config(location: _Location, pin: dict[str, Any]) -> Any:
    try:
        config = AutoConfig.from_pretrained(location.where, **pin)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"the config of {location.source} could not be read ({first_line(error)}); "
            f"choose a model in Hugging Face format of one of the families {', '.join(FAMILIES)}"
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
    if location.gguf and hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # unpacked: nothing of it is quantised any more
    places = {str(place) for place in getattr(model, "hf_device_map", {}).values()}
    if places & {"cpu", "disk"}:
        raise UserError(
            f"{location.source} does not fit on the GPUs, and timing a model that runs from CPU memory would mislead; "
            "choose a smaller model or more GPUs"
        )
    return model.eval()


def _revision(location: _Location) -> str:
    if location.commit:
        return f"hub:{location.commit}"
    if location.gguf_sha256:
        return f"gguf-sha256:{location.gguf_sha256}"
    folder = Path(location.where)
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for file in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
    return f"files-sha256:{digest.hexdigest()}"
