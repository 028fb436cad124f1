"""Code to complete from Python's own standard library: functions and class skeletons that end after a docstring.

Like HumanEval's and ClassEval's prompts in form, in none of the sets, and on every machine. Knows no models.
"""

import ast
import sysconfig
from dataclasses import dataclass
from pathlib import Path

FUNCTION_CHARS = 150, 1200
CLASS_CHARS = 400, 3000
FEWEST_METHODS = 3


@dataclass(frozen=True)
class StdlibCode:
    """Name ("module.function") -> text, sorted by module."""

    functions: dict[str, str]  # signature and docstring of documented functions of like length
    classes: dict[str, str]  # of like length with documented methods, those without their bodies and decorators


def stdlib_code() -> StdlibCode:
    functions: dict[str, str] = {}
    classes: dict[str, str] = {}
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        source = file.read_text(encoding="utf-8")
        lines = source.split("\n")
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef):
                text = _head(lines, node)
                if text and FUNCTION_CHARS[0] <= len(text) <= FUNCTION_CHARS[1]:
                    functions[f"{file.stem}.{node.name}"] = text
            elif isinstance(node, ast.ClassDef) and (text := _skeleton(lines, node)):
                classes[f"{file.stem}.{node.name}"] = text
    return StdlibCode(functions, classes)


def _skeleton(lines: list[str], node: ast.ClassDef) -> str | None:
    """The class with its documented methods' heads; None where that is too short, too long or too little."""
    top = _head(lines, node)
    if not top:
        return None
    methods = [_head(lines, child) for child in node.body if isinstance(child, ast.FunctionDef)]
    documented = [text for text in methods if text]
    text = "\n".join([top, *documented])
    fits = len(documented) >= FEWEST_METHODS and CLASS_CHARS[0] <= len(text) <= CLASS_CHARS[1]
    return text + "\n" if fits else None


def _head(lines: list[str], node: ast.FunctionDef | ast.ClassDef) -> str | None:
    """The lines from `def` or `class` to the docstring's end; None without a docstring."""
    if ast.get_docstring(node) is None:
        return None
    return "\n".join(lines[node.lineno - 1 : node.body[0].end_lineno]) + "\n"
