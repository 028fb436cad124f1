"""Distillation on tiny models: data, one training step, the kept student, and every refusal's sentence."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import corpus as corpus_module
from benchmarks import draft as draft_module
from benchmarks.corpus import (
    TOP,
    Corpus,
    PromptText,
    generate,
    held_out_prompts,
    ids_by_frequency,
    prompt_ids,
    training_prompts,
)
from benchmarks.datasets import Dataset, Item
from benchmarks.distill import Recipe, agreement, batch_loss, distil, make_student, sha256_of, train
from benchmarks.draft import DEFAULTS, RECORD, WEIGHTS, DraftChoice, DraftFiller, load_student, save_student
from benchmarks.embedded import TINY_EOS, tiny_tokenizer
from benchmarks.embedded import tiny_model as embedded_tiny
from benchmarks.errors import UserError
from benchmarks.models import ModelSpec
from toy import tiny_model

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
RECIPE = Recipe(layers=(0,), n_tokens=60, n_new=12, generation_batch=3, epochs=30, batch_size=4, peak_lr=3e-3)
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


# Text


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
    assert learnt == set(range(1000, 1010))  # behind the measured ones, before the held-out ones
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


# Training


def test_the_loss_is_the_cross_entropy_of_every_continuation_token(target, samples):
    student = make_student(target, [1])
    total, n = 0.0, 0
    with torch.no_grad():
        for sample in samples[:3]:
            log_q = student(torch.from_numpy(sample.ids)[None]).logits[0].log_softmax(-1)
            for i in range(sample.n_new):
                row = log_q[sample.n_prompt - 1 + i]
                p = torch.from_numpy(sample.top_p[i].astype(np.float32))
                total -= float((p * row[torch.from_numpy(sample.top_ids[i].astype(np.int64))]).sum())
                n += 1
    loss = float(batch_loss(student, samples[:3]).detach())
    assert loss == pytest.approx(total / n, rel=5e-3)  # half-precision shares do not sum to exactly 1


def test_one_training_step_lowers_the_loss_and_leaves_the_target_alone(target, samples):
    before = {name: p.clone() for name, p in target.named_parameters()}
    student = make_student(target, [0])
    first = float(batch_loss(student, samples).detach())
    train(student, samples, Recipe(epochs=1, batch_size=len(samples), peak_lr=1e-3), quiet)
    assert float(batch_loss(student, samples).detach()) < first
    assert all(torch.equal(before[name], p) for name, p in target.named_parameters())


def test_every_sample_is_seen_once_an_epoch(target, samples, monkeypatch):
    seen = []

    def counted(student, batch):
        seen.extend(id(sample) for sample in batch)
        return batch_loss(student, batch)

    monkeypatch.setattr("benchmarks.distill.batch_loss", counted)
    steps = []
    train(make_student(target, [0]), samples, Recipe(epochs=3, batch_size=3), lambda *step: steps.append(step))
    assert sorted(seen) == sorted([id(sample) for sample in samples] * 3)
    assert [step for step, _, _ in steps] == list(range(1, len(steps) + 1))


def test_agreement_counts_what_the_student_would_have_said(target, samples):
    same = agreement(target, samples)
    assert {name: row["top1"] for name, row in same.items()} == {"gsm8k": 1.0, "mbpp": 1.0}
    assert sum(row["n_tokens"] for row in same.values()) == sum(sample.n_new for sample in samples)
    other = agreement(make_student(target, [0]), samples, np.array([], dtype=np.int64))
    assert all(row["top1"] <= row["top5"] < 1 and 0 <= row["in_head"] < 1 for row in other.values())
    everything = agreement(target, samples, np.arange(259))
    assert all(row["in_head"] == 1 for row in everything.values())


def test_the_whole_recipe_is_deterministic_and_reuses_the_kept_text(target, data_dir, tmp_path):
    kept = tmp_path / "corpus.npz"
    said: list[str] = []
    recipe = Recipe(**{**vars(RECIPE), "n_new": 3, "epochs": 1})
    runs = [distil(target, tiny_tokenizer(), STOP, recipe, data_dir, file, said.append) for file in (kept, kept, None)]
    assert f"text of {kept}" in said
    assert runs[0].record == runs[1].record == runs[2].record
    assert runs[0].record["n_tokens"] >= 60
    assert set(runs[0].record["agreement"]) == {"gsm8k", "mbpp", "humaneval"}
    with pytest.raises(UserError, match=r"layers \[0, 2\] are not all of the target's 2"):
        distil(target, tiny_tokenizer(), STOP, Recipe(layers=(0, 2)), data_dir, None, quiet)


# The kept student


@pytest.fixture
def kept(tmp_path):
    """A target's folder and a student of it, kept."""
    target = tiny_model(tie_word_embeddings=True)
    target.save_pretrained(tmp_path / "target")
    student = make_student(target, [1])
    record = {"target": {"embeddings_sha256": sha256_of(target.get_input_embeddings().weight)}}
    folder = save_student(student, np.arange(64)[::-1], record, tmp_path / "student")
    return target, student, folder, ModelSpec("copy", "embedded", path=str(tmp_path / "target"))


def test_a_kept_student_comes_back_without_having_kept_the_shared_ends(kept):
    _, student, folder, spec = kept
    back = load_student(folder, spec, "cpu", "float32")
    assert back.by_frequency.tolist() == list(range(64))[::-1]
    ids = torch.arange(20)[None]
    with torch.no_grad():
        assert (back.model(ids).logits - student(ids).logits).abs().max() < 0.05  # kept in half precision
        assert back.model(ids).logits.argmax(-1).tolist() == student(ids).logits.argmax(-1).tolist()
    n_own = sum(p.numel() for p in student.parameters() if p.requires_grad)
    assert (folder / WEIGHTS).stat().st_size < 2 * n_own + 64 * 4 + 2000
    assert json.loads((folder / RECORD).read_text())["weights_bytes"] == (folder / WEIGHTS).stat().st_size
    assert sorted(file.name for file in folder.parent.iterdir()) == ["student", "target"]  # nothing left over


def test_a_student_replaces_an_older_one_whole(kept):
    _, student, folder, spec = kept
    record = json.loads((folder / RECORD).read_text())
    save_student(student, np.arange(64), record, folder)
    assert load_student(folder, spec, "cpu", "float32").by_frequency.tolist() == list(range(64))


def test_a_failed_save_leaves_the_older_student(kept, monkeypatch):
    _, student, folder, spec = kept

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr(draft_module, "save_file", full)
    with pytest.raises(OSError, match="disk full"):
        save_student(student, np.arange(64), {}, folder)
    assert load_student(folder, spec, "cpu", "float32").by_frequency[0] == 63


def test_a_student_of_other_weights_is_refused(kept, tmp_path):
    other = tiny_model(tie_word_embeddings=True)
    with torch.no_grad():
        other.get_input_embeddings().weight.add_(1)
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(UserError, match=r"distilled from other weights than copy's; run `make draft`"):
        load_student(kept[2], ModelSpec("copy", "embedded", path=str(tmp_path / "other")), "cpu", "float32")


def test_a_damaged_student_is_refused(kept):
    (kept[2] / WEIGHTS).write_bytes(b"not tensors")
    with pytest.raises(UserError, match=r"could not be read .*; run `make draft`"):
        load_student(kept[2], kept[3], "cpu", "float32")


def test_an_absent_student_says_make_draft(tmp_path, monkeypatch):
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"draft model of smollm2 is not there .*run `make draft`"):
        DraftFiller(ModelSpec("smollm2", "embedded"))


# Names


def test_every_configured_model_has_a_default_draft():
    names = {file.stem for file in (Path(__file__).parents[1] / "conf/model").glob("*.yaml")}
    assert names == set(DEFAULTS)


def test_settings_that_name_no_draft_are_refused():
    tiny = ModelSpec("tiny", "tiny")
    with pytest.raises(UserError, match=r"no draft is known for model 'mine'; name one by draft.path"):
        DraftFiller(ModelSpec("mine", "tiny"))
    with pytest.raises(UserError, match="exclude each other"):
        DraftChoice(path="a", hub_id="b")
    with pytest.raises(UserError, match="n_proposed and head_size must be at least 1, got 0"):
        DraftFiller(tiny, n_proposed=0)
    with pytest.raises(UserError, match="no config"):
        DraftFiller(tiny, DraftChoice(path=str(Path(__file__).parent)))
