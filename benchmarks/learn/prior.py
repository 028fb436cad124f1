"""What a prior of goose_opt is learnt from: every candidate at every node that the target reached, and what it said.

Prompts are none that results/ measures (scripts/learn_prior.py, corpus.py, stdlib_code.py).
Knows no file formats and no command line.
"""

from collections.abc import Callable, Sequence

import numpy as np

from goose.drafters.goose_opt import GooseOptDrafter
from goose.drafters.probabilities import AcceptanceProbabilities, fit_prior, prior_of
from goose.engine.decode import decode
from goose.engine.tree import DraftTree
from goose.engine.verify import Scored, Verdict
from goose.sources.evidence import N_CELLS
from goose.sources.single_token_rows import SingleTokenRows

FIRST_ROUND = 5  # one prompt in so many is decoded with uncalibrated chances, to have a prior for the others


class CandidateLog(GooseOptDrafter):
    """Drafts like goose_opt and keeps (cell, was it the target's token) of the candidates at every accepted node."""

    def __init__(self, chances: AcceptanceProbabilities):
        super().__init__(chances=chances, size="budget")
        self.cells: list[int] = []
        self.said: list[bool] = []

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        self._root = self.evidence.root(context)
        return super().draft(context, budget)

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        place, any_chance = self._root, [1.0] * N_CELLS
        tokens = [*tree.tokens[verdict.path[1:]].tolist(), verdict.bonus]
        for depth, said in enumerate(tokens):
            for token, cell in self.evidence.candidates(place, any_chance, 0.0, depth == 0):
                self.cells.append(cell)
                self.said.append(token == said)
            place = self.evidence.child(place, said)
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
    chances = AcceptanceProbabilities("none")
    for n_done, prompt in enumerate(prompts, start=1):
        log = CandidateLog(chances)
        if rows:
            log.set_single_token_rows(rows.ids, rows.scores)
        decode(lm, prompt, log, **decoding)
        cells += log.cells
        said += log.said
        if n_done == n_first:
            chances = AcceptanceProbabilities.of_prior(prior_of(fit_prior(np.array(cells), np.array(said))), "prior")
        on_prompt(n_done, len(cells))
    return fit_prior(np.array(cells), np.array(said)), np.array(cells), np.array(said)


def log_loss(chances: np.ndarray, cells: np.ndarray, said: np.ndarray) -> float:
    """Mean over candidates of -log of the chance of what happened, in nats."""
    p = np.clip(chances[cells], 1e-6, 1 - 1e-6)
    return float(-np.log(np.where(said, p, 1 - p)).mean())


def reliability(chances: np.ndarray, cells: np.ndarray, said: np.ndarray, n_bins: int = 10) -> list[dict[str, float]]:
    """Bins of equal width by chance: {n, chance: the mean of the bin's, said: how often the target said it}."""
    p = chances[cells]
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
