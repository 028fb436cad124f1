"""What the model hub and its local cache know of a checkpoint: asked once, shortly, before anything is loaded.

It does not load or download: transformers does, once the commit is known to exist.
"""

import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from huggingface_hub import get_hf_file_metadata, hf_hub_url, is_offline_mode, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, RepositoryNotFoundError

from benchmarks.errors import UserError, first_line

TIMEOUT_S = 3.0  # per network operation
DEADLINE_S = 6.0  # for the whole probe: name resolution and dropped packets ignore the timeout above
LOCAL_COPY = "pass model.path=FOLDER with a local copy"


def cached_commit(hub_id: str) -> str | None:
    """The commit whose whole copy (config, weights, tokenizer) lies in the hub's own cache; no network is asked."""
    config = try_to_load_from_cache(hub_id, "config.json")
    if not isinstance(config, str):
        return None
    folder = Path(config).parent  # .../snapshots/<commit>
    has_tokenizer = any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json"))
    has_weights = any(_weights_whole(folder, stem) for stem in ("model.safetensors", "pytorch_model.bin"))
    return folder.name if has_tokenizer and has_weights else None


def _weights_whole(folder: Path, stem: str) -> bool:
    index = folder / f"{stem}.index.json"
    if not index.is_file():
        return (folder / stem).is_file()
    shards = set(re.findall(r'"([^"/]+\.(?:safetensors|bin))"', index.read_text()))
    return bool(shards) and all((folder / shard).is_file() for shard in shards)


def probe(hub_id: str) -> str:
    """The commit, from one short request: transformers' own retries take minutes to admit that there is no hub."""
    absent = "is not in the local hub cache and"
    if is_offline_mode():
        raise UserError(f"{hub_id} {absent} offline mode is on; {LOCAL_COPY}, or unset HF_HUB_OFFLINE")
    url = hf_hub_url(hub_id, "config.json")
    try:
        return _within(DEADLINE_S, lambda: get_hf_file_metadata(url, timeout=TIMEOUT_S)).commit_hash
    except GatedRepoError as error:  # a RepositoryNotFoundError too, so it comes first
        cause, why, way = error, "is gated", "accept its licence on its hub page and run `hf auth login`"
    except RepositoryNotFoundError as error:
        cause, why, way = error, "is not on the hub, or is private", "check model.hub_id, or run `hf auth login`"
    except EntryNotFoundError as error:
        cause, why, way = error, "has no config.json on the hub", "choose a repository in Hugging Face format"
    except Exception as error:  # the HTTP library under huggingface_hub, and so its base class, differs by version
        cause, why = error, f"{absent} the hub cannot be reached ({first_line(error)})"
        way = "check the network (and `hf auth login` for gated models)"
        if (status := getattr(getattr(error, "response", None), "status_code", None)) in (401, 403):
            why, way = f"is refused by the hub (HTTP {status})", "run `hf auth login` with an account that may read it"
    raise UserError(f"{hub_id} {why}; {LOCAL_COPY}, or {way}") from cause


def _within(deadline_s: float, call: Callable[[], Any]) -> Any:
    future: Future = Future()

    def attempt() -> None:
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)

    # A bare daemon thread: an executor would wait at exit for the call that never returns.
    threading.Thread(target=attempt, daemon=True).start()
    try:
        return future.result(deadline_s)
    except TimeoutError as error:
        raise TimeoutError(str(error) or f"no answer within {deadline_s:.0f} s") from error
