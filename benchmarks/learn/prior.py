"""Learns a prior of goose_opt: of every candidate at every node that the target reached, whether the target said it.

Prompts are of no measured set: word problems of our own, MBPP items outside its test split, chat requests of our own,
functions and classes of Python's standard library. Knows no command line.
"""

import hashlib
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data.items import gsm8k_prompt
from benchmarks.learn.corpus import PromptText, chat_requests, mbpp_prompts, mbpp_rows, prompt_ids
from benchmarks.learn.stdlib_code import stdlib_code
from benchmarks.learn.word_problems import word_problems
from benchmarks.models.generation import stop_ids
from benchmarks.models.load import LoadedModel
from benchmarks.models.single_token_rows import kept_rows
from goose.drafters.goose_opt import GooseOptDrafter
from goose.drafters.probabilities import EDGES, LAYOUT, AcceptanceProbabilities, face_value, fit_prior, prior_of
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from goose.engine.tree import DraftTree
from goose.engine.verify import Scored, Verdict
from goose.sources.evidence import N_CELLS, Evidence
from goose.sources.single_token_rows import SingleTokenRows

FIRST_ROUND = 5  # one prompt in so many is decoded with uncalibrated probabilities, to have a prior for the others
HELD_OUT = 4  # one prompt in so many of each kind judges the fit to the others


@dataclass(frozen=True)
class Recipe:
    """All that a prior depends on besides the model and the prompts' files."""

    prompts: int = 25  # of each kind
    new_tokens: int = 192  # long enough for texts that repeat themselves
    budget: int = 32
    single_token_rows: int = 16384
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Candidates:
    """Of a number of candidates: its evidence, and whether the target said it."""

    cells: np.ndarray  # int64[n]
    said: np.ndarray  # bool[n]


def prior_prompts(data_dir: Path | None, recipe: Recipe) -> list[PromptText]:
    """`recipe.prompts` of each kind, kinds in turn, the same for the same seed."""
    code = stdlib_code()
    problems = word_problems(recipe.prompts, recipe.seed)
    available = [
        *(PromptText("word_problem", gsm8k_prompt({"question": q}), item=str(i)) for i, q in enumerate(problems)),
        *mbpp_prompts(mbpp_rows(data_dir)),
        *chat_requests(),
        *(PromptText("function", text, item=name) for name, text in code.functions.items()),
        *(PromptText("class", text, item=name) for name, text in code.classes.items()),
    ]
    return draw_of_each(available, recipe.prompts, recipe.seed)


def draw_of_each(prompts: Sequence[PromptText], n: int, seed: int) -> list[PromptText]:
    """n of each kind, kinds in turn, the same for the same seed."""
    rng = np.random.default_rng(seed)
    kinds: dict[str, list[PromptText]] = {}
    for prompt in prompts:
        kinds.setdefault(prompt.origin, []).append(prompt)
    drawn = [[own[i] for i in rng.permutation(len(own))[:n]] for own in kinds.values()]
    return [prompt for row in zip(*drawn, strict=False) for prompt in row]


def learnt_prior(
    loaded: LoadedModel, prompts: Sequence[PromptText], recipe: Recipe, say: Callable[[str], None]
) -> tuple[dict[str, Any], Candidates]:
    """The record that goose.drafters.probabilities.read_prior reads, with its provenance, and the candidates."""
    lm, tokenizer = TreeLM(loaded.model), loaded.tokenizer
    last_of = np.zeros(len(prompts), dtype=int)  # candidates up to and with each prompt

    def on_prompt(n_done: int, n_candidates: int) -> None:
        say(f"{n_done} of {len(prompts)} prompts, {n_candidates} candidates")
        last_of[n_done - 1] = n_candidates

    n_rows = recipe.single_token_rows
    rows = kept_rows(lm, tokenizer, n_rows, Evidence().top_k) if n_rows else None
    decoding = {
        "max_new_tokens": recipe.new_tokens,
        "stop_ids": stop_ids(loaded.model, tokenizer, "generation_config"),
        "node_budget": recipe.budget,
    }
    model, cells, said = learn(lm, [prompt_ids(prompt, tokenizer) for prompt in prompts], on_prompt, rows, **decoding)
    held = _held_out(prompts, last_of)
    judged = prior_of(fit_prior(cells[~held], said[~held]))
    seen, truth = cells[held], said[held]
    scores = {
        name: {"log_loss": round(log_loss(p, seen, truth), 5), "ece": round(_ece(p, seen, truth), 5)}
        for name, p in (("fit to the other prompts", judged), ("face value", face_value()))
    }
    record = {
        "layout": LAYOUT,
        "edges": {name: list(values) for name, values in EDGES.items()},
        "model": model,
        "learnt_from": {
            "model": {key: getattr(loaded, key) for key in ("name", "revision", "dtype")},
            **_provenance(prompts),
            "candidates": len(cells),
            "said": int(said.sum()),
            **asdict(recipe),
            "python": platform.python_version(),
            "date": datetime.now(UTC).date().isoformat(),
        },
        "held_out": {"every": HELD_OUT, **scores},
        "reliability": [{k: round(v, 4) for k, v in b.items()} for b in reliability(judged, seen, truth)],
    }
    return record, Candidates(cells, said)


def _held_out(prompts: Sequence[PromptText], last_of: np.ndarray) -> np.ndarray:
    """bool[n] of candidates: whether they are of the fourth, the eighth, ... prompt of a kind (kinds come in turn)."""
    held = np.zeros(last_of[-1], dtype=bool)
    n_kinds = len({prompt.origin for prompt in prompts})
    for i in range(len(prompts)):
        if i // n_kinds % HELD_OUT == HELD_OUT - 1:
            held[last_of[i - 1] : last_of[i]] = True
    return held


def _provenance(prompts: Sequence[PromptText]) -> dict[str, Any]:
    """Which prompts: kind -> items, and one digest of all texts."""
    items: dict[str, list[str]] = {}
    for prompt in prompts:
        items.setdefault(prompt.origin, []).append(prompt.item)
    texts = hashlib.sha256("\0".join(prompt.text for prompt in prompts).encode())
    return {"items": {kind: sorted(own) for kind, own in sorted(items.items())}, "texts_sha256": texts.hexdigest()}


class CandidateLog(GooseOptDrafter):
    """Drafts like goose_opt and keeps (cell, was it the target's token) of the candidates at every accepted node."""

    def __init__(self, probabilities: AcceptanceProbabilities):
        super().__init__(chances=probabilities, size="budget")
        self.cells: list[int] = []
        self.said: list[bool] = []

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        self._root = self.evidence.root(context)
        return super().draft(context, budget)

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        node, any_probability = self._root, [1.0] * N_CELLS
        tokens = [*tree.tokens[verdict.path[1:]].tolist(), verdict.bonus]
        for depth, said in enumerate(tokens):
            for token, cell in self.evidence.candidates(node, any_probability, 0.0, depth == 0):
                self.cells.append(cell)
                self.said.append(token == said)
            node = self.evidence.child(node, said)
        super().observe(tree, verdict, scored)


def learn(
    lm,
    prompts: Sequence[Sequence[int]],
    on_prompt: Callable[[int, int], None] = lambda n_done, n_candidates: None,
    rows: SingleTokenRows | None = None,
    **decoding,  # of goose.decode: max_new_tokens, stop_ids, node_budget
) -> tuple[dict, np.ndarray, np.ndarray]:
    """(fit_prior's model, cells int64[n], said bool[n]). `on_prompt` is told prompts and candidates so far."""
    cells: list[int] = []
    said: list[bool] = []
    n_first = -(-len(prompts) // FIRST_ROUND)
    probabilities = AcceptanceProbabilities("none")
    for n_done, prompt in enumerate(prompts, start=1):
        log = CandidateLog(probabilities)
        if rows:
            log.set_single_token_rows(rows.ids, rows.scores)
        decode(lm, prompt, log, **decoding)
        cells += log.cells
        said += log.said
        if n_done == n_first:
            probabilities = AcceptanceProbabilities.of_prior(
                prior_of(fit_prior(np.array(cells), np.array(said))), "prior"
            )
        on_prompt(n_done, len(cells))
    return fit_prior(np.array(cells), np.array(said)), np.array(cells), np.array(said)


def log_loss(probabilities: np.ndarray, cells: np.ndarray, said: np.ndarray) -> float:
    """Mean over candidates of -log of the probability of what happened, in nats."""
    p = np.clip(probabilities[cells], 1e-6, 1 - 1e-6)
    return float(-np.log(np.where(said, p, 1 - p)).mean())


def reliability(
    probabilities: np.ndarray, cells: np.ndarray, said: np.ndarray, n_bins: int = 10
) -> list[dict[str, float]]:
    """Bins of equal width: {n, chance: mean probability of the bin, said: how often the target said it}."""
    p = probabilities[cells]
    bins = np.minimum((p * n_bins).astype(int), n_bins - 1)
    found = []
    for k in range(n_bins):
        inside = bins == k
        if inside.any():
            found.append(
                {"n": int(inside.sum()), "chance": float(p[inside].mean()), "said": float(said[inside].mean())}
            )
    return found


def expected_calibration_error(bins: Sequence[dict[str, float]]) -> float:
    """Sum over bins of (share of candidates) |chance - said| (Guo et al., arXiv 1706.04599, equation 3)."""
    n = sum(b["n"] for b in bins)
    return sum(b["n"] / n * abs(b["chance"] - b["said"]) for b in bins)


def _ece(probabilities: np.ndarray, cells: np.ndarray, said: np.ndarray) -> float:
    return expected_calibration_error(reliability(probabilities, cells, said))
