"""Code to complete from Python's own standard library: functions and class skeletons that end after a docstring.

Like HumanEval's and ClassEval's prompts in form, in none of the sets, and on every machine. Knows no models.
"""

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

FUNCTION_CHARS = 150, 1200
CLASS_CHARS = 400, 3000
FEWEST_METHODS = 3


def stdlib_functions() -> Iterator[str]:
    """Signature and docstring of documented functions of like length, sorted by module."""
    for lines, module in _modules():
        for node in module.body:
            text = _head(lines, node) if isinstance(node, ast.FunctionDef) else None
            if text and FUNCTION_CHARS[0] <= len(text) <= FUNCTION_CHARS[1]:
                yield text


def stdlib_classes() -> Iterator[str]:
    """Classes of like length with documented methods, those without their bodies and decorators."""
    for lines, module in _modules():
        for node in module.body:
            top = _head(lines, node) if isinstance(node, ast.ClassDef) else None
            if not top:
                continue
            methods = [_head(lines, child) for child in node.body if isinstance(child, ast.FunctionDef)]
            text = "\n".join([top, *filter(None, methods)])
            if len(methods) - methods.count(None) >= FEWEST_METHODS and CLASS_CHARS[0] <= len(text) <= CLASS_CHARS[1]:
                yield text + "\n"


def _modules() -> Iterator[tuple[list[str], ast.Module]]:
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        source = file.read_text(encoding="utf-8")
        yield source.split("\n"), ast.parse(source)


def _head(lines: list[str], node: ast.FunctionDef | ast.ClassDef) -> str | None:
    """The lines from `def` or `class` to the docstring's end; None without a docstring."""
    if ast.get_docstring(node) is None:
        return None
    return "\n".join(lines[node.lineno - 1 : node.body[0].end_lineno]) + "\n"
