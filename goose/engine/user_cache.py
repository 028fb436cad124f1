"""The user's cache folder: what is measured or asked of a model once, and kept. Knows no formats."""

import os
from contextlib import suppress
from pathlib import Path


def cache_root() -> Path:
    """$GOOSE_CACHE, or ~/.cache/goose-bench."""
    return Path(os.environ.get("GOOSE_CACHE") or Path.home() / ".cache" / "goose-bench").expanduser()


def keep(file: Path, data: bytes) -> str | None:
    """Writes the file whole or not at all; what kept it from being written, None when nothing did."""
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")  # two processes may write the same file
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        os.replace(temporary, file)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        return error.strerror or str(error)
    return None
