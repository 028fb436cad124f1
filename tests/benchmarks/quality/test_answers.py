"""A recorded answer as text, and which methods gave the same ones."""

from benchmarks.models.tiny import tiny_tokenizer
from benchmarks.quality.answers import answer_text, same_answers

STOP = 255  # the tiny tokenizer's ids are bytes; this one is in no text


def test_an_answer_is_decoded_as_it_follows_other_text():
    class Dropping:
        """As SentencePiece: a blank that begins the text is dropped."""

        def __call__(self, text, add_special_tokens):
            assert not add_special_tokens
            return {"input_ids": [ord(char) for char in text]}

        def decode(self, ids, skip_special_tokens, clean_up_tokenization_spaces):
            assert skip_special_tokens
            assert not clean_up_tokenization_spaces
            return "".join(map(chr, ids)).removeprefix(" ")

    text = "    return x"
    assert answer_text(Dropping(), [*map(ord, text)], ()) == text
    assert answer_text(tiny_tokenizer(), [*text.encode(), STOP], {STOP}) == text
    assert answer_text(tiny_tokenizer(), [*text.encode()], {STOP}) == text  # ended by the limit
    assert answer_text(tiny_tokenizer(), [], {STOP}) == ""
    assert answer_text(tiny_tokenizer(), [STOP], {STOP}) == ""


def test_methods_with_the_same_outputs():
    a, b = {("x", 0): ((1, 2),)}, {("x", 0): ((1, 3),)}
    assert same_answers({"ar": a, "p": b, "q": dict(a), "r": dict(b), "s": {}, "t": {}}) == {
        "ar": None, "p": None, "q": "ar", "r": "p", "s": None, "t": None,
    }  # fmt: skip
