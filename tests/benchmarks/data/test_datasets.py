"""The six sets: what their items say, from upstream's files and from the hub's columns, and from a folder of all."""

import hashlib
import json
import socket
from collections import Counter
from pathlib import Path

import pytest
import yaml

import paths
from benchmarks.data.items import MBPP_SPLITS, MT_BENCH_CATEGORIES, SPEC_BENCH_GROUPS, load_dataset
from benchmarks.errors import UserError
from paths import REPO
from tiny_sets import ROWS, SETS, mbpp, written

CONF = REPO / "conf" / "dataset"
SHARED = paths.SHARED / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data beside the checkout")


@pytest.fixture
def all_sets(tmp_path):
    for name in SETS:
        written(tmp_path, name)
    return tmp_path


# Upstream's own files


@needs_shared
@pytest.mark.parametrize("name", SETS)
def test_upstreams_files_have_the_protocols_items(name):
    file, n_items, first = SETS[name]
    loaded = load_dataset(name, data_dir=SHARED)
    assert (len(loaded.items), loaded.items[0].id) == (n_items, first)
    assert loaded.sha256 == hashlib.sha256((SHARED / file).read_bytes()).hexdigest()
    assert loaded.source == f"file {SHARED / file}"
    assert load_dataset(name, path=SHARED / file).items == loaded.items
    assert {len(item.turns) for item in loaded.items} == ({1, 2} if name == "spec_bench" else {1 + (name == "mtbench")})


@needs_shared
def test_upstreams_groups():
    mt, spec = (load_dataset(name, data_dir=SHARED) for name in ("mtbench", "spec_bench"))
    assert Counter(item.group for item in mt.items) == dict.fromkeys(MT_BENCH_CATEGORIES, 10)
    assert Counter(item.group for item in spec.items) == dict.fromkeys(SPEC_BENCH_GROUPS, 80)
    turns = {item.id: item.turns for item in spec.items}
    assert all(turns[item.id] == item.turns for item in mt.items)  # its first 80 are MT-Bench's
    assert [item.group for item in spec.items[:12]] == [*SPEC_BENCH_GROUPS, *SPEC_BENCH_GROUPS]
    assert {item.reference["category"] for item in spec.items[:48:6]} == set(MT_BENCH_CATEGORIES)


@needs_shared
def test_the_hubs_columns_of_mt_bench_give_the_same_items(tmp_path):
    raw = [json.loads(line) for line in (SHARED / SETS["mtbench"][0]).read_text().splitlines()]
    hub = [
        {
            "category": row["category"],
            "prompt": row["turns"],
            "prompt_id": int(hashlib.sha256("".join(row["turns"]).encode()).hexdigest(), 16) % 10**8,
            "reference": row.get("reference", []),
        }
        for row in raw
    ]
    assert hub[0]["prompt_id"] == 44067482  # as the hub has it for question 81
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in hub))
    assert load_dataset("mtbench", path=tmp_path).items == load_dataset("mtbench", data_dir=SHARED).items


# Prompts and ids


def test_raw_prompts_are_the_papers(all_sets):
    loaded = {name: load_dataset(name, data_dir=all_sets).items for name in SETS}
    assert loaded["mbpp"][0].raw == "# Write a function 11.\n"
    assert loaded["gsm8k"][1].raw == "Question: 3 + 3?\n\nAnswer: Let me solve step by step.\n"
    assert loaded["mbpp"][0].turns == ("Write a function 11.",)
    assert loaded["gsm8k"][1].turns == ("3 + 3?",)
    assert loaded["classeval"][0].turns == ("skeleton",)
    assert {item.raw for name in ("humaneval", "classeval", "mtbench") for item in loaded[name]} == {None}
    assert [item.id for item in loaded["gsm8k"]] == ["gsm8k/test/0", "gsm8k/test/1"]


def test_mbpp_is_cut_to_the_split_that_is_asked_for(all_sets):
    def ids(split=None):
        return [item.reference["task_id"] for item in load_dataset("mbpp", data_dir=all_sets, hub_split=split).items]

    assert ids() == ids("test") == [11, 12, 510]
    assert (ids("prompt"), ids("validation"), ids("train")) == ([1, 10], [511, 600], [601, 974])
    everything = [i for split in MBPP_SPLITS.values() for i in split]
    assert everything == list(range(1, 975))
    with pytest.raises(UserError, match=r"hub_split='dev': mbpp has the splits prompt, test"):
        ids("dev")


def test_gsm8ks_file_is_named_by_its_split(tmp_path):
    written(tmp_path, "gsm8k", "gsm8k/train.jsonl")
    assert load_dataset("gsm8k", data_dir=tmp_path, hub_split="train").items[0].id == "gsm8k/train/0"
    with pytest.raises(UserError, match=r"holds no test\.jsonl"):
        load_dataset("gsm8k", data_dir=tmp_path)


# Groups


@pytest.mark.parametrize(("name", "groups"), [("mtbench", MT_BENCH_CATEGORIES), ("spec_bench", SPEC_BENCH_GROUPS)])
def test_a_short_window_holds_every_group_and_windows_make_up_the_whole(all_sets, name, groups):
    whole = load_dataset(name, data_dir=all_sets).items
    assert [item.group for item in whole[: len(groups)]] == list(groups)
    first, rest = (load_dataset(name, data_dir=all_sets, **w).items for w in ({"limit": 5}, {"offset": 5}))
    assert first + rest == whole
    assert sorted(int(item.id) for item in whole) == [row["question_id"] for row in ROWS[name]]


def test_the_two_question_files_are_told_apart(all_sets):
    mt, spec = all_sets / "mt_bench", all_sets / "spec_bench"
    with pytest.raises(
        UserError, match=r"line 17: mtbench has no category 'translation'; this may be another set's file"
    ):
        load_dataset("mtbench", path=spec)
    with pytest.raises(UserError, match=r"holds no translation, summarization, qa, math_reasoning, rag of spec_bench"):
        load_dataset("spec_bench", path=mt)


def test_rows_of_the_hub_out_of_upstreams_order_are_refused(tmp_path):
    rows = [{"category": "math", "prompt": ["a", "b"], "prompt_id": 1, "reference": []}]
    (tmp_path / "train.jsonl").write_text(json.dumps(rows))
    with pytest.raises(UserError, match=r"item 0: row 0 with category 'math' is not in upstream's order"):
        load_dataset("mtbench", path=tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("mtbench", {"turns": []}, "item 0: turns must be one or more texts"),
        ("mtbench", {"turns": ["a", 5]}, r"item 0: turns must be one or more texts, got \['a', 5\]"),
        ("mtbench", {"turns": ["a", ""]}, "item 0: 81 has an empty prompt"),
        ("mtbench", {"question_id": "81"}, "item 0: question_id must be int"),
        ("mbpp", {"task_id": "11"}, "item 0: task_id must be int"),
        ("gsm8k", {"answer": None}, "item 0: answer must be str, got None"),
        ("classeval", {"test_classes": "T"}, "item 0: test_classes must be list"),
    ],
)
def test_malformed_rows_are_named(tmp_path, name, change, says):
    (tmp_path / "rows.json").write_text(json.dumps([ROWS[name][0] | change, *ROWS[name][1:]]))
    with pytest.raises(UserError, match=says):
        load_dataset(name, path=tmp_path / "rows.json")


# A folder of all sets


@pytest.mark.parametrize("name", SETS)
def test_a_file_anywhere_below_the_folder_is_found_by_its_name(tmp_path, name):
    file = written(tmp_path, name, f"deep/below/{Path(SETS[name][0].removesuffix('.gz')).name}")
    loaded = load_dataset(name, data_dir=tmp_path)
    assert loaded.source == f"file {file}"
    assert len(loaded.items) >= 1


@pytest.mark.parametrize("folder", ["data/mt_bench", "fastchat/llm_judge/data/mt_bench"])
def test_the_sets_own_folder_tells_equal_names_apart(tmp_path, folder):
    written(tmp_path, "spec_bench", "upstream/data/spec_bench/question.jsonl")
    file = written(tmp_path, "mtbench", f"{folder}/question.jsonl")
    assert load_dataset("mtbench", data_dir=tmp_path).source == f"file {file}"


def test_a_name_found_twice_is_not_guessed_at(tmp_path):
    for folder in ("a", "b"):
        written(tmp_path, "mbpp", f"{folder}/mbpp.jsonl")
    with pytest.raises(UserError, match=r"data_dir=.* holds several data files \(a/mbpp.jsonl, b/mbpp.jsonl\)"):
        load_dataset("mbpp", data_dir=tmp_path)


def test_a_hubs_copy_in_the_sets_own_folder_is_found_by_config_and_split(tmp_path):
    import pyarrow
    import pyarrow.parquet

    for config, split in (("full", "test"), ("full", "train"), ("sanitized", "test")):
        file = tmp_path / "mbpp" / config / f"{split}-00000-of-00001.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([mbpp(11, text=f"{config} {split}")]), file)
    (item,) = load_dataset("mbpp", data_dir=tmp_path, hub_config="full").items
    assert item.turns == ("full test",)
    assert load_dataset("mbpp", path=tmp_path / "mbpp", hub_config="full").items == (item,)
    with pytest.raises(UserError, match="several data files"):
        load_dataset("mbpp", data_dir=tmp_path)


def test_the_path_of_one_set_comes_before_the_folder_of_all(all_sets, tmp_path):
    own = written(tmp_path / "own", "gsm8k", "mine.jsonl")
    assert load_dataset("gsm8k", data_dir=all_sets, path=own).source == f"file {own}"


@pytest.mark.parametrize("name", SETS)
def test_a_folder_without_the_set_asks_no_one_and_names_the_ways_out(tmp_path, monkeypatch, name):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: pytest.fail("went to the network"))
    with pytest.raises(UserError) as caught:
        load_dataset(name, source="hub", data_dir=tmp_path)
    assert all(part in str(caught.value) for part in (f"data_dir={tmp_path}", "dataset.path=FILE", "data_dir=FOLDER"))
    assert ("go online" in str(caught.value)) == (name != "spec_bench")
    with pytest.raises(UserError, match="is not a folder"):
        load_dataset(name, data_dir=tmp_path / "absent")


# The shipped files


@pytest.mark.parametrize("name", SETS)
def test_the_shipped_file_says_what_the_protocol_says(name, all_sets):
    config = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    assert config["name"] == name
    long = name in ("gsm8k", "mtbench", "spec_bench")
    assert config.pop("max_new_tokens") == (1024 if long else 512)
    assert config.pop("prompt_style") == ("chat" if name == "spec_bench" else "raw")
    assert load_dataset(**config, data_dir=all_sets).items


@pytest.mark.parametrize("name", [name for name in SETS if name != "humaneval"])
def test_without_a_network_or_a_file_the_error_names_both_ways(name, monkeypatch):
    # That it comes within two seconds is tests/benchmarks/data/test_datasets.py's.
    from huggingface_hub import constants

    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    config = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    loader_keys = {key: value for key, value in config.items() if key not in ("max_new_tokens", "prompt_style")}
    with pytest.raises(UserError) as caught:
        load_dataset(**loader_keys)
    assert all(part in str(caught.value) for part in ("dataset.path=FILE", "data_dir=FOLDER"))
    assert ("go online" in str(caught.value)) == (name != "spec_bench")
