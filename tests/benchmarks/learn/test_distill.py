"""Distillation on tiny models: the loss, the recipe, the kept student, and every refusal's sentence."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.errors import UserError
from benchmarks.learn.corpus import (
    PromptText,
    generate,
)
from benchmarks.learn.distill import Recipe, agreement, batch_loss, distil, train
from benchmarks.models import student as student_module
from benchmarks.models.drafts import DEFAULTS, DraftCandidates, DraftChoice
from benchmarks.models.load import LoadedModel, ModelSpec
from benchmarks.models.student import FOLDER, RECORD, WEIGHTS, load_student, make_student, save_student, sha256_of
from benchmarks.models.tiny import TINY_EOS, tiny_tokenizer
from benchmarks.models.tiny import tiny_model as embedded_tiny
from paths import REPO
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
RECIPE = Recipe(layers=(0,), n_tokens=60, n_new=3, generation_batch=3, epochs=1, batch_size=4, peak_lr=3e-3)
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


# Training


def whole_head(model) -> torch.Tensor:
    return torch.arange(model.config.vocab_size)


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
    loss = float(batch_loss(student, samples[:3], whole_head(student)).detach())
    assert loss == pytest.approx(total / n, rel=5e-3)  # half-precision shares do not sum to exactly 1


def test_the_loss_over_a_trimmed_head_is_the_whole_heads_without_the_ids_that_no_target_keeps(target, samples):
    student, few = make_student(target, [1]), torch.tensor([3, 5])
    kept = sorted({3, 5} | {int(i) for sample in samples[:3] for i in sample.top_ids.reshape(-1)})
    assert len(kept) < target.config.vocab_size
    total, n = 0.0, 0
    with torch.no_grad():
        for sample in samples[:3]:
            logits = student(torch.from_numpy(sample.ids)[None]).logits[0, sample.n_prompt - 1 : -1]
            log_q = torch.full_like(logits, -torch.inf)
            log_q[:, kept] = logits[:, kept].log_softmax(-1)
            p, ids = (torch.from_numpy(rows.astype(kind)) for rows, kind in
                      ((sample.top_p, np.float32), (sample.top_ids, np.int64)))  # fmt: skip
            total, n = total - float((p * log_q.gather(1, ids)).sum()), n + sample.n_new
    assert float(batch_loss(student, samples[:3], few).detach()) == pytest.approx(total / n, rel=5e-3)


def test_one_training_step_lowers_the_loss_and_leaves_the_target_alone(target, samples):
    before = {name: p.clone() for name, p in target.named_parameters()}
    student = make_student(target, [0])
    head = whole_head(student)
    first = float(batch_loss(student, samples, head).detach())
    train(student, samples, Recipe(epochs=1, batch_size=len(samples), peak_lr=1e-3), head.numpy(), quiet)
    assert float(batch_loss(student, samples, head).detach()) < first
    assert all(torch.equal(before[name], p) for name, p in target.named_parameters())


def test_every_sample_is_seen_once_an_epoch(target, samples, monkeypatch):
    seen = []

    def counted(student, batch, head_ids):
        seen.extend(id(sample) for sample in batch)
        return batch_loss(student, batch, head_ids)

    monkeypatch.setattr("benchmarks.learn.distill.batch_loss", counted)
    steps = []
    ids = np.arange(target.config.vocab_size)
    train(make_student(target, [0]), samples, Recipe(epochs=3, batch_size=3), ids, lambda *step: steps.append(step))
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
    runs = [distil(target, tiny_tokenizer(), STOP, RECIPE, data_dir, file, said.append) for file in (kept, kept, None)]
    assert f"text of {kept}" in said
    assert runs[0].record == runs[1].record == runs[2].record
    assert runs[0].record["n_tokens"] >= 60
    assert set(runs[0].record["agreement"]) == {"gsm8k", "mbpp", "humaneval"}
    with pytest.raises(UserError, match=r"layers \[0, 2\] are not all of the target's 2"):
        distil(target, tiny_tokenizer(), STOP, Recipe(layers=(0, 2)), data_dir, None, quiet)


def test_make_draft_keeps_a_student_and_its_record(target, data_dir, tmp_path, monkeypatch, capsys):
    loaded = LoadedModel(target, tiny_tokenizer(), "tiny", "random:tiny", "none", "random", "float32", "cpu", "w", "s")
    monkeypatch.setattr("benchmarks.models.load.load_model", lambda *_, **__: loaded)
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path / "cache"))
    settings = ["--layers", "1", "--n-tokens", "20", "--n-new", "2", "--epochs", "1", "--peak-lr", "0.001"]
    monkeypatch.setattr("sys.argv", ["make_draft.py", "--data-dir", str(data_dir), *settings])
    runpy.run_path(str(REPO / "scripts/make_draft.py"), run_name="__main__")
    folder = tmp_path / "cache" / FOLDER
    record = json.loads((folder / RECORD).read_text())
    assert record["recipe"]["layers"] == [1]
    assert record["n_tokens"] >= 20
    assert set(record) >= {"corpus_sha256", "agreement", "wall_s", "date", "n_tokens_by_origin", "weights_bytes"}
    assert f"{folder} (" in capsys.readouterr().out


def test_make_draft_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "benchmarks.models.load.load_model", lambda *_, **__: LoadedModel(*[tiny_model()] * 2, *"abcdefgh")
    )
    monkeypatch.setattr("benchmarks.models.generation.stop_ids", lambda *_: STOP)
    monkeypatch.setattr("sys.argv", ["make_draft.py", "--layers", "0", "--data-dir", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"error: gsm8k: .*--data-dir FOLDER"):
        runpy.run_path(str(REPO / "scripts/make_draft.py"), run_name="__main__")


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

    monkeypatch.setattr(student_module, "save_file", full)
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
        DraftCandidates(ModelSpec("smollm2", "embedded"))


# Names


def test_every_configured_model_has_a_default_draft():
    names = {file.stem for file in (REPO / "conf/model").glob("*.yaml")}
    # The smallest of a family have nobody to draft for them, and what hf loads is not known.
    assert names - {"hf", "llama3_1b", "qwen25coder_0b5", "qwen3_0b6"} == set(DEFAULTS)


def test_settings_that_name_no_draft_are_refused():
    tiny = ModelSpec("tiny", "tiny")
    with pytest.raises(UserError, match=r"no draft is known for model 'mine'; name one by draft.path"):
        DraftCandidates(ModelSpec("mine", "tiny"))
    with pytest.raises(UserError, match="exclude each other"):
        DraftChoice(path="a", hub_id="b")
    with pytest.raises(UserError, match="n_proposed and head_size must be at least 1, got 0"):
        DraftCandidates(tiny, n_proposed=0)
    with pytest.raises(UserError, match="no config"):
        DraftCandidates(tiny, DraftChoice(path=str(Path(__file__).parent)))
