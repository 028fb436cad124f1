"""What is run for an answer and what it counts as, and the reference solutions of the real sets."""

import json

import pytest

from benchmarks.data.items import Item, load_dataset
from benchmarks.errors import UserError
from benchmarks.quality.sandbox import runner
from benchmarks.quality.sandbox.runner import Outcome, Program
from benchmarks.quality.scorers import SCORERS, Score, mbpp_name
from confined import needs_sandbox
from handmade import mbpp_item
from paths import SHARED

DATA = SHARED / "data"


# MBPP and ClassEval, with a fake sandbox


def test_mbpp_tests_follow_the_set_up_and_leave_the_challenge_out():
    seen = []
    score = SCORERS["mbpp"].canonical(mbpp_item(), lambda program: seen.append(program) or Outcome("passed"))
    assert score == Score("passed", {"pass@1": (1, 1), "any name": (1, 1)})
    assert seen[0].tests == "y = 2\nassert add(1) == y\nassert set(add(i) for i in [1]) == {2}\n"
    sanitized = mbpp_item(test_imports=["import math"])
    del sanitized.reference["test_setup_code"]
    SCORERS["mbpp"].canonical(sanitized, lambda program: seen.append(program) or Outcome("passed"))
    assert seen[1].tests.startswith("\nimport math\nassert add")


@pytest.mark.parametrize(
    ("answer", "label", "as_asked", "any_name"),
    [
        ("def add(x):\n    return x + 1\n\nprint(add(input()))", "passed", 1, 1),
        ("def add(x):\n    return x", "assertion failed", 0, 0),
        ("def plus(x):\n    return x + 1\n\ndef main():\n    plus(1)\n", "not named as asked", 0, 1),
        ("def plus(x):\n    return x\n", "assertion failed", 0, 0),
        ("add = lambda x: x + 1", "passed", 1, 1),
        ("I do not know.", "raised NameError", 0, 0),
    ],
)
def test_mbpp_counts_a_right_function_with_another_name_apart(answer, label, as_asked, any_name):
    score = SCORERS["mbpp"].answer(mbpp_item(), answer, run_here)
    assert score.label == label
    assert score.counts == {"pass@1": (as_asked, 1), "any name": (any_name, 1)}


def run_here(program: Program) -> Outcome:
    """For programs written in this file only."""
    space: dict = {}
    try:
        exec(program.solution, space)
        exec(program.tests, space)
    except AssertionError:
        return Outcome("assertion failed")
    except Exception as error:
        return Outcome(f"raised {type(error).__name__}")
    return Outcome("passed")


def classeval_item() -> Item:
    row = {
        "task_id": "ClassEval_0", "class_name": "A", "import_statement": ["import math"],
        "skeleton": 'class A:\n    """Doc."""\n    def f(self):\n        """F."""\n    def g(self):\n        """G."""',
        "solution_code": "class A: pass", "test": "import unittest\n...", "test_classes": ["TF", "TG", "TA"],
        "methods_info": [{"method_name": "f", "test_class": "TF"}, {"method_name": "g", "test_class": "TG"}],
    }  # fmt: skip
    return Item("ClassEval_0", (row["skeleton"],), row)


def test_classeval_counts_classes_and_methods():
    seen = []

    def run(program: Program) -> Outcome:
        seen.append(program)
        return Outcome("timed out" if program.test_class == "TG" else "passed")

    score = SCORERS["classeval"].answer(classeval_item(), "\n        return 1\n\nprint(A().g())", run)
    assert score == Score("timed out", {"class": (0, 1), "method": (1, 2)})
    assert [program.test_class for program in seen] == ["TF", "TG", "TA"]
    assert seen[0].solution == "import math\n" + classeval_item().reference["skeleton"] + "\n        return 1\n"
    every = SCORERS["classeval"].canonical(classeval_item(), lambda program: Outcome("passed"))
    assert every == Score("passed", {"class": (1, 1), "method": (2, 2)})


# The reference solutions of the real sets, in the real sandbox


@needs_sandbox
def test_humaneval_solutions_pass():
    items = load_dataset("humaneval").items
    for item in (items[0], items[32], items[38], items[53], items[163]):
        assert SCORERS["humaneval"].canonical(item, runner.run).passed, item.id
        wrong = SCORERS["humaneval"].answer(item, "    return None\n", runner.run)
        assert not wrong.passed


def raw(file: str) -> str:
    if not (DATA / file).exists():
        pytest.skip(f"{file} is not in ../shared/data")
    return (DATA / file).read_text()


@needs_sandbox
def test_mbpp_solutions_pass():
    rows = [json.loads(row) for row in raw("mbpp/mbpp.jsonl").splitlines()]
    for row in (*rows[10:500:70], rows[366]):  # 366: the one with a set-up that uses the solution's class
        assert SCORERS["mbpp"].canonical(Item(str(row["task_id"]), ("",), row), runner.run).passed, row["task_id"]


def test_every_mbpp_row_names_its_function():
    rows = [json.loads(row) for row in raw("mbpp/mbpp.jsonl").splitlines()]
    for row in rows:
        if 10 < row["task_id"] <= 510:
            name = mbpp_name(row)
            assert all(f"{name}(" in test.replace(" (", "(") for test in row["test_list"]), row["task_id"]
    with pytest.raises(UserError, match="call nothing that its code defines"):
        mbpp_name({**rows[0], "code": "x = 1"})


@needs_sandbox
def test_classeval_solutions_pass():
    rows = json.loads(raw("classeval/ClassEval_data.json"))
    for row in (rows[1], rows[5]):
        item = Item(row["task_id"], (row["skeleton"],), row)
        score = SCORERS["classeval"].canonical(item, runner.run)
        assert score.passed, (row["task_id"], score)
        assert score.counts["method"] == (len(row["methods_info"]),) * 2
        whole = SCORERS["classeval"].answer(item, f"```python\n{row['solution_code']}\n```", runner.run)
        assert whole == score
        assert not SCORERS["classeval"].answer(item, "", runner.run).passed


def test_every_gsm8k_reference_is_right_by_its_own_number():
    for number, row in enumerate(raw("gsm8k/test.jsonl").splitlines()):
        item = Item(str(number), ("",), json.loads(row))
        assert SCORERS["gsm8k"].canonical(item, runner.run).passed
