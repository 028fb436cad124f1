"""Distils a small student of a target model: some of the target's own layers, taught the target's own predictions.

The student stands between the target's embeddings and head, which stay as they are. This file does not know where the
text comes from (corpus.py), how a student is built and kept (benchmarks/models/student.py) or how a draft tree grows.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.errors import UserError
from benchmarks.learn.corpus import Corpus, Sample, ids_by_frequency, make_corpus, samples_sha256
from benchmarks.models.student import make_student, sha256_of
from goose.engine.verify import top_k_rows

HEAD_SIZE = 12288  # of the trimmed head that is trained, and whose coverage the record reports


@dataclass(frozen=True)
class Recipe:
    """All that a student depends on besides its target and the prompts' files."""

    layers: tuple[int, ...] = (0, 1, 28, 29)  # of the target, where the student's start
    n_tokens: int = 140_000  # of the target's own text
    n_new: int = 128  # most tokens of one continuation
    generation_batch: int = 96
    epochs: int = 4
    batch_size: int = 8
    peak_lr: float = 1e-3
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Distilled:
    student: Any
    by_frequency: np.ndarray  # int64[V]: ids, the one the target says most often first
    record: dict  # recipe, counts, hashes, agreement


def distil(
    target, tokenizer, stop: frozenset[int], recipe: Recipe, data_dir: Path | None, corpus_file: Path | None,
    say: Callable[[str], None],
) -> Distilled:  # fmt: skip
    """The whole recipe. `corpus_file`: text generated before, or where to keep it."""
    if not all(0 <= i < target.config.num_hidden_layers for i in recipe.layers):
        raise UserError(f"layers {list(recipe.layers)} are not all of the target's {target.config.num_hidden_layers}")
    corpus = _corpus(target, tokenizer, stop, recipe, data_dir, corpus_file, say)
    student = make_student(target, recipe.layers)

    def on_step(step: int, n_steps: int, loss: float) -> None:
        if step % 20 == 0 or step == n_steps:
            say(f"training: step {step} of about {n_steps}, loss {loss:.3f}")

    by_frequency = ids_by_frequency(corpus.train, target.config.vocab_size)
    train(student, corpus.train, recipe, by_frequency, on_step)
    counts = Counter()
    for sample in corpus.train:
        counts[sample.origin] += sample.n_new
    record = {
        "recipe": asdict(recipe),
        "target": {"embeddings_sha256": sha256_of(target.get_input_embeddings().weight)},
        "n_prompts": len(corpus.train),
        "n_tokens": sum(counts.values()),
        "n_tokens_by_origin": dict(sorted(counts.items())),
        "corpus_sha256": samples_sha256(corpus.train),
        "n_own_parameters": sum(p.numel() for p in student.parameters() if p.requires_grad),
        "agreement": agreement(student, corpus.held_out, by_frequency[:HEAD_SIZE]),
    }
    return Distilled(student, by_frequency, record)


def _corpus(target, tokenizer, stop, recipe, data_dir, file, say) -> Corpus:
    if file is not None and file.is_file():
        say(f"text of {file}")
        return Corpus.load(file)
    corpus = make_corpus(
        target, tokenizer, stop, n_tokens=recipe.n_tokens, n_new=recipe.n_new, batch_size=recipe.generation_batch,
        rng=np.random.default_rng([recipe.seed, 0]), data_dir=data_dir, say=say,
    )  # fmt: skip
    if file is not None:
        corpus.save(file)
    return corpus


def batch_loss(student, samples: Sequence[Sample], head_ids: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the student's rows against the target's kept probabilities, per continuation token.

    The softmax runs over `head_ids` int64[...] and whatever ids the batch's targets keep, not over all V: most of a
    step would go into rows that the text hardly ever has and a draft with a trimmed head never scores.
    """
    hidden, top_ids, top_p = _rows(student, samples)
    scored = torch.cat([head_ids, top_ids.reshape(-1)]).unique()  # increasing
    logits = (hidden @ student.get_output_embeddings().weight[scored].T).float()  # [m, scored]
    return (logits.logsumexp(-1) - (top_p * logits.gather(1, torch.searchsorted(scored, top_ids))).sum(-1)).mean()


def _rows(student, samples: Sequence[Sample]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states [m, hidden] that predict the continuations' tokens, and the target's top ids and shares there."""
    longest = max(len(sample.ids) for sample in samples) - 1
    tokens = np.zeros((len(samples), longest), dtype=np.int64)
    chosen = np.zeros((len(samples), longest), dtype=bool)
    for row, sample in enumerate(samples):
        tokens[row, : len(sample.ids) - 1] = sample.ids[:-1]
        chosen[row, sample.n_prompt - 1 : len(sample.ids) - 1] = True
    # Padding comes after the text, where causal attention hides it.
    hidden = student.base_model(input_ids=torch.from_numpy(tokens), use_cache=False).last_hidden_state
    top_ids = torch.from_numpy(np.concatenate([sample.top_ids for sample in samples]).astype(np.int64))
    top_p = torch.from_numpy(np.concatenate([sample.top_p for sample in samples]).astype(np.float32))
    return hidden[torch.from_numpy(chosen)], top_ids, top_p


def train(
    student, samples: Sequence[Sample], recipe: Recipe, by_frequency: np.ndarray,
    on_step: Callable[[int, int, float], None],
) -> None:  # fmt: skip
    """AdamW on the student's own parameters; the rate rises over the first 5 % of the steps and falls as a cosine."""
    head_ids = torch.from_numpy(by_frequency[:HEAD_SIZE].astype(np.int64))
    rng = np.random.default_rng([recipe.seed, 1])
    epochs, batch_size, peak_lr = recipe.epochs, recipe.batch_size, recipe.peak_lr
    own = [parameter for parameter in student.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(own, lr=peak_lr, betas=(0.9, 0.95), weight_decay=0.01)
    by_length = sorted(samples, key=lambda sample: len(sample.ids))
    n_steps = epochs * math.ceil(len(samples) / batch_size)
    n_warm = max(1, n_steps // 20)
    step = 0
    student.train()
    for _ in range(epochs):
        offset = int(rng.integers(batch_size))  # other neighbours in every epoch
        cuts = [0, *range(offset or batch_size, len(by_length), batch_size), len(by_length)]
        pieces = [by_length[a:b] for a, b in pairwise(cuts)]
        for i in rng.permutation(len(pieces)).tolist():
            turn = min(step / n_steps, 1.0)
            rate = peak_lr * min((step + 1) / n_warm, 0.5 * (1 + math.cos(math.pi * turn)) + 0.01)
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss = batch_loss(student, pieces[i], head_ids)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(own, 1.0)
            optimizer.step()
            step += 1
            on_step(step, n_steps, float(loss.detach()))
    student.eval()


@torch.inference_mode()
def agreement(student, samples: Sequence[Sample], head_ids: np.ndarray | None = None) -> dict[str, dict[str, float]]:
    """Share of the target's tokens that are the student's first, or among its first five, by origin.

    in_head: share of them that a head trimmed to `head_ids` and the prompt's own ids could propose.
    """
    result = {}
    for origin in dict.fromkeys(sample.origin for sample in samples):
        chosen = [sample for sample in samples if sample.origin == origin]
        top1 = top5 = inside = n = 0
        for sample in chosen:
            new = torch.from_numpy(sample.ids[sample.n_prompt :])
            best = top_k_rows(student.get_output_embeddings()(_rows(student, [sample])[0]), 5)[0]
            hits = best == new[:, None]
            top1, top5, n = top1 + int(hits[:, 0].sum()), top5 + int(hits.any(-1).sum()), n + len(new)
            if head_ids is not None:
                kept = np.concatenate([head_ids, sample.ids[: sample.n_prompt]])
                inside += int(np.isin(sample.ids[sample.n_prompt :], kept).sum())
        result[origin] = {"top1": round(top1 / n, 4), "top5": round(top5 / n, 4), "n_tokens": n}
        if head_ids is not None:
            result[origin]["in_head"] = round(inside / n, 4)
    return result
