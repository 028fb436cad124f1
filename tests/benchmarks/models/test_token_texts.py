"""Labels and growing texts of token ids: byte-level and sentence-piece-like tokenizers, half characters, odd ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from benchmarks.models.load import ModelSpec, load_tokenizer
from benchmarks.models.tiny import TINY_EOS, tiny_tokenizer
from benchmarks.models.token_texts import added_texts, decoded, labels, visible

TINY = tiny_tokenizer()  # token id = byte value
EURO = list("€".encode())  # E2 82 AC


def pieces_tokenizer() -> PreTrainedTokenizerFast:
    """A vocabulary as Llama 2's: words with a leading bar, single bytes, a decoder that drops the first space."""
    vocab = {"<unk>": 0, "a": 1, "▁the": 2, "the": 3, "▁": 4, "<0xE2>": 5, "<0x82>": 6, "<0xAC>": 7, "<0x0A>": 8}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True))
    core.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>")


def test_labels_show_what_cannot_be_seen():
    shown = labels(TINY, [*b"a \n\t\r\x07<", 0xE2, TINY_EOS, 5000])
    assert [shown[i] for i in b"a \n\t\r<"] == ["a", "␣", "↵", "⇥", "␍", "<"]
    assert shown[7] == "\\u{7}"
    assert shown[0xE2] == "⟨E2⟩"
    assert shown[TINY_EOS] == "<eos>"
    assert shown[5000] == "#5000"  # models may have more rows than the tokenizer has ids


def test_labels_keep_a_leading_space_that_the_decoder_would_drop():
    shown = labels(pieces_tokenizer(), [2, 3, 4, 5, 8])
    assert shown == {2: "␣the", 3: "the", 4: "␣", 5: "⟨E2⟩", 8: "↵"}


def test_visible_leaves_no_character_that_moves_or_hides_others():
    assert visible("x\u202ey\u2028z\u200b\x00é漢") == "x\\u{202e}y\\u{2028}z\\u{200b}\\u{0}é漢"


def test_a_character_appears_with_the_token_that_completes_it():
    assert added_texts(TINY, [*b"a", *EURO, *b"b"]) == ["a", "", "", "€", "b"]
    assert added_texts(TINY, EURO[1:], before=[*b"a", EURO[0]]) == ["", "€"]
    assert added_texts(pieces_tokenizer(), [3, 5, 6, 7, 2]) == ["the", "", "", "€", " the"]
    assert added_texts(pieces_tokenizer(), [2, 2], before=[1]) == [" the", " the"]


def test_bytes_that_make_no_character_show_as_replacements_in_the_end():
    assert added_texts(TINY, EURO[:2]) == ["�", ""] or added_texts(TINY, EURO[:2]) == ["", "�"]
    assert "".join(added_texts(TINY, [0x80, *b"a", 0xE2])) == "�a�"
    assert added_texts(TINY, []) == []


@given(st.lists(st.integers(0, 258), max_size=12), st.lists(st.integers(0, 258), max_size=12))
def test_joined_texts_are_the_text_of_the_whole(before, ids):
    texts = added_texts(TINY, ids, before)
    assert len(texts) == len(ids)
    window = before[-8:]
    whole, given = decoded(TINY, [*window, *ids]), decoded(TINY, window)
    assert whole.endswith("".join(texts))
    if whole.startswith(given):
        assert given + "".join(texts) == whole


@given(st.text(max_size=12))
def test_on_valid_text_every_prefix_is_shown_up_to_its_last_whole_character(text):
    ids = list(text.encode("utf-8", "ignore"))
    texts = added_texts(TINY, ids)
    for end in range(len(ids) + 1):
        assert "".join(texts[:end]) == bytes(ids[:end]).decode("utf-8", "ignore")


@pytest.mark.real_model
def test_the_embedded_models_tokens():
    tokenizer = load_tokenizer(ModelSpec("smollm2", "embedded"))
    text = "def f(x):\n    return '€' + x  # naïve 漢字 👍\n"
    ids = tokenizer(text)["input_ids"]
    assert "".join(added_texts(tokenizer, ids)) == text
    shown = labels(tokenizer, ids)
    assert all(shown.values())
    assert "".join(shown[i] for i in ids).startswith("def␣f(x):↵")
