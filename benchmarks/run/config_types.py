"""Whether the values of a method's config are of the kinds its classes declare; a wrong one is named before any work.

A config is a dictionary with the dotted name of a class under `_target_` and its arguments besides; arguments may be
configs again. Python itself takes `bigram: "no"` for true and 2.5 for a count until something slices by it. Knows kinds
alone: which numbers make sense is the classes' own business.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import isclass, signature
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

TARGET = "_target_"
NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text", NoneType: "null"}


def first_type_error(config: Mapping[str, Any], path: str = "") -> str | None:
    """What is wrong with the first setting of the wrong kind, in a sentence; None when there is none."""
    for key, value in config.items():
        hint = _hints(config.get(TARGET)).get(key, Any)
        if not _fits(value, hint):
            return f"{path}{key} must be {' or '.join(dict.fromkeys(_names(hint)))}, got {value!r}"
        if isinstance(value, Mapping) and (found := first_type_error(value, f"{path}{key}.")):
            return found
    return None


def _hints(target: Any) -> dict[str, Any]:
    """Argument -> its declared kind; nothing for what cannot be imported, which instantiating it says better."""
    try:
        module, _, name = target.rpartition(".")
        return {p.name: p.annotation for p in signature(getattr(import_module(module), name)).parameters.values()}
    except (AttributeError, ImportError, TypeError, ValueError):
        return {}


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin in (bool, str, NoneType):
        return isinstance(value, origin)
    if origin in (int, float):
        return isinstance(value, int if origin is int else int | float) and not isinstance(value, bool)
    if origin is Sequence:
        return isinstance(value, list) and all(_fits(one, inner[0]) for one in value)
    if origin in (Mapping, dict):
        pairs = value.items() if isinstance(value, Mapping) and TARGET not in value else [(None, None)]
        return all(_fits(key, inner[0]) and _fits(one, inner[1]) for key, one in pairs)
    if hint is Any or not isclass(origin):
        return True
    return isinstance(value, Mapping) and TARGET in value  # a class of ours, a protocol or a function


def _names(hint: Any) -> list[str]:
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return [name for one in inner for name in _names(one)]
    if origin is Sequence:
        return [f"a list (of: {', '.join(_names(inner[0]))})"]
    if origin in (Mapping, dict):
        return [f"a mapping ({_names(inner[0])[0]}: {_names(inner[1])[0]})"]
    return [NAMES.get(origin, f"a config with {TARGET}")]
