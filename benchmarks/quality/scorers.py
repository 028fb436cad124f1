"""What each benchmark counts as right: one scorer a benchmark, for an answer and for the reference's own solution.

A scorer builds programs and reads numbers; running a program is a function it is given (the sandbox, or a fake in a
test). It does not know runs, methods or tokens.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.data.items import Item
from benchmarks.errors import UserError
from benchmarks.quality.extract import defined_names, flexible_number, program, statements, strict_number
from benchmarks.quality.sandbox.runner import PASSED, Outcome, Program

Run = Callable[[Program], Outcome]


@dataclass(frozen=True)
class Score:
    """counts: metric -> (parts that are right, parts); label: "passed", or why the first part that fails does."""

    label: str
    counts: dict[str, tuple[int, int]]
    detail: str = ""

    @property
    def passed(self) -> bool:
        return self.label == PASSED


@dataclass(frozen=True)
class Scorer:
    metrics: dict[str, str]  # name -> what it means, for the table's legend
    runs_code: bool
    answer: Callable[[Item, str, Run], Score]
    canonical: Callable[[Item, Run], Score]  # of the reference's own solution, past all extraction


def _of(passed: bool) -> tuple[int, int]:
    return int(passed), 1


# --- HumanEval -------------------------------------------------------------------------------------------------------


def _humaneval_answer(item: Item, answer: str, run: Run) -> Score:
    return _humaneval(item.reference, program(item.reference["prompt"], answer, item.reference["entry_point"]), run)


def _humaneval_canonical(item: Item, run: Run) -> Score:
    return _humaneval(item.reference, item.reference["prompt"] + item.reference["canonical_solution"], run)


def _humaneval(row: dict, code: str, run: Run) -> Score:
    outcome = run(Program(code, f"{row['test']}\n\ncheck({row['entry_point']})\n"))
    return Score(outcome.label, {"pass@1": _of(outcome.passed)}, outcome.detail)


# --- MBPP ------------------------------------------------------------------------------------------------------------


def _mbpp_answer(item: Item, answer: str, run: Run) -> Score:
    """Two counts, because the raw prompt does not say what the function is to be called."""
    name = mbpp_name(item.reference)
    code = program("", answer, name)
    functions = _functions(code)
    if name in defined_names(code) or not functions:
        outcome = _mbpp(item.reference, code, run)
        return Score(outcome.label, dict.fromkeys(("pass@1", "any name"), _of(outcome.passed)), outcome.detail)
    outcome = _mbpp(item.reference, f"{code}\n{name} = {functions[0]}", run)
    counts = {"pass@1": _of(False), "any name": _of(outcome.passed)}
    return Score("not named as asked" if outcome.passed else outcome.label, counts, outcome.detail)


def _mbpp_canonical(item: Item, run: Run) -> Score:
    outcome = _mbpp(item.reference, item.reference["code"], run)
    return Score(outcome.label, dict.fromkeys(("pass@1", "any name"), _of(outcome.passed)), outcome.detail)


def _mbpp(row: dict, code: str, run: Run) -> Outcome:
    """The full set has test_setup_code, the sanitized one test_imports; the challenge tests are left out."""
    setup = [row.get("test_setup_code") or "", *(row.get("test_imports") or [])]
    return run(Program(code, "\n".join([*setup, *row["test_list"]]) + "\n"))


def mbpp_name(row: dict) -> str:
    """The function of the reference's code that its tests call."""
    calls = [node.func for test in row["test_list"] for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Call)]
    called = {call.id for call in calls if isinstance(call, ast.Name)}
    names = [name for name in defined_names(row["code"].replace("\r", "")) if name in called]
    if not names:
        raise UserError(f"MBPP {row['task_id']}: its tests call nothing that its code defines; is the row whole?")
    return names[-1]


def _functions(code: str) -> list[str]:
    return [node.name for node in statements(code) if isinstance(node, ast.FunctionDef)]


# --- ClassEval -------------------------------------------------------------------------------------------------------


def _classeval_answer(item: Item, answer: str, run: Run) -> Score:
    return _classeval(item.reference, program(item.reference["skeleton"], answer, item.reference["class_name"]), run)


def _classeval_canonical(item: Item, run: Run) -> Score:
    return _classeval(item.reference, item.reference["solution_code"], run)


def _classeval(row: dict, code: str, run: Run) -> Score:
    """Each test class runs in a sandbox of its own, so that a method which never ends fails only its own tests."""
    code = "\n".join([*row["import_statement"], code])
    names = [name.strip() for name in row["test_classes"]]  # one of the set's has a blank before it
    outcomes = {name: run(Program(code, row["test"], name)) for name in names}
    failed = [outcome for outcome in outcomes.values() if not outcome.passed]
    methods = [outcomes[method["test_class"]].passed for method in row["methods_info"]]
    first = failed[0] if failed else Outcome(PASSED)
    return Score(first.label, {"class": _of(not failed), "method": (sum(methods), len(methods))}, first.detail)


# --- GSM8K -----------------------------------------------------------------------------------------------------------


def _gsm8k_answer(item: Item, answer: str, run: Run) -> Score:
    expected = strict_number(item.reference["answer"])
    strict, flexible = strict_number(answer), flexible_number(answer)
    label = PASSED if flexible == expected else "no number" if flexible is None else "another number"
    counts = {"strict": _of(strict == expected), "flexible": _of(flexible == expected)}
    return Score(label, counts, f"strict {strict}, flexible {flexible}, expected {expected}")


def _gsm8k_canonical(item: Item, run: Run) -> Score:
    score = _gsm8k_answer(item, item.reference["answer"], run)
    readable = strict_number(item.reference["answer"]) is not None
    return score if readable else Score("no number", dict.fromkeys(score.counts, (0, 1)))


SCORERS = {
    "humaneval": Scorer({"pass@1": "all tests pass"}, True, _humaneval_answer, _humaneval_canonical),
    "mbpp": Scorer(
        {
            "pass@1": "all tests of test_list pass",
            "any name": "so they do when the answer's first function is taken for the one that the tests call",
        },
        True,
        _mbpp_answer,
        _mbpp_canonical,
    ),
    "classeval": Scorer(
        {"class": "all test classes of a class pass", "method": "of all methods, those whose own test class passes"},
        True,
        _classeval_answer,
        _classeval_canonical,
    ),
    "gsm8k": Scorer(
        {"strict": "the number after the first ####", "flexible": "the answer's last number"},
        False,
        _gsm8k_answer,
        _gsm8k_canonical,
    ),
}
