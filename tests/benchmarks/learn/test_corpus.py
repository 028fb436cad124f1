"""The text a student learns from: whose words they are, which prompts may be in it, and where the files come from."""

import json

import numpy as np
import pytest
import torch

from benchmarks.data.items import Dataset, Item
from benchmarks.errors import UserError
from benchmarks.learn import corpus as corpus_module
from benchmarks.learn.corpus import (
    TOP,
    Corpus,
    PromptText,
    generate,
    held_out_prompts,
    ids_by_frequency,
    prompt_ids,
    training_prompts,
)
from benchmarks.models.tiny import TINY_EOS, tiny_tokenizer
from benchmarks.models.tiny import tiny_model as embedded_tiny

TEXTS = [
    "def add(a, b):",
    "x = 1",
    "for i in range(10):\n    print(",
    "Hello",
    "while True:",
    "# sum\n",
    "a",
    "import os",
]
STOP = frozenset({TINY_EOS})


def quiet(*_) -> None:
    pass


@pytest.fixture(scope="module")
def target():
    return embedded_tiny()


@pytest.fixture(scope="module")
def samples(target):
    prompts = [PromptText("mbpp" if i % 2 else "gsm8k", text) for i, text in enumerate(TEXTS)]
    rng = np.random.default_rng(0)
    return generate(target, tiny_tokenizer(), prompts, STOP, n_new=12, batch_size=3, rng=rng, on_batch=quiet)


@pytest.fixture
def data_dir(tmp_path):
    """Upstream's two files, as small as they may be."""
    questions = [{"question": f"How many are {i} and {i}?", "answer": "#### 4"} for i in range(1030)]
    tasks = [
        {"task_id": i, "text": f"Write a function number {i}.", "code": f"import re\r\ndef f{i}(a, b):\r\n  return a"}
        for i in range(1, 560)
    ]
    for name, rows in (("gsm8k/test.jsonl", questions), ("mbpp/mbpp.jsonl", tasks)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_batched_continuations_are_the_targets_own_greedy_ones_with_its_top_rows(target, samples):
    assert len(samples) == len(TEXTS)
    for sample in samples:
        assert sample.top_ids.shape == sample.top_p.shape == (sample.n_new, TOP)
        with torch.no_grad():
            logits = target(torch.from_numpy(sample.ids)[None]).logits[0, sample.n_prompt - 1 : -1]
        new = sample.ids[sample.n_prompt :]
        assert logits.argmax(-1).tolist() == new.tolist() == sample.top_ids[:, 0].tolist()
        expected = logits.gather(1, torch.from_numpy(sample.top_ids.astype(np.int64))).softmax(-1).numpy()
        assert np.abs(expected - sample.top_p).max() < 2e-3


def test_a_continuation_ends_with_the_first_stop_id(target, samples):
    stop = int(samples[0].ids[samples[0].n_prompt + 3])
    prompts = [PromptText("chat", text) for text in TEXTS]
    cut = generate(
        target, tiny_tokenizer(), prompts, frozenset({stop}), n_new=12, batch_size=8, rng=np.random.default_rng(0),
        on_batch=quiet,
    )  # fmt: skip
    assert any(sample.n_new < 12 for sample in cut)
    for sample in cut:
        new = sample.ids[sample.n_prompt :].tolist()
        assert stop not in new[:-1]
        assert new[-1] == stop or len(new) == 12


def test_generation_stops_when_it_has_the_tokens_asked_for(target):
    prompts = [PromptText("chat", text) for text in TEXTS]
    made = generate(
        target, tiny_tokenizer(), prompts, STOP, n_tokens=30, n_new=12, batch_size=2, rng=np.random.default_rng(0),
        on_batch=quiet,
    )  # fmt: skip
    assert 30 <= sum(sample.n_new for sample in made) <= 30 + 24


def test_no_measured_item_is_learnt_from(data_dir):
    texts = "\n".join(prompt.text for prompt in training_prompts(data_dir))
    learnt = {i for i in range(1030) if f"How many are {i} and" in texts}
    assert learnt == set(range(1000, 1010))  # after the measured ones, before the held-out ones
    assert {i for i in range(1, 560) if f"number {i}." in texts} == {*range(1, 11), *range(511, 540)}
    assert 'def f511(a, b):\n    """Write a function number 511.\n    """\n' in texts


def test_the_held_out_prompts_are_in_no_training_prompt(data_dir):
    learnt = {prompt.text for prompt in training_prompts(data_dir)}
    held_out = held_out_prompts(data_dir)
    assert [prompt.origin for prompt in held_out] == ["gsm8k"] * 20 + ["mbpp"] * 20 + ["humaneval"] * 20
    assert not learnt & {prompt.text for prompt in held_out}


def test_chat_prompts_go_through_the_template():
    tokenizer = tiny_tokenizer()
    ids = prompt_ids(PromptText("chat", "Hi", is_chat=True), tokenizer)
    assert tokenizer.decode(ids) == "<bos>user: Hi\nassistant: "
    assert prompt_ids(PromptText("mbpp", "Hi"), tokenizer) == [72, 105]


def test_missing_files_name_both_ways(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"gsm8k: .*test.jsonl.* --data-dir FOLDER .*openai/gsm8k.*hub"):
        training_prompts(tmp_path)

    def offline(*_, **__):
        raise UserError("there is no hub.")

    monkeypatch.setattr(corpus_module, "load_dataset", offline)
    with pytest.raises(UserError, match=r"gsm8k: there is no hub. .* --data-dir FOLDER .*openai/gsm8k.*hub"):
        training_prompts(None)


def test_the_hubs_splits_are_read_when_no_folder_is_given(monkeypatch):
    asked = []

    def load(name, *, hub_split, **_):
        asked.append((name, hub_split))
        first = {"test": 0, "prompt": 1, "validation": 511, "train": 601}[hub_split]
        numbers = range(first, first + (1030 if name == "gsm8k" else 10))
        rows = [{"question": f"q{i}", "task_id": i, "text": f"t{i}", "code": ""} for i in numbers]
        return Dataset(name, tuple(Item(str(i), ("?",), row) for i, row in enumerate(rows)), "hub", "", None)

    monkeypatch.setattr(corpus_module, "load_dataset", load)
    assert {prompt.origin for prompt in training_prompts(None)} == {"gsm8k", "mbpp", "chat"}
    assert asked == [("gsm8k", "test"), ("mbpp", "prompt"), ("mbpp", "validation"), ("mbpp", "train")]


def test_a_kept_corpus_comes_back(samples, tmp_path):
    file = tmp_path / "corpus.npz"
    Corpus(samples[:5], samples[5:]).save(file)
    back = Corpus.load(file)
    assert [len(back.train), len(back.held_out)] == [5, 3]
    for one, other in zip(samples, [*back.train, *back.held_out], strict=True):
        assert (one.origin, one.n_prompt) == (other.origin, other.n_prompt)
        for column in ("ids", "top_ids", "top_p"):
            assert np.array_equal(getattr(one, column), getattr(other, column))


def test_ids_by_frequency(samples):
    ranked = ids_by_frequency(samples, 259)
    counts = np.bincount(np.concatenate([sample.ids for sample in samples]), minlength=259)
    assert sorted(ranked.tolist()) == list(range(259))
    assert (np.diff(counts[ranked]) <= 0).all()
    unseen = ranked[counts[ranked] == 0]
    assert (np.diff(unseen) > 0).all()
