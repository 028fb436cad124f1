"""The text that a student learns from: a target's greedy continuations, each with the target's 32 best ids a token.

Prompts come from outside every measured set: GSM8K items from 1000 on, MBPP items that are not in its test split, and
chat requests made here. This file does not know students or training.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from transformers import LogitsProcessor, LogitsProcessorList

from benchmarks.data.items import MBPP_SPLITS, gsm8k_prompt, load_dataset, mbpp_prompt
from benchmarks.errors import UserError
from goose.engine.verify import top_k_rows

TOP = 32  # entries kept of each of the target's rows
GSM8K_FROM = 1000  # items before it may be measured
N_HELD_OUT = 20  # items of each set that are generated and never trained on
HUMANEVAL_HELD_OUT = 100  # first of them; HumanEval is for evaluation alone

_TOPICS = (
    "photosynthesis", "a good night's sleep", "the water cycle", "saving money", "learning to cook", "city bicycles",
    "the history of writing", "black holes", "houseplants", "public libraries", "running a first race", "vaccines",
)  # fmt: skip
_REQUESTS = (
    "Explain {} to a ten-year-old.", "Write a short e-mail to a friend about {}.", "List five facts about {}.",
    "What are the advantages and disadvantages of {}?", "Write a short story that has to do with {}.",
    "Give me step-by-step advice on {}.",
)  # fmt: skip


@dataclass(frozen=True)
class PromptText:
    origin: str  # gsm8k | mbpp | mbpp_stub | chat | humaneval, or a kind of benchmarks/learn/prior.py
    text: str
    is_chat: bool = False
    item: str = ""  # which one of its origin, for the record


@dataclass(frozen=True, eq=False)
class Sample:
    """A prompt and the target's greedy continuation of m tokens, the end token included."""

    origin: str
    ids: np.ndarray  # int64[L], prompt first
    n_prompt: int
    top_ids: np.ndarray  # int32[m, TOP]: the target's best ids before each token of the continuation
    top_p: np.ndarray  # float16[m, TOP]: softmax over those alone

    @property
    def n_new(self) -> int:
        return len(self.ids) - self.n_prompt


def training_prompts(data_dir: Path | None) -> list[PromptText]:
    """Every prompt the student may learn from."""
    gsm8k, mbpp = _gsm8k_rows(data_dir)[:-N_HELD_OUT], mbpp_rows(data_dir)[:-N_HELD_OUT]
    return [
        *(PromptText("gsm8k", gsm8k_prompt(row)) for row in gsm8k),
        *mbpp_prompts(mbpp),
        *chat_requests(),
        *(PromptText("chat", row["question"], is_chat=True) for row in gsm8k[::4]),
        *(PromptText("chat", row["text"], is_chat=True) for row in mbpp[::4]),
    ]


def mbpp_prompts(rows: Sequence[dict]) -> list[PromptText]:
    """MBPP items as the set asks them, then as functions to complete."""
    items = [(f"mbpp/{row['task_id']}", row) for row in rows]
    return [
        *(PromptText("mbpp", mbpp_prompt(row), item=item) for item, row in items),
        *(PromptText("mbpp_stub", stub, item=item) for item, row in items if (stub := _stub(row))),
    ]


def chat_requests() -> list[PromptText]:
    """Requests of our own, for a chat template."""
    asked = [request.format(topic) for request, topic in product(_REQUESTS, _TOPICS)]
    return [PromptText("chat", text, is_chat=True, item=f"request {i}") for i, text in enumerate(asked)]


def held_out_prompts(data_dir: Path | None) -> list[PromptText]:
    """Prompts that the student is judged on."""
    humaneval = load_dataset("humaneval", offset=HUMANEVAL_HELD_OUT, limit=N_HELD_OUT).items
    return [
        *(PromptText("gsm8k", gsm8k_prompt(row)) for row in _gsm8k_rows(data_dir)[-N_HELD_OUT:]),
        *(PromptText("mbpp", mbpp_prompt(row)) for row in mbpp_rows(data_dir)[-N_HELD_OUT:]),
        *(PromptText("humaneval", item.turns[0]) for item in humaneval),
    ]


def _gsm8k_rows(data_dir: Path | None) -> list[dict]:
    return _read_rows("gsm8k", data_dir, "gsm8k/test.jsonl", "openai/gsm8k", "main", ["test"])[GSM8K_FROM:]


def mbpp_rows(data_dir: Path | None) -> list[dict]:
    splits = ["prompt", "validation", "train"]
    rows = _read_rows("mbpp", data_dir, "mbpp/mbpp.jsonl", "google-research-datasets/mbpp", "full", splits)
    return sorted((row for row in rows if row["task_id"] not in MBPP_SPLITS["test"]), key=lambda row: row["task_id"])


def _read_rows(
    name: str, data_dir: Path | None, file: str, hub_id: str, hub_config: str, splits: Sequence[str]
) -> list[dict]:
    """Raw rows: of `file` under data_dir (upstream's file, JSON lines) when it is given, else of the hub's splits."""
    ways = f"pass --data-dir FOLDER with {file} in it, or go online so that {hub_id} can be had from the hub"
    if data_dir is not None:
        try:
            text = (data_dir.expanduser() / file).read_text(encoding="utf-8")
            return [json.loads(line) for line in text.split("\n") if line.strip()]
        except (OSError, ValueError) as error:
            raise UserError(f"{name}: {data_dir / file} could not be read ({error}); {ways}") from error
    try:
        sets = [
            load_dataset(name, source="hub", hub_id=hub_id, hub_config=hub_config, hub_split=split) for split in splits
        ]
    except UserError as error:
        raise UserError(f"{name}: {error} To make a draft, {ways}") from error
    return [item.reference for found in sets for item in found.items]


def _stub(row: dict) -> str | None:
    """The item as a function to complete: its signature and its text as the docstring."""
    signature = next((line.strip() for line in row["code"].splitlines() if line.startswith("def ")), None)
    if signature is None or not signature.endswith(":"):
        return None
    return f'{signature}\n    """{row["text"]}\n    """\n'


def prompt_ids(prompt: PromptText, tokenizer) -> list[int]:
    if not prompt.is_chat:
        return list(tokenizer(prompt.text)["input_ids"])
    messages = [{"role": "user", "content": prompt.text}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


class _KeepTop(LogitsProcessor):
    """Keeps the best TOP of every row that generate() chooses from, and changes nothing."""

    def __init__(self):
        self.ids: list[np.ndarray] = []  # a step: int32[batch, TOP]
        self.p: list[np.ndarray] = []  # a step: float16[batch, TOP]

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        ids, p = top_k_rows(scores, TOP)
        self.ids.append(ids.int().numpy())
        self.p.append(p.half().numpy())
        return scores


@torch.inference_mode()
def generate_batch(model, batch: Sequence[tuple[str, list[int]]], stop: frozenset[int], n_new: int) -> list[Sample]:
    """The target's greedy continuations of (origin, prompt ids), left-padded, through transformers' generate()."""
    longest = max(len(ids) for _, ids in batch)
    pad = min(stop, default=0)
    inputs = torch.tensor([[pad] * (longest - len(ids)) + ids for _, ids in batch])
    mask = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for _, ids in batch])
    keep = _KeepTop()
    out = model.generate(
        inputs,
        attention_mask=mask,
        max_new_tokens=n_new,
        do_sample=False,
        eos_token_id=sorted(stop) or None,
        pad_token_id=pad,
        logits_processor=LogitsProcessorList([keep]),
    )[:, longest:].numpy()
    top_ids, top_p = np.stack(keep.ids, axis=1), np.stack(keep.p, axis=1)  # [batch, steps, TOP]
    samples = []
    for row, (origin, ids) in enumerate(batch):
        m = next((i + 1 for i, token in enumerate(out[row].tolist()) if token in stop), out.shape[1])
        both = np.array([*ids, *out[row, :m].tolist()], dtype=np.int64)
        samples.append(Sample(origin, both, len(ids), top_ids[row, :m].copy(), top_p[row, :m].copy()))
    return samples


def generate(
    model, tokenizer, prompts: Sequence[PromptText], stop: frozenset[int], *, n_tokens: float = math.inf, n_new: int,
    batch_size: int, rng: np.random.Generator, on_batch: Callable[[int], None],
) -> list[Sample]:  # fmt: skip
    """Continuations of `prompts` until they hold n_tokens tokens; batches of like length, in random order."""
    encoded = [(prompt.origin, prompt_ids(prompt, tokenizer)) for prompt in prompts]
    encoded.sort(key=lambda pair: len(pair[1]))
    batches = [encoded[i : i + batch_size] for i in range(0, len(encoded), batch_size)]
    samples, total = [], 0
    for i in rng.permutation(len(batches)).tolist():
        samples += generate_batch(model, batches[i], stop, n_new)
        total = sum(sample.n_new for sample in samples)
        on_batch(total)
        if total >= n_tokens:
            break
    return samples


def ids_by_frequency(samples: Sequence[Sample], vocab_size: int) -> np.ndarray:
    """int64[V]: ids, the most frequent in the text first; of equal counts the lower id, which BPE merged earlier."""
    counts = np.bincount(np.concatenate([sample.ids for sample in samples]), minlength=vocab_size)
    return np.argsort(-counts, kind="stable")


def samples_sha256(samples: Sequence[Sample]) -> str:
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(f"{sample.origin} {sample.n_prompt}\n".encode() + sample.ids.tobytes() + sample.top_p.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Corpus:
    train: list[Sample]
    held_out: list[Sample]

    def save(self, file: Path) -> None:
        samples = [*self.train, *self.held_out]
        with file.open("wb") as out:
            np.savez(
                out,
                n_train=np.array(len(self.train)),
                origin=np.array([sample.origin for sample in samples]),
                n_prompt=np.array([sample.n_prompt for sample in samples]),
                length=np.array([len(sample.ids) for sample in samples]),
                ids=np.concatenate([sample.ids for sample in samples]),
                top_ids=np.concatenate([sample.top_ids for sample in samples]),
                top_p=np.concatenate([sample.top_p for sample in samples]),
            )

    @staticmethod
    def load(file: Path) -> "Corpus":
        with np.load(file) as kept:
            columns = {name: kept[name] for name in kept.files}
        ends = np.cumsum(columns["length"])[:-1]
        new_ends = np.cumsum(columns["length"] - columns["n_prompt"])[:-1]
        rows = zip(
            columns["origin"].tolist(),
            np.split(columns["ids"], ends),
            columns["n_prompt"].tolist(),
            np.split(columns["top_ids"], new_ends),
            np.split(columns["top_p"], new_ends),
            strict=True,
        )
        samples = [Sample(*row) for row in rows]
        n_train = int(columns["n_train"])
        return Corpus(samples[:n_train], samples[n_train:])


def make_corpus(
    model, tokenizer, stop: frozenset[int], *, n_tokens: int, n_new: int, batch_size: int, rng: np.random.Generator,
    data_dir: Path | None, say: Callable[[str], None],
) -> Corpus:  # fmt: skip
    """Held-out continuations of every evaluated set, and training continuations until they hold n_tokens tokens."""
    prompts = {"held-out": held_out_prompts(data_dir), "training": training_prompts(data_dir)}
    made = {}
    for name, limit in (("held-out", math.inf), ("training", n_tokens)):

        def on_batch(n: int, name: str = name) -> None:
            say(f"{name} text: {n} tokens")

        made[name] = generate(
            model, tokenizer, prompts[name], stop, n_tokens=limit, n_new=n_new, batch_size=batch_size, rng=rng,
            on_batch=on_batch,
        )  # fmt: skip
    return Corpus(made["training"], made["held-out"])
