"""Single-token rows: what the target says after a token by itself, that is after two line ends and that token.

For tokens that a request has not met, whose row no table can know. The rows depend on the model and its line end alone,
so they are made once, kept in the user's cache folder and serve every request; they hold nothing of any text, and the
target is not trained for them. Making them is bounded in time: a slow model gets fewer rows, the first ids first, which
are the most frequent ones of a byte-pair vocabulary.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from time import perf_counter

import numpy as np

from goose.engine.identity import weights_digest
from goose.engine.tree import NO_PARENT, DraftTree
from goose.engine.user_cache import cache_root, keep
from goose.engine.verify import top_k_rows

N_ROWS = 16384  # asked for by default
LIMIT_S = 50.0  # what making them may take
_RECIPE = 2  # of the rows: another one does not read what this one kept
_WIDTH, _FIRST_WIDTH = 255, 16  # tokens a forward: siblings of one tree, none of which sees another


@dataclass(frozen=True)
class SingleTokenRows:
    """Rows of the ids 0 .. n - 1; as many as were asked for (at most the vocabulary), or as the time allowed."""

    ids: np.ndarray  # int64[n, K]
    scores: np.ndarray  # float32[n, K] (top_k_rows)
    made_s: float  # how long making them took
    is_new: bool = True  # made now, not read from the cache
    not_kept: str | None = None  # why they could not be written into the cache folder


def make_rows(
    lm,
    line_end: Sequence[int],
    n_ids: int,
    top_k: int,
    on_rows: Callable[[int], None] = lambda n: None,
    limit_s: float = LIMIT_S,
) -> SingleTokenRows:
    """Asks a TreeLM, whose sequence in flight is forgotten.

    line_end: ids of a line end, the model's own beginning of a text before it where it has one; its last id comes
    twice, committed and as the root of all. on_rows is told how many rows are done.
    Raises ValueError without a line end or for no rows.
    """
    n_ids = min(n_ids, lm.vocab_size)
    if n_ids < 1 or not line_end:
        raise ValueError(f"rows are made of n_ids >= 1 tokens after a line end, got {n_ids} and {list(line_end)}")
    start = perf_counter()
    lm.prefill(list(line_end), reserve=1 + _WIDTH)
    parts, first, width = [], 0, min(_FIRST_WIDTH, _WIDTH)
    while first < n_ids:
        began = perf_counter()
        tokens = range(first, min(first + width, n_ids))
        tree = DraftTree.from_lists([line_end[-1], *tokens], [NO_PARENT] + [0] * len(tokens))
        logits = lm.score(tree)[1:]
        parts.append([column.cpu().numpy() for column in top_k_rows(logits, top_k)])
        first = tokens.stop
        on_rows(first)
        # The next forward must fit: per token it takes at most what this one took.
        now = perf_counter()
        width = min(_WIDTH, int((limit_s - (now - start)) / max(1e-9, now - began) * len(tokens)))
        if width < 1:
            break
    ids, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    return SingleTokenRows(ids, scores, round(perf_counter() - start, 1))


def kept_rows(
    lm, line_end: Sequence[int], n_ids: int, top_k: int, on_rows: Callable[[int], None] = lambda n: None
) -> SingleTokenRows:
    """make_rows', from the user's cache folder where it has them for these very weights.

    A cache that cannot be written is done without: `not_kept` says why.
    """
    what = f"{_RECIPE} {weights_digest(lm.model)} {lm.device.type} {list(line_end)} {n_ids} {top_k}"
    file = cache_root() / "single_token_rows" / f"{hashlib.sha256(what.encode()).hexdigest()[:16]}.npz"
    found = _read(file, min(n_ids, lm.vocab_size), min(top_k, lm.vocab_size), lm.vocab_size) or _unkept.get(file)
    if found is not None:
        return replace(found, is_new=False)
    rows = make_rows(lm, line_end, n_ids, top_k, on_rows)
    whole = BytesIO()
    np.savez(whole, ids=rows.ids, scores=rows.scores, made_s=rows.made_s)
    if (reason := keep(file, whole.getvalue())) is not None:
        rows = _unkept[file] = replace(rows, not_kept=f"{file.parent}: {reason}")
    return rows


_unkept: dict[Path, SingleTokenRows] = {}  # what no disk took, made once a process all the same


def _read(file: Path, n_ids: int, top_k: int, vocab_size: int) -> SingleTokenRows | None:
    """None for a file that is absent, interrupted or of something else."""
    with suppress(Exception), np.load(file) as kept:  # what numpy raises for a broken archive is its own business
        ids, scores = kept["ids"], kept["scores"]
        shape = 1 <= len(ids) <= n_ids and ids.shape == scores.shape == (len(ids), top_k)
        in_range = np.issubdtype(ids.dtype, np.integer) and ids.min() >= 0 and ids.max() < vocab_size
        if shape and in_range and np.isfinite(scores).all():
            return SingleTokenRows(ids, scores, float(kept["made_s"]))
    return None
