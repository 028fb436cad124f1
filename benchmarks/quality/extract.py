"""What an answer says: the program in it, or the number. Text in, text or a number out; nothing is executed here.

A program is cut, never rewritten: whole lines of the answer as they stand, up to where they compile. It does not know
which benchmark asks, nor whether what it finds is right.
"""

import ast
import keyword
import re
import textwrap
import warnings
from decimal import Decimal

_FENCE = "```"
_LANGUAGES = ("", "python", "py", "python3", "python2")


# --- code ------------------------------------------------------------------------------------------------------------


def program(prompt: str, answer: str, name: str | None) -> str:
    """One program made of a prompt that is code ("" when it is not) and an answer; it compiles if anything does.

    An answer either goes on where the prompt stopped, and is cut at its next top-level statement, or it is a whole of
    its own, fenced or bare, and stands behind the prompt, whose imports and helpers it may use. `name` is what the
    tests will ask for; among several fenced blocks the first that defines it is the one.
    """
    answer = answer.replace("\r\n", "\n").replace("\r", "\n")
    if prompt and _first_line(answer)[:1].isspace():
        continued = _continued(prompt, answer)
        if continued is not None:
            return continued
    blocks = fenced_blocks(answer) or [answer, _from_first_definition(answer)]
    wholes = [code for code in map(longest_compiling, blocks) if code.strip()]
    chosen = next((code for code in wholes if name in defined_names(code)), None)
    if chosen is None and prompt:
        bodies = [code for block in blocks for code in _as_bodies(prompt, block)]
        if bodies:
            return max(bodies, key=lambda code: code.count("\n"))
    if chosen is None and not wholes:
        return prompt
    whole = without_demonstration(chosen or wholes[0], name)
    behind = f"{prompt}\n{whole}" if prompt else whole
    return behind if compiles(behind) else whole  # a prompt may be no code, or an answer begin with __future__


def fenced_blocks(answer: str) -> list[str]:
    """The contents of every ``` block in order; one that is never closed goes on to the end.

    What follows the opening fence on its line is a language where it is one, and else the first line of the code. The
    indentation of a fence, in a list say, is taken from its lines where all of them have it.
    """
    blocks: list[tuple[int, list[str]]] = []  # the fence's indentation, the lines
    is_open = False
    for line in answer.split("\n"):
        before, fence, after = line.partition(_FENCE)
        if is_open:
            if before.strip() or not fence:
                blocks[-1][1].append(before)
            if not fence:
                continue
            is_open = False
            if not after.strip("` ") or _language(after) is None:  # text behind a closing fence opens nothing
                continue
        if fence:
            code, closed, _ = _without_language(after.lstrip("`")).partition(_FENCE)
            if closed and before.strip():  # code within a sentence
                continue
            indent = 0 if before.strip() else len(before)
            blocks.append((indent, [" " * indent + code] if code.strip() else []))
            is_open = not closed
    return [_unindented(*block) for block in blocks if any(line.strip() for line in block[1])]


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
    return info if language is None else info.strip()[len(language) :].lstrip()


def _continued(prompt: str, completion: str) -> str | None:
    """prompt + completion up to its first top-level statement, or else up to the last line with which it compiles.

    None when nothing of the completion compiles behind the prompt.
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
    """What `code`, which compiles, binds at its top level by def, class or assignment, in order."""
    names = []
    for node in statements(code):
        if isinstance(node, _DEFINITIONS):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return names


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

_NUMBER = re.compile(  # the sign is one where nothing that could be subtracted from stands before it
    r"((?<![\w)\].])[-−–])?(?:\\?[$€£]\s?(-)?)?((?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)"
)
_RUN_ON = re.compile(r"\n\s*(?:Question|Q|Problem|Human|User|Instruction)\s*\d*\s*:|<\|", re.IGNORECASE)


def strict_number(answer: str) -> Decimal | None:
    """GSM8K's own format: the number behind the first `####`; None without one."""
    after = answer.partition("####")[2]
    match = _NUMBER.match(after.lstrip(" *:"))
    return None if match is None else _value(match)


def flexible_number(answer: str) -> Decimal | None:
    """What strict_number finds, else the last number before the answer runs on into a question of its own."""
    strict = strict_number(answer)
    if strict is not None:
        return strict
    own = _RUN_ON.split(answer, maxsplit=1)[0]
    *_, last = [None, *_NUMBER.finditer(own)]
    return None if last is None else _value(last)


def _value(match: re.Match) -> Decimal:
    sign, sign_behind_currency, digits = match.groups()
    number = Decimal(digits.replace(",", ""))
    return -number if sign or sign_behind_currency else number
