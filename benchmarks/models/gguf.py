"""A GGUF file as a model: its header read, its weights dequantised once through transformers and kept as safetensors.

Truncated, split or foreign files are refused from the header alone, before any weight is read. It does not know how a
model is run. Imports nothing heavy by itself: a cache hit must not pay for torch.
"""

import copy
import hashlib
import importlib.util
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from benchmarks.errors import UserError, first_line
from benchmarks.models.cache import cache_root, is_complete, keep, refuse_without_room

MAGIC = b"GGUF"
KEPT = "gguf"  # under the cache root: a folder a file, by its sha256
NEED = "gguf and accelerate (`pip install 'goose-bench[bench]'`)"
_ELEMENT_BYTES = 4  # kept in single precision
_SMALL_BYTES = 50_000_000  # tokenizer and configs

# Kinds of a metadata value, by their number in the file.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9


@dataclass(frozen=True)
class Header:
    """What is said of a GGUF file before any weight is read."""

    values: dict[str, Any]  # metadata; of a list, its length
    n_elements: int  # of all tensors
    n_bytes: int  # that the file must have

    @property
    def family(self) -> str:
        return str(self.values.get("general.architecture"))


@dataclass(frozen=True)
class GgufModel:
    """Where transformers finds the model of a GGUF file."""

    folder: Path
    file: str | None  # the GGUF's name in `folder`; None: dequantised, in Hugging Face format
    sha256: str


def read_header(path: Path) -> Header:
    """The header of a GGUF file (version 2 or 3). Raises UserError for another file, and for one that is cut short."""
    try:
        with path.open("rb") as file:
            if file.read(4) != MAGIC:
                raise UserError(
                    f"model.path={path} is a file and no GGUF; name a folder in Hugging Face format, or a .gguf file"
                )
            header = _header(file)
    except OSError as error:
        raise UserError(f"model.path={path} could not be read ({error.strerror or error})") from error
    except (struct.error, KeyError, ValueError, OverflowError, MemoryError) as error:
        raise UserError(f"{path} is cut short or damaged ({first_line(error)}); fetch the file again") from error
    if (size := path.stat().st_size) < header.n_bytes:
        raise UserError(f"{path} is cut short: {size} bytes, and its header names {header.n_bytes}; fetch it again")
    return header


def _header(file: BinaryIO) -> Header:
    import gguf

    (version,) = _numbers(file, "I")
    if version not in (2, 3):
        raise ValueError(f"its version is {version}, not 2 or 3")
    n_tensors, n_values = _numbers(file, "QQ")
    values = {}
    for _ in range(n_values):
        key = _text(file)
        values[key] = _value(file, *_numbers(file, "I"))
    n_elements = end = 0
    for _ in range(n_tensors):
        _text(file)
        (n_dims,) = _numbers(file, "I")
        count = 1
        for size in _numbers(file, "Q" * n_dims):
            count *= size
        kind, offset = _numbers(file, "IQ")
        block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
        n_elements += count
        end = max(end, offset + count // block * block_bytes)
    alignment = values.get("general.alignment", 32)
    start = -(-file.tell() // alignment) * alignment
    return Header(values, n_elements, start + end)


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _TEXT:
        return _text(file)
    if kind != _LIST:
        return _numbers(file, _NUMBERS[kind])[0]
    inner, count = _numbers(file, "IQ")
    if inner in _NUMBERS:
        file.seek(count * struct.calcsize("<" + _NUMBERS[inner]), 1)
    else:
        for _ in range(count):
            _value(file, inner)
    return count


def _text(file: BinaryIO) -> str:
    (n_bytes,) = _numbers(file, "Q")
    data = file.read(n_bytes)
    if len(data) < n_bytes:
        raise ValueError("it ends within its header")
    return data.decode("utf-8", "replace")


def _numbers(file: BinaryIO, form: str) -> tuple:
    size = struct.calcsize("<" + form)
    data = file.read(size)
    if len(data) < size:
        raise ValueError("it ends within its header")
    return struct.unpack("<" + form, data)


def prepared(path: Path, cache: bool = True) -> GgufModel:
    """The model of a GGUF file, dequantised and kept when it is met for the first time.

    cache False, or a cache folder that takes no file: transformers reads the GGUF itself, on every load. Raises
    UserError for a file that cannot be loaded, and when there is no room to keep what it holds.
    """
    _check_tools(path)
    header = read_header(path)
    _refuse_unusable(path, header)
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    unkept = GgufModel(path.resolve().parent, path.resolve().name, sha256)
    if not cache:
        _say(f"reading {path.name} without keeping it (cache=false); this is done on every load")
        return unkept
    target = cache_root() / KEPT / sha256[:32]
    if is_complete(target):
        return GgufModel(target, None, sha256)
    n_bytes = header.n_elements * _ELEMENT_BYTES + _SMALL_BYTES
    try:
        refuse_without_room(target.parent, n_bytes, path.name, "or pass cache=false to keep nothing")
        _say(f"dequantising {path.name} once, {n_bytes / 1e9:.1f} GB under {target.parent}: a minute or two")
        keep(target, lambda work: _converted(path, work / "model"), {"gguf": path.name, "gguf_sha256": sha256})
    except OSError as error:
        _say(f"{path.name} was not kept: {target.parent} takes no files ({error.strerror or first_line(error)})")
        return unkept
    return GgufModel(target, None, sha256)


def _check_tools(path: Path) -> None:
    if missing := [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]:
        raise UserError(f"{path}: {' and '.join(missing)} is not installed; GGUF files need {NEED}")


def _refuse_unusable(path: Path, header: Header) -> None:
    if header.values.get("split.count", 0) > 1:
        raise UserError(f"{path} is one part of several; join them with `llama-gguf-split --merge` and name the whole")
    if not header.values.get("tokenizer.ggml.tokens"):
        raise UserError(f"{path} holds no tokenizer; name a GGUF that does, or a folder in Hugging Face format")
    if not header.n_elements:
        raise UserError(f"{path} holds no weights (a vocabulary alone); name the model's own file")
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    from goose.engine.families import FAMILIES

    # transformers' own list says what it converts; the engine's own rule about the config is asked before the weights.
    if header.family not in FAMILIES and header.family not in GGUF_SUPPORTED_ARCHITECTURES:
        raise UserError(
            f"{path}: GGUF files of the family {header.family!r} are not supported (supported: {', '.join(FAMILIES)})"
        )


def _converted(path: Path, out: Path) -> Path:
    try:
        convert(path, out)
    except OSError:
        raise  # the disk's
    except (ValueError, KeyError, RuntimeError, NotImplementedError, ImportError) as error:
        raise UserError(f"{path} could not be dequantised ({first_line(error)}); try another quantisation") from error
    return out


def convert(gguf: Path, out: Path) -> None:
    """Dequantises through transformers and saves plain single precision, without a second copy of the weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from goose.engine.families import unsupported_reason

    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if reason := unsupported_reason(config):
        raise UserError(f"{gguf}: {reason}")
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    options = {"config": config, "dtype": torch.float32, **reading(gguf.name)}  # a header takes seconds to read
    loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, **options)
    # transformers will not save a model that it loaded from GGUF, so the weights move into a plain one.
    config = copy.deepcopy(loaded.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):
        plain = type(loaded)(config)
    plain.load_state_dict(loaded.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = copy.deepcopy(loaded.generation_config)
    plain.save_pretrained(out, max_shard_size="1TB")  # one file
    tokenizer.save_pretrained(out)


def reading(file: str) -> dict[str, Any]:
    """Keywords for from_pretrained that read a GGUF's weights unpacked, whatever kernels are installed."""
    try:
        from transformers.utils.quantization_config import GgufConfig
    except ImportError:  # a transformers that always unpacks
        return {"gguf_file": file}
    return {"gguf_file": file, "quantization_config": GgufConfig(dequantize=True)}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
