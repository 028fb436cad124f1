"""The acceptance probability of each cell of evidence: P(it is the target's token | its parent accepted, its evidence).

Two parts. A prior, learnt beforehand on other prompts than the measured ones and kept as data with its provenance
(goose/priors): a logistic model whose features are the parts of a cell, so that cells never seen have a probability
too. And counts of this request (warm: of all so far): tested and accepted nodes of each cell, joined with the prior as
the mean of a Beta distribution

    (accepted + strength * prior) / (tested + strength)

Knows cells only, no tokens.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from goose.sources.evidence import (
    ABSENT,
    COUNT_EDGES,
    DEFERRED,
    DRAFT,
    FIRST_MATCHED,
    LENGTH_EDGES,
    N_ADJACENCY,
    N_CELLS,
    N_COUNTS,
    N_LEVELS,
    N_SHARES,
    SCORE_EDGES,
    SHARE_EDGES,
    TIER,
    TRIGRAM,
)

PRIOR_FILE = Path(__file__).parents[1] / "priors" / "smollm2.json"
LAYOUT = 2  # of cells and features; a prior learnt under another number means something else
CALIBRATIONS = ("online", "prior", "none")
EDGES = {"length": LENGTH_EDGES, "share": SHARE_EDGES, "count": COUNT_EDGES, "score": SCORE_EDGES}


class AcceptanceProbabilities:
    """Acceptance probabilities of all cells, learnt while the target accepts and rejects.

    calibration: online (prior and counts) · prior (no counts) · none (shares and scores at their face value).

    strength: how many tested nodes of a cell weigh as much as its prior. prior_file: None for the one that comes along.

    `of` is float[N_CELLS], a list by cell. Raises ValueError for a value out of range and for a file that is no prior.
    """

    def __init__(self, calibration: str = "online", strength: float = 20.0, prior_file: str | None = None):
        prior = face_value() if calibration == "none" else read_prior(str(prior_file or PRIOR_FILE))
        self._start(prior, calibration, strength)

    @classmethod
    def of_prior(
        cls, prior: np.ndarray, calibration: str = "online", strength: float = 20.0
    ) -> "AcceptanceProbabilities":
        """Over a prior that is in no file: float[N_CELLS]. Reads none, so that a new one can be learnt."""
        probabilities = cls.__new__(cls)
        probabilities._start(np.asarray(prior, dtype=np.float64), calibration, strength)
        return probabilities

    def _start(self, prior: np.ndarray, calibration: str, strength: float) -> None:
        if calibration not in CALIBRATIONS:
            raise ValueError(f"calibration must be one of {CALIBRATIONS}, got {calibration!r}")
        if not 0 < strength < float("inf"):
            raise ValueError(f"strength must be finite and above 0, got {strength!r}")
        if prior.shape != (N_CELLS,):
            raise ValueError(f"a prior must hold one probability for each of {N_CELLS} cells, got shape {prior.shape}")
        self.calibration, self.strength = calibration, strength
        self._prior: list[float] = prior.tolist()
        self.reset()

    def reset(self) -> None:
        self.of: list[float] = list(self._prior)  # cell -> probability
        self._counts: dict[int, list[int]] = {}  # cell -> [tested, accepted]

    def learn(self, cells: Sequence[int], accepted: Sequence[bool]) -> None:
        """Counts tested nodes, given by their cells, and which of them were accepted."""
        if self.calibration != "online":
            return
        for cell, was_accepted in zip(cells, accepted, strict=True):
            counts = self._counts.setdefault(cell, [0, 0])
            counts[0] += 1
            counts[1] += was_accepted
            self.of[cell] = (counts[1] + self.strength * self._prior[cell]) / (counts[0] + self.strength)


def features(cells: np.ndarray) -> np.ndarray:
    """int64[n, F]: the features of each of n cells, whole numbers that only name a value.

    The match length is thermometer-encoded (columns per edge: is it at least that long), so that the weights of long
    matches, which are rare in the data, start from those of shorter ones.
    """
    context, adjacency = np.divmod(cells, N_ADJACENCY)
    matched = context >= FIRST_MATCHED
    length, rest = np.divmod(context - FIRST_MATCHED, N_SHARES * N_COUNTS)
    share, count = np.divmod(rest, N_COUNTS)
    tier, in_tier = np.divmod(adjacency, TIER)
    is_deferred = in_tier >= DEFERRED
    level = np.where(is_deferred, in_tier - DEFERRED, in_tier)
    coarse = np.where(in_tier == ABSENT, 9, np.digitize(level, (3, 5, 7, 9, 11, 13)) + 10 * is_deferred)
    row = tier * 20 + coarse
    columns = [
        adjacency,
        np.where(matched, 1000 + count, context),
        np.where(matched, 1000 + rest, context % 2),
        np.where(matched, 1000 * (1 + share), 1000 * (100 + context % 2)) + row,
        np.where(matched, 0, 1000 * (1 + context // 2)) + row,
    ]
    for edge in range(1, len(LENGTH_EDGES)):
        longer = matched & (length >= edge)
        columns += [longer, np.where(longer, 1000 + row, 0), np.where(longer, 1000 + rest, 0)]
    return np.stack(columns, axis=1)


def fit_prior(cells: np.ndarray, accepted: np.ndarray, penalty: float = 3.0) -> dict[str, Any]:
    """The maximum-likelihood logistic model under a quadratic penalty: bias, and for each feature value -> weight.

    cells, accepted: every candidate seen at a node that was reached (int64[n], bool[n]).
    """
    import torch

    tested = np.bincount(cells, minlength=N_CELLS)
    hits = np.bincount(cells[accepted], minlength=N_CELLS)
    seen = np.flatnonzero(tested)
    columns = [np.unique(column, return_inverse=True) for column in features(seen).T]
    first = np.cumsum([0, *(len(values) for values, _ in columns)])
    at = torch.from_numpy(np.stack([inverse + base for (_, inverse), base in zip(columns, first, strict=False)], 1))
    n, k = torch.from_numpy(tested[seen]).double(), torch.from_numpy(hits[seen]).double()
    weights = torch.zeros(int(first[-1]) + 1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        z = weights[:-1][at].sum(1) + weights[-1]
        value = (n * torch.nn.functional.softplus(z) - k * z).sum() + penalty / 2 * (weights[:-1] ** 2).sum()
        value.backward()
        return value

    optimizer.step(loss)
    found = weights.detach().numpy().round(4)
    by_value = [
        {str(value): float(weight) for value, weight in zip(values, found[base:], strict=False)}
        for (values, _), base in zip(columns, first, strict=False)
    ]
    return {"bias": float(found[-1]), "weights": by_value}


def prior_of(model: dict) -> np.ndarray:
    """float64[N_CELLS]: the probabilities by `fit_prior`'s model.

    A draft's row is taken for a trigram's: no prior knows how good a draft is, the counts learn it.
    """
    cells = np.arange(N_CELLS)
    draft = cells % N_ADJACENCY >= DRAFT * TIER
    alike = np.where(draft, cells - (DRAFT - TRIGRAM) * TIER, cells)
    z = np.full(N_CELLS, model["bias"])
    for column, weights in zip(features(alike).T, model["weights"], strict=True):
        values, inverse = np.unique(column, return_inverse=True)
        z += np.array([weights.get(str(value), 0.0) for value in values])[inverse]
    return 1 / (1 + np.exp(-z))


def face_value() -> np.ndarray:
    """float64[N_CELLS]: the share of a match or the score of a row, the greater of both. Not calibrated."""
    context, adjacency = np.divmod(np.arange(N_CELLS), N_ADJACENCY)
    share = (context - FIRST_MATCHED) % (N_SHARES * N_COUNTS) // N_COUNTS
    shares = np.where(context >= FIRST_MATCHED, _middles(SHARE_EDGES)[share], 0.0)
    in_tier = adjacency % TIER
    level = np.where(in_tier >= DEFERRED, in_tier - DEFERRED, np.minimum(in_tier, N_LEVELS - 1))
    scores = np.where(in_tier == ABSENT, 0.0, _middles(SCORE_EDGES)[level])
    return np.maximum(shares, scores)


def _middles(edges: Sequence[float]) -> np.ndarray:
    whole = np.array([0.0, *edges, 1.0])
    return (whole[1:] + whole[:-1]) / 2


@lru_cache(maxsize=8)
def read_prior(file: str) -> np.ndarray:
    """The probabilities of a file that scripts/learn_prior.py wrote. Raises ValueError for any other."""
    advice = "write one with scripts/learn_prior.py"
    try:
        record = json.loads(Path(file).expanduser().read_text(encoding="utf-8"))
        layout = record["layout"], record["edges"]
    except OSError as error:
        raise ValueError(f"there is no prior at {file} ({error.strerror}); {advice}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is no prior of goose_opt; {advice}") from error
    ours = LAYOUT, {name: list(values) for name, values in EDGES.items()}
    if layout != ours:
        raise ValueError(f"{file}: its evidence is laid out as {layout}, here as {ours}; learn it anew")
    try:
        prior = prior_of(record["model"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is a damaged prior of goose_opt; {advice}") from error
    if not np.isfinite(prior).all():
        raise ValueError(f"{file} has weights that are not finite; {advice}")
    return prior
