"""What is taken out of an answer compiles, keeps its first word and its indentation; numbers."""

import ast
import gzip
import json
import keyword
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.data.items import load_dataset
from benchmarks.quality.extract import (
    compiles,
    defined_names,
    fenced_blocks,
    flexible_number,
    longest_compiling,
    program,
    strict_number,
)
from paths import SHARED

DATA = SHARED / "data"
STUB = 'import math\n\ndef f(x):\n    """Doc."""\n'
FIVE = 'class A:\n    """Doc."""\n    def f(self):\n        """Five."""'  # no line end: the answer goes on on this line


def value(code: str, expression: str = "f(4)") -> object:
    space: dict = {}
    exec(code, space)  # written here, in this file
    return eval(expression, space)


# An answer that goes on where the prompt stopped


@pytest.mark.parametrize(
    "completion",
    [
        "    return x + 1\n",
        "    return x + 1",
        "\n    return x + 1\n\n\ndef g(y):\n    return y\n",
        "    return x + 1\n\nprint(f(input()))\n",
        "    return x + 1\n\nif __name__ == '__main__':\n    f(\n",
        "    return x + 1\n```\n\nThis function adds one.",
        "    return x + 1\n\nassert f(1) == 3",
        "    # first\n# a comment at the margin is no statement\n    return x + 1\n",
        "    y = [\nx,\n]\n    return y[0] + 1\nprint(y)",  # a bracket may hold lines at the margin
        "    '''\nx = 1\n'''\n    return x + 1\nz = 2",  # and a string
        "    return x + 1\n    return (x +",  # the token limit, in the middle of a line
        "    return x + 1\n    if x:\n",
        "\r\n    y = x + 1\r\n    return y\r\nprint(",
    ],
)
def test_a_continuation_is_cut_at_the_next_top_level_statement(completion):
    code = program(STUB, completion, "f")
    assert value(code) == 5
    assert code.startswith(STUB)
    assert "print" not in code
    assert "assert" not in code


def test_a_continuation_may_begin_in_the_middle_of_a_line():
    code = program(FIVE, "\n        return 5\n\n    def g(self):\n        return 6\n\na = A()\na.h(", "A")
    assert (value(code, "A().f()"), value(code, "A().g()")) == (5, 6)
    assert program(FIVE, "\n        return 5\n    def g(self", "A") == FIVE + "\n        return 5"


# An answer that is a whole


@pytest.mark.parametrize(
    "answer",
    [
        "def f(x):\n    return x + 1",
        "Here it is:\n```python\ndef f(x):\n    return x + 1\n```\nIt adds one.",
        "```\ndef f(x):\n    return x + 1\n```",
        "```py\ndef f(x):\n    return x + 1",  # never closed
        "```def f(x):\n    return x + 1\n```",  # the code begins on the fence's line: no first keyword is eaten
        "```python def f(x):\n    return x + 1\n```",
        "Answer: ```python\ndef f(x):\n    return x + 1\n```",
        "```python\ndef f(x):\n    return x + 1```\nIt adds one.",  # closed at the end of the code
        "  Sure!\n```Python\ndef f(x):\n    return x + 1\n\nprint(f(input()))\n```",
        "1. First:\n   ```python\n   def f(x):\n       return x + 1\n   ```\n2. Done.",  # indented with its list
        "Run `pip`:\n```bash\npip install x\n```\n```python\ndef f(x):\n    return x + 1\n```",
        "```python\nprint(f(2))\n```\nwith\n```python\ndef f(x):\n    return x + 1\n```",
        "```python\ndef f(x):\n    return x + 1\n```python\ndef f(x):\n    return 0\n```",
        "Use ```f``` so:\n\ndef f(x):\n    return x + 1\n\nThat is all.",
        "Sure, it is\ndef f(x):\n    return x + 1\nThis adds one.",
        "```python\ndef f(x):\n    return x + 1\n\nf(\n```",
        "```python\ndef f(x):\n    return math.floor(x) + 1\n```",  # the prompt's imports are there
        "```python\n    y = x + 1\n    return y\n```",  # the body alone
        "```python\ny = x + 1\nreturn y\n```",  # and without its indentation
        "y = x + 1\n    return y\n",  # a tokenizer that drops the blanks of the first line
        "    def f(x):\n        return x + 1\n",  # nested by mistake: the prompt's own f has no return then
    ],
)
def test_a_whole_answer_is_found_in_what_surrounds_it(answer):
    code = program(STUB, answer, "f")
    assert compiles(code)
    if answer.startswith("    def"):
        assert value(code) is None
    else:
        assert value(code) == 5
    assert "input" not in code


def test_a_prompt_that_is_no_code_is_left_out():
    assert program("", "```python\nimport os\n\ndef g(y):\n    return y\n\ng(2)\n```", "g") == (
        "import os\n\ndef g(y):\n    return y"
    )
    assert (
        program("", "def h(y):\n    return y\nh(2)\n", "g") == "def h(y):\n    return y\nh(2)\n"
    )  # not what was asked
    assert program("", "I cannot.", "g") == ""
    broken = 'class A:\n    """Doc.”"”\n'
    assert program(broken, "```\nclass A:\n    pass\n```", "A") == "class A:\n    pass"


def test_blocks():
    assert fenced_blocks("a\n```\nx\n\ny\n```\nb\n```c\nz") == ["x\n\ny", "z"]
    assert fenced_blocks("a `b` c") == fenced_blocks("") == fenced_blocks("```\n```") == []
    assert fenced_blocks("```pass") == ["pass"]  # a keyword is code, any other single word a language
    assert fenced_blocks("```{.python}\nx\n````") == ["x"]
    assert fenced_blocks("```\nx\n``` That was it.\ny") == ["x"]
    assert fenced_blocks("```    return x\n```") == ["    return x"]


FENCED_INSIDE = [
    'def f(x):\n    """Doc.\n\n    ```\n    f(1)\n    ```\n    """\n    return x + 1',
    'def f(x):\n    """Doc.\n\n```python\nf(1)\n```\n"""\n    return x + 1',
    "def f(x):\n    '''One ``` only.'''\n    return x + 1",
    'def f(x):\n    fence = "```"\n    return x + 1',
    "def f(x):\n    y = x  # within ``` fences\n    return y + 1",
    "def f(x):\n    # ```\n    # f(1)\n    # ```\n    return x + 1",
    'def f(x):\n    s = "it\\"s" + \'# ```\'\n    return x + 1',
]


@pytest.mark.parametrize("code", FENCED_INSIDE)
@pytest.mark.parametrize(
    "form",
    ["Here:\n```python\n{}\n```\nDone.", "```\n{}\n```", "```python\n{}", "```python\n{}\n\nf(", "````\n{}\n````",
     "~~~python\n{}\n~~~\nThat's it.", "~~~~\n{}\n~~~~~", "```{}\n```", "Sure.\n{}\n\nThat is all."],
)  # fmt: skip
@pytest.mark.parametrize("prompt", ["", STUB], ids=["no prompt", "stub"])
def test_a_fence_inside_code_does_not_end_it(code, form, prompt):
    found = program(prompt, form.format(code), "f")
    assert value(found) == 5
    assert found.rstrip().endswith(code)


def test_a_fence_is_closed_by_its_like():
    assert fenced_blocks("````\n```\nx\n```\n````\ny") == ["```\nx\n```"]
    assert fenced_blocks("~~~\n```\nx\n```\n~~\n~~~\ny") == ["```\nx\n```\n~~"]
    assert fenced_blocks("```\n~~~\nx\n```\ny") == ["~~~\nx"]
    assert fenced_blocks("a ~~~ b\n  ~~~\n  x\n  ~~~~\n") == ["x"]
    # Where the text is no Python, or a string was never closed, the first fence closes.
    assert fenced_blocks("```bash\necho ''' # x\n```\n```\ny\n```") == ["echo ''' # x", "y"]
    assert fenced_blocks('```\ndef f():\n    """Doc\n```\nText.\n```\ny\n```') == ['def f():\n    """Doc', "y"]


def test_names():
    assert defined_names("import os\ndef f(): pass\nclass A: pass\ng = h = lambda: 0\ni, j = 1, 2\n") == [
        "f", "A", "g", "h", "i", "j",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "binding",
    [
        "f: Callable = lambda x: x + 1",
        "f = g = lambda x: x + 1",
        "f, g = lambda x: x + 1, 0",
        "try:\n    f = lambda x: x + 1\nexcept ValueError:\n    pass",
        "if True:\n    def f(x):\n        return x + 1",
        "from operator import index as f\n_f = f\nf = lambda x: _f(x) + 1",
        "add = 1\nf: Callable[[int], int] = lambda x: x + add",
    ],
)
def test_whatever_binds_the_asked_name_is_a_whole_and_no_body(binding):
    code = program("from typing import Callable\n\n" + STUB, f"Here:\n```python\n{binding}\n```", "f")
    assert value(code) == 5
    assert code.endswith(binding)


def test_a_declaration_without_a_value_binds_nothing():
    assert defined_names("f: int\nfrom operator import add as a, sub\n") == ["a", "sub"]


LINES = st.sampled_from(
    ["```", "```python", "   ```", "def f(x):", "    return x", "        y = 1", "Sure!", "", "x = (", ")", '"""',
     "# c", "class A:", "from __future__ import annotations", "if x:", "\tz", "print(f(1))", "```return x",
     "é\x00", "return x"]
)  # fmt: skip
TEXTS = st.one_of(st.lists(LINES, max_size=12).map("\n".join), st.text(max_size=60))


@settings(deadline=None, max_examples=300)
@given(TEXTS, st.sampled_from([STUB, FIVE, ""]))
@example("```", STUB)
def test_whatever_the_answer_what_comes_out_compiles_and_is_made_of_its_lines(answer, prompt):
    code = program(prompt, answer, "f")
    assert compiles(code)
    given_lines = {line.strip() for line in (prompt + "\n" + answer + "\n" + prompt + answer).splitlines()}
    # Fences and a language after them go; of the rest nothing is rewritten.
    for line in code.splitlines():
        assert any(line.strip() in whole for whole in given_lines), line


@settings(deadline=None)
@given(st.lists(LINES, max_size=8).map("\n".join))
def test_the_longest_compiling_text_against_trying_every_length(text):
    lines = text.split("\n")
    tried = ["\n".join(lines[:n]) for n in range(1, len(lines) + 1)]
    assert longest_compiling(text) == max((t for t in tried if compiles(t)), key=len, default="")


@given(st.sampled_from(keyword.kwlist))
def test_no_keyword_behind_a_fence_is_taken_for_a_language(word):
    assert fenced_blocks(f"```{word} x\ny\n```")[0].startswith(f"{word} x")


# Real data


def test_every_humaneval_solution_goes_through_unharmed():
    for item in load_dataset("humaneval").items:
        row = item.reference
        prompt, solution, name = row["prompt"], row["canonical_solution"], row["entry_point"]
        whole = ast.dump(ast.parse(prompt + solution))
        run_on = solution.rstrip("\n") + f"\n\n\ndef check():\n    pass\n\nprint({name}(\n"
        for completion in (solution, run_on, solution.rstrip("\n") + "\n```\nText."):
            assert ast.dump(ast.parse(program(prompt, completion, name))) == whole, item.id
        fenced = program(prompt, f"Here:\n```python\n{prompt}{solution}\n{name}(\n```", name)
        assert ast.dump(ast.parse(fenced)).endswith(whole.removeprefix("Module(body=[").split(", FunctionDef(")[-1])
        assert defined_names(fenced)[-1] == name


@pytest.mark.parametrize(
    ("recorded", "enough"),
    [
        ("Llama-3.1-8B-Instruct/humaneval", 80),
        ("vicuna-7b-v1.3/humaneval", 79),
        ("CodeLlama-13b-Instruct-hf/classeval", 95),
    ],
)
def test_recorded_answers_give_the_asked_name(recorded, enough):
    file = DATA / "recorded_outputs" / f"{recorded}.jsonl.gz"
    if not file.exists():
        pytest.skip("the recorded answers are not in ../shared/data")
    rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).decode().splitlines()]
    if recorded.endswith("humaneval"):
        names = {item.id: item.reference["entry_point"] for item in load_dataset("humaneval").items}
    else:
        classes = json.loads((DATA / "classeval" / "ClassEval_data.json").read_text())
        names = {row["task_id"]: row["class_name"] for row in classes}
    found = [names[row["dataset_ref"]] in defined_names(program("", row["outputs"][0], names[row["dataset_ref"]]))
             for row in rows]  # fmt: skip
    assert sum(found) >= enough


# Numbers


@pytest.mark.parametrize(
    ("answer", "strict", "flexible"),
    [
        ("#### 18", 18, 18),
        ("5 and 13.\n#### 1,234.50 dollars", "1234.5", "1234.5"),
        ("####-3", None, -3),
        ("#### -3", -3, -3),
        ("#### 18.", 18, 18),
        ("#### $ 18", None, 18),
        ("#### **18**\n\nQuestion: 4 + 4?\n#### 8", 8, 8),
        ("#### 18\n\nQuestion: 4 + 4?\n#### 8", 18, 8),  # run-on answers: strict the first, flexible the last
        ("Question: q1 2+2?\nAnswer: 4 #### 4\n\nQuestion: q2\nAnswer: so 7\n#### 7", 4, 7),
        ("She earns $1,000.", None, 1000),
        ("It costs \\$12.", None, 12),
        ("She has $18.00 left", None, 18),
        ("$400 x 1.5 = $<<400\\*1.5=600>>600", None, 600),
        ("That is a loss of -$3.50.", None, "-3.5"),
        ("$-4", None, -4),
        ("10-5", None, -5),
        ("x=-5", None, -5),
        ("- 5 apples", None, 5),
        ("between 5–10", None, 10),
        ("2,3,4", None, 234),
        ("1,450,000", None, 1450000),
        ("They need 5.", None, 5),
        ("about .5", None, "0.5"),
        ("It is 18.\n\nQuestion: Tom has 44 apples", None, 44),
        ("It is 18, so ...", None, 18),
        ("It is 18 (see 1.2.3)", None, 18),
        ("#### ,\n#### 5", 5, 5),
        # What the docstring says of other ways to write a number.
        ("#### 1 234", 1, 234),
        ("#### 1.234,50", "1.2345", "1.2345"),
        ("#### +7", None, 7),
        ("#### 3/4", 3, 4),
        ("#### 1e3", 1, 3),
        ("There is no number.", None, None),
        ("", None, None),
        ("####", None, None),
    ],
)
def test_gsm8k_numbers(answer, strict, flexible):
    expected = [None if number is None else Decimal(number) for number in (strict, flexible)]
    assert [strict_number(answer), flexible_number(answer)] == expected


@given(st.integers(-(10**9), 10**9), st.sampled_from(["{:d}", "{:,d}"]), st.sampled_from(["{}", "It is {}.", "= {}!"]))
def test_any_integer_in_any_dress(number, form, sentence):
    text = sentence.format(form.format(number))
    assert flexible_number(text) == strict_number("#### " + form.format(number)) == number


def test_gsm8k_reference_answers():
    file = DATA / "gsm8k" / "test.jsonl"
    if not file.exists():
        pytest.skip("GSM8K is not in ../shared/data")
    for line in file.read_text().splitlines():
        answer = json.loads(line)["answer"]
        assert strict_number(answer) == Decimal(answer.split("#### ")[1].replace(",", ""))
