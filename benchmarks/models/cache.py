"""Folders kept in the user's cache: each appears whole or not at all, and is known by the files that it lists.

It does not know what is kept.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.errors import UserError

MANIFEST = "manifest.json"  # written last: file name -> bytes, and where the files came from
MODEL_FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
STALE_S = 24 * 3600  # a work folder this old belongs to a process that was killed


def cache_root() -> Path:
    """goose.engine.user_cache's, whose package imports torch: a cache hit must not pay for that."""
    return Path(os.environ.get("GOOSE_CACHE") or Path.home() / ".cache" / "goose-bench").expanduser()


def is_complete(folder: Path) -> bool:
    """Every file the manifest lists is there with its size, so a damaged copy is made again and not half-loaded."""
    try:
        sizes = json.loads((folder / MANIFEST).read_text())["files_bytes"]
        return set(MODEL_FILES) <= set(sizes) and all((folder / name).stat().st_size == n for name, n in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def keep(target: Path, build: Callable[[Path], Path], origin: dict) -> None:
    """Puts the folder that build(work folder) returns at `target`, with a manifest. Raises OSError of the disk."""
    root = target.parent
    root.mkdir(parents=True, exist_ok=True)
    _remove_stale(root)
    # In the cache root and not in /tmp: the last move must be a rename inside one file system.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root, ignore_cleanup_errors=True) as work:
        built = build(Path(work))
        # safetensors writes for the owner alone; a cache folder may be shared.
        shutil.copymode(built / "config.json", built / "model.safetensors")
        sizes = {file.name: file.stat().st_size for file in sorted(built.iterdir())}
        (built / MANIFEST).write_text(json.dumps({**origin, "files_bytes": sizes}, indent=1) + "\n")
        _publish(built, target, Path(work) / "replaced")


def refuse_without_room(root: Path, n_bytes: int, what: str, way: str) -> None:
    """UserError when the disk of `root` has less than n_bytes free. Raises OSError where it cannot be asked."""
    root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(root).free
    if free < n_bytes:
        raise UserError(
            f"{what} needs {n_bytes / 1e9:.1f} GB under {root} and {free / 1e9:.1f} GB is free; "
            f"set GOOSE_CACHE to a folder on another disk, {way}"
        )


def _remove_stale(root: Path) -> None:
    for left in root.glob(".fetch-*"):
        try:
            stale = time.time() - left.stat().st_mtime > STALE_S
        except OSError:  # its owner has just finished
            continue
        if stale:
            shutil.rmtree(left, ignore_errors=True)


def _publish(built: Path, target: Path, aside: Path) -> None:
    """Renames the finished folder into place. Of two fetches at once, the later one drops its own copy."""
    if target.exists() and not is_complete(target):
        target.rename(aside)
    try:
        built.rename(target)
    except OSError:
        if not is_complete(target):
            raise
