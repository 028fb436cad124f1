"""Turns an item into the token ids that the model is given, and records the hash of the text they came from.

The tokenizer decides everything: its own special tokens for "raw", its own template for "chat". This file does not know
model names and has no template of its own, because a template guessed from a name is wrong sooner or later.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.datasets import Item
from benchmarks.errors import UserError

STYLES = ("raw", "chat")


@dataclass(frozen=True)
class Prompt:
    ids: tuple[int, ...]
    text_sha256: str  # of the rendered text: some templates write today's date, so equal items can differ by day
    style: str


def render(item: Item, tokenizer, style: str, answers: Sequence[str] = ()) -> Prompt:
    """The prompt of turn `len(answers)`; `answers` are the model's own to the turns before it (chat only)."""
    if style not in STYLES:
        raise UserError(f"dataset.prompt_style={style!r}: expected one of {', '.join(STYLES)}.")
    if len(answers) >= len(item.turns):
        raise ValueError(f"{item.id} has {len(item.turns)} turns; there is no turn after {len(answers)} answers")
    if style == "raw":
        if answers:
            raise UserError(f"{item.id}: a second turn needs a chat template. Use dataset.prompt_style=chat.")
        text = item.turns[0]
        ids = tokenizer(text)["input_ids"]
    else:
        text = _chat_text(item, tokenizer, answers)
        # The template has written BOS where the model wants one; adding special tokens again would double it.
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if not ids:
        raise UserError(f"{item.id}: the {style} prompt has no tokens, so there is nothing to continue.")
    return Prompt(tuple(int(i) for i in ids), hashlib.sha256(text.encode()).hexdigest(), style)


def _chat_text(item: Item, tokenizer, answers: Sequence[str]) -> str:
    if not tokenizer.chat_template:
        raise UserError(
            f"dataset.prompt_style=chat needs a chat template, and the tokenizer {type(tokenizer).__name__} has none. "
            "Use prompt_style=raw, or a tokenizer that ships a template."
        )
    messages = []
    for turn, answer in zip(item.turns, answers, strict=False):
        messages += [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
    messages.append({"role": "user", "content": item.turns[len(answers)]})
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
