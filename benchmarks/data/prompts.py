"""Turns an item into the token ids that the model is given, and records the hash of the text they came from.

The tokenizer decides everything: its own special tokens for "raw", its own template for "chat". Where it ships none,
the model's file may hold one (`chat_frame`). This file does not know model names, because a template guessed from a
name is wrong sooner or later.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import TemplateError

from benchmarks.data.items import Item
from benchmarks.errors import UserError, first_line

STYLES = ("raw", "chat")


@dataclass(frozen=True)
class Prompt:
    ids: tuple[int, ...]
    text_sha256: str  # of the rendered text: some templates write today's date, so equal items can differ by day
    style: str


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
