"""Collects what the report's step viewer shows of a run: every step's tree and accepted path, and the texts.

It copies what was recorded, reads ids with the model's tokenizer and computes no metric. It knows no HTML. What comes
back is plain JSON; `benchmarks/show/templates/viewer.js` reads it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.data.prompts import Prompt, load_run_dataset, n_turns, render_turn
from benchmarks.errors import UserError
from benchmarks.models.load import load_tokenizer, spec_of
from benchmarks.models.token_texts import added_texts, decoded, labels
from benchmarks.record.turn import BASELINE

STEP_COLUMNS = ("tokens", "parents", "sources", "path", "emitted")


@dataclass(frozen=True)
class ViewerLimits:
    """How much of one run is embedded. The bytes are those of its JSON."""

    n_prompts: int
    n_bytes: int


@dataclass(frozen=True)
class ShownRun:
    """A run's part of the page: JSON for the viewer, or None where nothing of it fits, and what should be said."""

    data: dict | None
    n_bytes: int
    notices: list[str]


class Readers:
    """Tokenizers and datasets of the runs of one report, loaded once each; what cannot be had is said once a run."""

    def __init__(self) -> None:
        self._tokenizers: dict[str, Any] = {}

    def tokenizer(self, header: dict) -> Any:
        """The model's tokenizer. Raises UserError where it is not at hand."""
        config = header["config"]["model"]
        key = json.dumps(config, sort_keys=True)
        if key not in self._tokenizers:
            try:
                self._tokenizers[key] = load_tokenizer(spec_of(config))
            except UserError as error:
                self._tokenizers[key] = UserError(f"{error}")
        if isinstance(found := self._tokenizers[key], UserError):
            raise found
        return found

    def prompts(self, header: dict, lines: Sequence[dict], tokenizer: Any) -> dict[str, Prompt]:
        """Text hash -> the prompt it is of, rendered again. Raises UserError where the dataset is not at hand.

        A later turn follows plain decoding's answers of the first repeat, as when it was measured.
        """
        config = header["config"]
        answers = {
            (line["prompt_id"], line["turn"]): line["output_ids"]
            for line in lines
            if line["method"] == BASELINE and line["repeat"] == 0 and line["error"] is None
        }
        rendered = []
        for item in load_run_dataset(config).items:
            before: list[list[int]] = []
            for turn in range(n_turns(item, config)):
                rendered.append(render_turn(item, tokenizer, config, before))
                if (item.id, turn) not in answers:
                    break
                before.append(answers[item.id, turn])
        return {prompt.text_sha256: prompt for prompt in rendered}


def shown_run(header: dict, lines: Sequence[dict], readers: Readers, limits: ViewerLimits) -> ShownRun:
    """The first repeat of the first prompts of a run, as many as the limits allow, whole prompts only."""
    notices = []
    tokenizer, prompts = None, {}
    try:
        tokenizer = readers.tokenizer(header)
        prompts = readers.prompts(header, lines, tokenizer)
    except UserError as error:
        lacking = "texts" if tokenizer is None else "prompts"
        notices.append(f"{header['run_id']}: its {lacking} are not available: {error}")
    turns: dict[tuple[str, int], list[dict]] = {}
    for line in lines:
        if line["repeat"] == 0:
            turns.setdefault((line["prompt_id"], line["turn"]), []).append(line)
    shown, used, n_bytes = [], set(), 0
    for own in list(turns.values())[: limits.n_prompts]:
        own = sorted(own, key=lambda line: list(header["methods"]).index(line["method"]))
        one = _shown_prompt(own, tokenizer, prompts.get(own[0]["prompt_sha256"]))
        size = len(compact_json(one))
        if n_bytes + size > limits.n_bytes:
            break
        shown.append(one)
        n_bytes += size
        used |= _used_ids(own)
    n_lacking = sum(one["text"] is None for one in shown)
    if prompts and n_lacking:
        notices.append(f"{header['run_id']}: {n_lacking} prompts are rendered differently now and left out")
    if len(shown) < min(len(turns), limits.n_prompts):
        notices.append(
            f"{header['run_id']}: the step viewer has room for {len(shown)} of {len(turns)} prompts; "
            "name fewer runs or raise --max-mb"
        )
    if not shown:
        return ShownRun(None, 0, notices)
    vocabulary = {token: f"#{token}" for token in sorted(used)} if tokenizer is None else labels(tokenizer, used)
    data = {"title": run_title(header), "n_prompts": len(turns), "prompts": shown, "vocabulary": vocabulary}
    return ShownRun(data, len(compact_json(data)), notices)


def compact_json(value: Any) -> str:
    """JSON without spaces, in ASCII letters only."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def run_title(header: dict) -> str:
    """What a reader tells runs apart by."""
    config = header["config"]
    temperature = f", temperature {config['temperature']}" if config["temperature"] else ""
    about = f"B = {config['node_budget']}{temperature}, {header['run_id']}"
    return f"{header['model']['name']} on {header['dataset']['name']} ({about})"


def _shown_prompt(lines: Sequence[dict], tokenizer: Any, prompt: Prompt | None) -> dict:
    """One prompt with what every method made of it; equal outputs are stored once."""
    first = lines[0]
    before = prompt.ids if prompt else ()
    outputs: dict[tuple[int, ...], list[str]] = {}
    turns = []
    for line in lines:
        if line["error"] is not None:
            turns.append({"method": line["method"], "error": line["error"]})
            continue
        ids = tuple(line["output_ids"])
        if ids not in outputs:
            outputs[ids] = [f" #{i}" for i in ids] if tokenizer is None else added_texts(tokenizer, ids, before)
        steps = {name: line["steps"][name] for name in STEP_COLUMNS}
        ended = {"stop_reason": line["stop_reason"], "output": list(outputs).index(ids)}
        turns.append({"method": line["method"], "error": None, **ended, "steps": steps})
    return {
        "id": first["prompt_id"],
        "turn": first["turn"],
        "n_tokens": first["n_prompt"],
        "text": decoded(tokenizer, prompt.ids) if prompt else None,
        "outputs": [{"ids": list(ids), "texts": texts} for ids, texts in outputs.items()],
        "turns": turns,
    }


def _used_ids(lines: Sequence[dict]) -> set[int]:
    """Ids that stand in a tree or an output."""
    used: set[int] = set()
    for line in lines:
        if line["error"] is None:
            used.update(line["output_ids"], *line["steps"]["tokens"])
    return used
