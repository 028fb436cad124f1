"""What an answer says: the program in it, or the number. Text in, text or a number out; nothing is executed here.

A program is cut, never rewritten: whole lines of the answer as they stand, up to where they compile. It does not know
which benchmark asks, nor whether what it finds is right.
"""

import ast
import keyword
import re
import textwrap
import warnings
from decimal import Decimal, InvalidOperation

_LANGUAGES = ("", "python", "py", "python3", "python2")


# --- code ------------------------------------------------------------------------------------------------------------


def program(prompt: str, answer: str, name: str | None) -> str:
    """One program made of a prompt that is code ("" when it is not) and an answer; it compiles if anything does.

    An answer either goes on where the prompt stopped, and is cut at its next top-level statement, or it is a whole of
    its own, fenced or bare, and comes after the prompt, whose imports and helpers it may use. `name` is what the
    tests will ask for; among several fenced blocks the first that defines it is the one.
    """
    answer = answer.replace("\r\n", "\n").replace("\r", "\n")
    if prompt and _first_line(answer)[:1].isspace():
        continued = _continued(prompt, answer)
        if continued is not None:
            return continued
    blocks = fenced_blocks(answer) or [answer, _from_first_definition(answer)]
    wholes = [code for code in map(longest_compiling, blocks) if code.strip()]
    bare = longest_compiling(_from_first_definition(answer))  # a fence may stand in its docstring
    chosen = next((code for code in [*wholes, bare] if name in defined_names(code)), None)
    if chosen is None and prompt:
        bodies = [code for block in blocks for code in _as_bodies(prompt, block)]
        if bodies:
            return max(bodies, key=lambda code: code.count("\n"))
    if chosen is None and not wholes:
        return prompt
    whole = without_demonstration(chosen or wholes[0], name)
    after_prompt = f"{prompt}\n{whole}" if prompt else whole
    # A prompt may be no code, or an answer begin with __future__.
    return after_prompt if compiles(after_prompt) else whole


def fenced_blocks(answer: str) -> list[str]:
    """The contents of every block fenced by three or more backticks or tildes; one never closed goes on to the end.

    What follows the opening fence on its line is a language where it is one, and else the first line of the code. The
    indentation of a fence, in a list say, is taken from its lines where all of them have it. A fence inside a string or
    comment of the code does not close it.
    """
    blocks: list[tuple[int, list[str]]] = []  # the fence's indentation, the lines
    at = 0
    while opening := _OPENING.search(answer, at):
        fence = opening[1]
        before = answer[answer.rfind("\n", 0, opening.start(1)) + 1 : opening.start(1)]
        line_end = _end_of_line(answer, opening.end())
        first = _without_language(answer[opening.end() : line_end])
        code, closed, _ = first.partition(fence)
        indent = 0 if before.strip() else len(before)
        head = [" " * indent + code] if code.strip() else []
        at = line_end
        if closed:
            if not before.strip():  # else it is code within a sentence
                blocks.append((indent, head))
            continue
        closing = _closing(answer, line_end + 1, opening, head, indent)
        end = len(answer) if closing is None else closing.start(1)
        lines = answer[line_end + 1 : end].split("\n") if line_end < len(answer) else []
        if closing is not None and lines and not lines[-1].strip():
            lines.pop()
        blocks.append((indent, head + lines))
        if closing is None:
            break
        at = _end_of_line(answer, closing.end())
        after = answer[closing.end() : at]
        if after.strip() and _language(after) is not None:  # it opens the next block, too; other text opens nothing
            at = closing.start()
    return [_unindented(*block) for block in blocks if any(line.strip() for line in block[1])]


_OPENING = re.compile(r"(?:^[ \t]*(?=~)|(?=`))(`{3,}|~{3,})", re.MULTILINE)
_LITERAL = re.compile(  # a string or a comment
    r"""#[^\n]*|(?P<quotes>'''|\"\"\")(?:\\.|(?!(?P=quotes)).)*(?:(?P=quotes)|\Z)"""
    r"""|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*\"""",
    re.DOTALL,
)


def _closing(answer: str, start: int, opening: re.Match, head: list[str], indent: int) -> re.Match | None:
    """The fence that closes a block whose own lines begin at `start`; None where none does.

    The first one outside strings and comments, if the code compiles beyond those inside; else (text that is no Python,
    a string never closed) the first of all.
    """
    n = len(opening[1])
    like = rf"(`{{{n},}})" if opening[1][0] == "`" else rf"^[ \t]*(~{{{n},}})"
    found = list(re.compile(like, re.MULTILINE).finditer(answer, start))
    if not found:
        return None
    code_start = start - 1 - len(head[0].lstrip()) if head else start
    literals = [match.span() for match in _LITERAL.finditer(answer, code_start)]
    chosen = next((one for one in found if not any(a <= one.start(1) < b for a, b in literals)), None)
    if chosen is found[0]:
        return chosen
    end = len(answer) if chosen is None else chosen.start(1)
    code = longest_compiling(_unindented(indent, head + answer[start:end].split("\n")))
    n_skipped = len(head) + answer[start : found[0].start(1)].count("\n") + 1  # lines up to the skipped fence's own
    return chosen if len(code.rstrip().split("\n")) > n_skipped else found[0]


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _unindented(indent: int, lines: list[str]) -> str:
    deep_enough = all(not line[:indent].strip() for line in lines)
    return "\n".join(line[indent:] if deep_enough else line for line in lines)


def _language(info: str) -> str | None:
    """The language that a fence names, None where what follows it is code."""
    word, _, rest = info.strip().partition(" ")
    if word.lower() in _LANGUAGES:
        return word
    return word if not rest and re.fullmatch(r"\{?\.?[\w+#-]+\}?", word) and not keyword.iskeyword(word) else None


def _without_language(info: str) -> str:
    language = _language(info)
    return info if language is None else info.lstrip()[len(language) :].lstrip()


def _continued(prompt: str, completion: str) -> str | None:
    """prompt + completion up to its first top-level statement, or else up to the last line with which it compiles.

    None when nothing of the completion compiles after the prompt.
    """
    lines = completion.split("\n")
    # A comment is no statement; a line inside a string or a bracket leaves what is above it open, which cannot compile.
    cuts = [n for n in range(1, len(lines)) if lines[n][:1].strip() and not lines[n].startswith("#")]
    for n in [*cuts, *range(len(lines), 0, -1)]:
        kept = "\n".join(lines[:n])
        if not kept.strip():
            return None
        if compiles(prompt + kept):
            return prompt + kept
    return None


def _as_bodies(prompt: str, block: str) -> list[str]:
    """The prompt with a body that came without its signature, and maybe without its indentation or its first line's."""
    stub, body = prompt if prompt.endswith("\n") else prompt + "\n", block.strip("\n")
    forms = (body, textwrap.indent(textwrap.dedent(body), "    "), "    " + body.lstrip()) if body.strip() else ()
    return [code for form in forms if (code := _continued(stub, form)) is not None]


def _from_first_definition(answer: str) -> str:
    lines = answer.split("\n")
    starts = [n for n, line in enumerate(lines) if re.match(r"(?:async def|def|class|import|from)\b|@", line)]
    return "\n".join(lines[starts[0] :]) if starts else ""


def longest_compiling(code: str) -> str:
    """The most whole lines from the first on that compile together; "" when there are none."""
    lines = code.split("\n")
    return next((kept for n in range(len(lines), 0, -1) if compiles(kept := "\n".join(lines[:n]))), "")


def without_demonstration(code: str, name: str | None) -> str:
    """Without what follows the last top-level function or class, if `name` is defined by then: examples, `main()`."""
    definitions = [node for node in statements(code) if isinstance(node, _DEFINITIONS)]
    if name not in [node.name for node in definitions]:
        return code
    return "\n".join(code.split("\n")[: definitions[-1].end_lineno])


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def defined_names(code: str) -> list[str]:
    """What `code`, which compiles, binds at its top level by def, class, assignment or `from` import, in order."""
    return [name for node in statements(code) for name in _bound_by(node)]


def _bound_by(node: ast.stmt) -> list[str]:
    """The names that a statement binds, also those inside an `if`, `try`, `with` or loop."""
    if isinstance(node, _DEFINITIONS):
        return [node.name]
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.AnnAssign) and node.value is None:  # a declaration binds nothing
        return []
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [part.id for target in targets for part in ast.walk(target) if _is_bound(part)]
    inner = (one for field in ("body", "handlers", "orelse", "finalbody") for one in getattr(node, field, []))
    return [name for one in inner for name in _bound_by(one)]


def _is_bound(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def statements(code: str) -> list[ast.stmt]:
    """The top-level statements of code that compiles."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape in an answer is the answer's affair
        return ast.parse(code).body


def compiles(code: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(code, "answer", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
            return False
    return True


def _first_line(text: str) -> str:
    return next((line for line in text.split("\n") if line.strip()), "")


# --- numbers ---------------------------------------------------------------------------------------------------------

_AFTER_MARK = re.compile(r"#### (-?[0-9.,]+)")
_LAST = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")


def strict_number(answer: str) -> Decimal | None:
    """GSM8K's own format: the number after the first `#### ` that one follows; None without one.

    The `strict-match` rule of lm-evaluation-harness, as flexible_number is its `flexible-extract`. Neither cuts off
    questions of its own that an answer runs on into. Commas, `$` and a last full stop are dropped before reading:

        answer        1 234   1.234,50   +7     3/4   1e3
        strict        1       1.23450    None   3     1      (of `#### ` and the answer)
        flexible      234     1.23450    7      4     3

    Deviation: numbers are compared by value, there as text, so that 18.00 is 18 here.
    """
    return next(filter(_is_number, map(_value, _AFTER_MARK.findall(answer))), None)


def flexible_number(answer: str) -> Decimal | None:
    """The last number of the whole answer, whatever stands around it; strict_number says how forms are read.

    Deviation: a match that is no number, as an ellipsis, is passed over.
    """
    return next(filter(_is_number, map(_value, reversed(_LAST.findall(answer)))), None)


def _value(text: str) -> Decimal | None:
    try:
        return Decimal(text.replace(",", "").replace("$", "").removesuffix("."))
    except InvalidOperation:
        return None


def _is_number(value: Decimal | None) -> bool:
    return value is not None
