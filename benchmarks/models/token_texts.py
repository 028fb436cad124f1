"""Turns recorded token ids back into text to look at: a label for one id, and what each id of an output adds.

A token may hold half a character, or a space that decoders drop at the beginning of a text; so no id is decoded alone.
This file knows tokenizers and nothing of runs, trees or pages.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from transformers.convert_slow_tokenizer import bytes_to_unicode

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_N_BEFORE = 8  # ids of the text before an output that are decoded with it: more than one character ever has
_SEEN_AS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}
_BYTE_OF = {letter: byte for byte, letter in bytes_to_unicode().items()}  # how byte-level vocabularies spell bytes


def decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    """All of the text, special tokens and odd spaces included."""
    return tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)


def labels(tokenizer: Any, ids: Iterable[int]) -> dict[int, str]:
    """Id -> its text in the middle of a text, with spaces and control characters made visible.

    Part of a character is shown as its bytes in hexadecimal, an id without any text as its number.
    """
    anchor = tokenizer("a", add_special_tokens=False)["input_ids"]  # after it no decoder drops a leading space
    start = len(decoded(tokenizer, anchor))
    found = {}
    for token in sorted(set(ids)):
        text = decoded(tokenizer, [*anchor, token])[start:]
        found[token] = visible(text) if text and REPLACEMENT not in text else _without_text(tokenizer, token)
    return found


def visible(text: str) -> str:
    """The text on one line: every space, line break and unprintable character as a sign of its own."""
    return "".join(_SEEN_AS.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in text)


def _without_text(tokenizer: Any, token: int) -> str:
    piece = tokenizer.convert_ids_to_tokens(token)  # None where the model has more rows than the tokenizer has ids
    if not piece:
        return f"#{token}"
    if fallback := re.fullmatch(r"<0x([0-9A-F]{2})>", piece):
        return f"⟨{fallback[1]}⟩"
    spelt = [_BYTE_OF.get(letter) for letter in piece]
    return visible(piece) if None in spelt else f"⟨{bytes(spelt).hex(' ').upper()}⟩"


def added_texts(tokenizer: Any, ids: Sequence[int], before: Sequence[int] = ()) -> list[str]:
    """What each of `ids` adds to the text after `before`; joined they are the text of the whole.

    A token that ends inside a character adds nothing yet; the one that completes the character adds it.
    """
    window = [*before[-_N_BEFORE:], *ids]
    first = len(window) - len(ids)
    whole = decoded(tokenizer, window)
    shown = _agreed(decoded(tokenizer, window[:first]), whole, 0)
    texts = []
    for end in range(first + 1, len(window) + 1):
        so_far = _agreed(decoded(tokenizer, window[:end]), whole, shown)
        texts.append(whole[shown:so_far])
        shown = so_far
    return texts


def _agreed(text: str, whole: str, start: int) -> int:
    """Where `text` and `whole`, equal up to `start`, part: a last half character is not yet what it will be."""
    end = start
    while end < min(len(text), len(whole)) and text[end] == whole[end]:
        end += 1
    return end
