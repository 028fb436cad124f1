"""Turns an item into the token ids that the model is given, and records the hash of the text they came from.

The tokenizer decides everything: its own special tokens for "raw", its own template for "chat". Where it ships none,
the model's file may hold one (`chat_frame`). This file does not know model names, because a template guessed from a
name is wrong sooner or later.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from benchmarks.data.items import Dataset, Item, load_dataset
from benchmarks.errors import UserError, first_line

STYLES = ("raw", "chat")
RUN_KEYS = ("prompt_style", "max_new_tokens")  # of conf/dataset: the run's, not the loader's
LOADER_KEYS = ("data_dir", "limit", "offset")  # of the run's own settings: the loader's


@dataclass(frozen=True)
class Prompt:
    ids: tuple[int, ...]
    text_sha256: str  # of the rendered text: some templates write today's date, so equal items can differ by day
    style: str


def load_run_dataset(config: Mapping[str, Any], path: str | Path | None = None) -> Dataset:
    """The items that a run of these settings measures; `path` says where its file lies now, if it has moved.

    Raises UserError where they cannot be had, or for a key of `dataset` that the loader does not know.
    """
    keys = {key: value for key, value in config["dataset"].items() if key not in RUN_KEYS}
    keys |= {key: config[key] for key in LOADER_KEYS if key in config}
    if path is not None:
        keys["path"] = path
    try:
        return load_dataset(**keys)
    except TypeError as error:
        raise UserError(f"dataset: {error}") from error


def n_turns(item: Item, config: Mapping[str, Any]) -> int:
    """How many turns of the item a run asks: raw style asks the first alone."""
    return len(item.turns) if config["prompt_style"] == "chat" else 1


def render_turn(item: Item, tokenizer, config: Mapping[str, Any], outputs: Sequence[Sequence[int]]) -> Prompt:
    """The prompt of turn `len(outputs)` of a run of these settings, after the output ids of the turns before it."""
    answers = [tokenizer.decode(ids, skip_special_tokens=True).strip() for ids in outputs]
    return render(item, tokenizer, config["prompt_style"], answers, config["model"].get("chat_frame"))


def render(item: Item, tokenizer, style: str, answers: Sequence[str] = (), chat_frame: str | None = None) -> Prompt:
    """The prompt of turn `len(answers)`; `answers` are the ones given to the turns before it (chat only).

    `chat_frame`: a Jinja chat template for tokenizers that ship none; never used beside a tokenizer's own.
    """
    if style not in STYLES:
        raise UserError(f"dataset.prompt_style={style!r}: expected one of {', '.join(STYLES)}.")
    if len(answers) >= len(item.turns):
        raise ValueError(f"{item.id} has {len(item.turns)} turns; there is no turn after {len(answers)} answers")
    if style == "raw":
        if answers:
            raise UserError(f"{item.id}: a second turn needs a chat template. Use dataset.prompt_style=chat.")
        text = item.turns[0] if item.raw is None else item.raw
        ids = tokenizer(text)["input_ids"]
    else:
        text = _chat_text(item, tokenizer, answers, chat_frame)
        # A tokenizer's template has written BOS where the model wants one; adding special tokens would double it. A
        # frame of ours leaves BOS to the tokenizer, unless it wrote one.
        framed = not tokenizer.chat_template
        has_bos = bool(tokenizer.bos_token) and text.startswith(tokenizer.bos_token)
        ids = tokenizer(text, add_special_tokens=framed and not has_bos)["input_ids"]
    if not ids:
        raise UserError(f"{item.id}: the {style} prompt has no tokens, so there is nothing to continue.")
    return Prompt(tuple(int(i) for i in ids), hashlib.sha256(text.encode()).hexdigest(), style)


def template_source(tokenizer, style: str) -> str | None:
    """Whose chat template `render` uses: "tokenizer" | "model.chat_frame"; None in raw style."""
    if style == "raw":
        return None
    return "tokenizer" if tokenizer.chat_template else "model.chat_frame"


def _chat_text(item: Item, tokenizer, answers: Sequence[str], chat_frame: str | None) -> str:
    if not (tokenizer.chat_template or chat_frame):
        raise UserError(
            f"dataset.prompt_style=chat needs a chat template, and the tokenizer {type(tokenizer).__name__} has none. "
            "Use prompt_style=raw, a tokenizer that ships a template, or write one into model.chat_frame."
        )
    messages = []
    for turn, answer in zip(item.turns, answers, strict=False):
        messages += [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
    messages.append({"role": "user", "content": item.turns[len(answers)]})
    try:
        template = None if tokenizer.chat_template else chat_frame  # None: the tokenizer's own
        return tokenizer.apply_chat_template(
            messages, chat_template=template, add_generation_prompt=True, tokenize=False
        )
    except TemplateError as error:
        raise UserError(f"{item.id}: the chat template does not take this prompt ({first_line(error)}).") from error
