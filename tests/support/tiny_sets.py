"""Every dataset made by hand, as small as it may be, in upstream's files."""

import json
from pathlib import Path

from benchmarks.data.items import MT_BENCH_CATEGORIES, SPEC_BENCH_GROUPS

# name -> upstream's file in the layout, its items, the first item's id
SETS = {
    "humaneval": ("humaneval/HumanEval.jsonl.gz", 164, "HumanEval/0"),
    "mbpp": ("mbpp/mbpp.jsonl", 500, "MBPP/11"),
    "classeval": ("classeval/ClassEval_data.json", 100, "ClassEval_0"),
    "gsm8k": ("gsm8k/test.jsonl", 1319, "gsm8k/test/0"),
    "mtbench": ("mt_bench/question.jsonl", 80, "81"),
    "spec_bench": ("spec_bench/question.jsonl", 480, "81"),
}


def mbpp(task_id: int, **changes) -> dict:
    row = {"text": f"Write a function {task_id}.", "code": "x = 1\r\n", "test_list": ["assert f()"], "task_id": task_id}
    return {**row, "test_setup_code": "", "challenge_test_list": []} | changes


def question(number: int, category: str, n_turns: int = 1) -> dict:
    return {"question_id": number, "category": category, "turns": [f"q{number} t{t}" for t in range(n_turns)]}


def mt_bench(n_of_each: int = 2) -> list[dict]:
    categories = [c for c in MT_BENCH_CATEGORIES for _ in range(n_of_each)]
    return [question(81 + i, category, 2) for i, category in enumerate(categories)]


def spec_bench() -> list[dict]:
    rows = mt_bench()
    return rows + [question(200 + i, group) for i, group in enumerate(g for g in SPEC_BENCH_GROUPS[1:] for _ in "ab")]


def classeval(number: int) -> dict:
    texts = ("skeleton", "test", "solution_code", "class_name")
    lists = ("import_statement", "test_classes", "methods_info")
    return {"task_id": f"ClassEval_{number}", **{t: t for t in texts}, **{name: [] for name in lists}}


ROWS = {
    "humaneval": [
        {"task_id": "H/0", "prompt": "def f():\n", "entry_point": "f", "canonical_solution": "", "test": "05"}
    ],
    "mbpp": [mbpp(i) for i in (1, 10, 11, 12, 510, 511, 600, 601, 974)],
    "classeval": [classeval(0), classeval(1)],
    "gsm8k": [{"question": "2 + 2?", "answer": "#### 4"}, {"question": "3 + 3?", "answer": "#### 6"}],
    "mtbench": mt_bench(),
    "spec_bench": spec_bench(),
}


def written(folder: Path, name: str, inside: str | None = None) -> Path:
    file = folder / (inside or SETS[name][0].removesuffix(".gz"))
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = ROWS[name]
    as_array = file.suffix == ".json"
    file.write_text(json.dumps(rows) if as_array else "".join(json.dumps(row) + "\n" for row in rows))
    return file
