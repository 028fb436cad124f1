"""Prompts: one BOS whatever the tokenizer, its own template, and a hash of what was rendered (34)."""

import hashlib

import pytest
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from benchmarks.data.items import Item
from benchmarks.data.prompts import Prompt, render, template_source
from benchmarks.errors import UserError
from paths import REPO

ITEM = Item("Tiny/0", ("def f():\n    é 1\n",), {})
TALK = Item("talk/1", ("first?", "second?"), {})
TEMPLATE = (
    "{{ bos_token or '' }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def byte_tokenizer(bos: bool, template: str | None = None) -> PreTrainedTokenizerFast:
    """One token a byte; with `bos`, a post-processor that puts <s> first, as Llama's does."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<s>": 0, "</s>": 1} | {char: i for i, char in enumerate(alphabet, start=2)}
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    if bos:
        inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    names = {"bos_token": "<s>"} if bos else {}
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", **names)
    made.chat_template = template
    return made


@pytest.mark.parametrize("bos", [True, False])
def test_raw_is_the_text_unchanged_with_the_tokenizers_own_bos(bos):
    tokenizer = byte_tokenizer(bos)
    prompt = render(ITEM, tokenizer, "raw")
    assert prompt.ids.count(0) == int(bos)
    assert len(prompt.ids) == len(ITEM.turns[0].encode()) + int(bos)
    assert tokenizer.decode(prompt.ids[int(bos) :]) == ITEM.turns[0]
    assert prompt == Prompt(prompt.ids, hashlib.sha256(ITEM.turns[0].encode()).hexdigest(), "raw")
    assert all(type(i) is int for i in prompt.ids)


@pytest.mark.parametrize("bos", [True, False])
def test_chat_is_the_tokenizers_template_with_never_two_bos(bos):
    tokenizer = byte_tokenizer(bos, TEMPLATE)
    prompt = render(ITEM, tokenizer, "chat")
    text = ("<s>" if bos else "") + f"[user]{ITEM.turns[0]}[assistant]"
    assert tokenizer.decode(prompt.ids) == text
    assert prompt.ids.count(0) == int(bos)
    assert prompt.text_sha256 == hashlib.sha256(text.encode()).hexdigest()
    messages = [{"role": "user", "content": ITEM.turns[0]}]
    assert list(prompt.ids) == tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]


def test_second_turn_carries_the_answer_to_the_first():
    tokenizer = byte_tokenizer(True, TEMPLATE)
    first, second = render(TALK, tokenizer, "chat"), render(TALK, tokenizer, "chat", ["one."])
    assert tokenizer.decode(first.ids) == "<s>[user]first?[assistant]"
    assert tokenizer.decode(second.ids) == "<s>[user]first?[assistant]one.[user]second?[assistant]"
    assert first.text_sha256 != second.text_sha256
    with pytest.raises(ValueError, match="no turn after 2 answers"):
        render(TALK, tokenizer, "chat", ["one.", "two."])
    with pytest.raises(UserError, match="prompt_style=chat"):
        render(TALK, tokenizer, "raw", ["one."])


def test_a_template_is_not_guessed_from_a_name():
    tokenizer = byte_tokenizer(True)
    tokenizer.name_or_path = "some/vicuna-llama-3-chat"
    with pytest.raises(UserError, match="prompt_style=raw"):
        render(ITEM, tokenizer, "chat")


def test_unknown_style_and_empty_prompt_are_errors():
    with pytest.raises(UserError, match="expected one of raw, chat"):
        render(ITEM, byte_tokenizer(True, TEMPLATE), "Raw")
    with pytest.raises(UserError, match="no tokens"):
        render(Item("empty", ("",), {}), byte_tokenizer(False), "raw")


def test_raw_takes_the_sets_own_prompt_where_it_has_one():
    item = Item("gsm8k/test/0", ("2 + 2?",), {}, raw="Question: 2 + 2?\n")
    tokenizer = byte_tokenizer(False, TEMPLATE)
    assert tokenizer.decode(render(item, tokenizer, "raw").ids) == "Question: 2 + 2?\n"
    assert tokenizer.decode(render(item, tokenizer, "chat").ids) == "[user]2 + 2?[assistant]"


# A frame from the model's file

VICUNA = yaml.safe_load((REPO / "conf" / "model" / "vicuna7b.yaml").read_text())["chat_frame"]
SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the user's questions."
)


def test_vicunas_frame_is_fastchats_v1_1_with_one_bos():
    tokenizer = byte_tokenizer(True)
    first = render(TALK, tokenizer, "chat", chat_frame=VICUNA)
    second = render(TALK, tokenizer, "chat", ["one."], chat_frame=VICUNA)
    text = f"{SYSTEM} USER: first? ASSISTANT:"
    assert tokenizer.decode(first.ids) == f"<s>{text}"
    assert tokenizer.decode(second.ids) == f"<s>{text} one.</s>USER: second? ASSISTANT:"
    assert [first.ids.count(0), second.ids.count(0), second.ids.count(1)] == [1, 1, 1]
    assert first.text_sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert render(TALK, byte_tokenizer(False), "chat", chat_frame=VICUNA).ids == first.ids[1:]


def test_a_frame_that_writes_bos_itself_does_not_double_it():
    tokenizer = byte_tokenizer(True)
    prompt = render(ITEM, tokenizer, "chat", chat_frame="{{ bos_token }}{{ messages[0].content }}")
    assert tokenizer.decode(prompt.ids) == f"<s>{ITEM.turns[0]}"


def test_a_frame_is_never_used_beside_the_tokenizers_own_template():
    tokenizer = byte_tokenizer(True, TEMPLATE)
    assert render(TALK, tokenizer, "chat", chat_frame=VICUNA) == render(TALK, tokenizer, "chat")
    assert render(ITEM, tokenizer, "raw", chat_frame=VICUNA) == render(ITEM, tokenizer, "raw")
    sources = [template_source(t, style) for t in (tokenizer, byte_tokenizer(True)) for style in ("chat", "raw")]
    assert sources == ["tokenizer", None, "model.chat_frame", None]


def test_a_template_that_refuses_the_prompt_is_named():
    tokenizer = byte_tokenizer(True, "{{ raise_exception('roles must alternate') }}")
    with pytest.raises(
        UserError, match=r"Tiny/0: the chat template does not take this prompt \(roles must alternate\)"
    ):
        render(ITEM, tokenizer, "chat")
    with pytest.raises(UserError, match="the chat template does not take this prompt"):
        render(ITEM, byte_tokenizer(True), "chat", chat_frame="{% for %}")
