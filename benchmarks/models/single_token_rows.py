"""The rows of single tokens (goose/sources/single_token_rows.py) of a cell's model, kept on disk: made once a model.

Drafters say by `n_alone` of how many ids they want them, and are given them by `know_alone`, outside every clock.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO

import numpy as np
import torch
from rich.progress import Progress

from benchmarks.errors import UserError
from benchmarks.files import write_bytes_atomically
from benchmarks.models.cache import cache_root
from goose.engine.contract import Drafter
from goose.engine.lm import TreeLM
from goose.sources.single_token_rows import rows_alone

_RECIPE = 1  # of the rows: another one does not read what this one kept
_SAMPLES = 256  # numbers of each weight that tell one model from another


def knowing(makers: dict[str, Callable[[], Drafter]], lm: TreeLM, tokenizer) -> dict[str, Callable[[], Drafter]]:
    """Makers of the same drafters that know what the model says of single tokens, where they want to."""
    rows: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}

    def informed(make: Callable[[], Drafter]) -> Callable[[], Drafter]:
        one = make()
        if not getattr(one, "n_alone", 0):
            return make
        wanted = one.n_alone, one.top_k
        if wanted not in rows:
            rows[wanted] = kept_rows(lm, tokenizer, *wanted)

        def made() -> Drafter:
            drafter = make()
            drafter.know_alone(*rows[wanted])
            return drafter

        return made

    return {name: informed(make) for name, make in makers.items()}


def kept_rows(lm: TreeLM, tokenizer, n_ids: int, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """rows_alone's, from the cache where they are: int64[n, K] ids, float32[n, K] scores."""
    line_end = [token for token in tokenizer("\n")["input_ids"] if token != getattr(tokenizer, "eos_token_id", None)]
    if not line_end:
        raise UserError("the tokenizer drops a line's end, behind which rows of single tokens are asked; set n_alone=0")
    file = cache_root() / "alone" / f"{_fingerprint(lm, line_end, n_ids, top_k)}.npz"
    with suppress(Exception), np.load(file) as kept:  # absent, torn or not what was asked for: made anew
        ids, scores = kept["ids"], kept["scores"]
        shape = min(n_ids, lm.vocab_size), min(top_k, lm.vocab_size)
        in_range = np.issubdtype(ids.dtype, np.integer) and ids.min() >= 0 and ids.max() < lm.vocab_size
        if ids.shape == scores.shape == shape and in_range and np.isfinite(scores).all():
            return ids, scores
    with Progress(transient=True) as progress:
        task = progress.add_task("rows of single tokens, once for this model", total=min(n_ids, lm.vocab_size))
        ids, scores = rows_alone(lm, line_end, n_ids, top_k, lambda n: progress.update(task, completed=n))
    whole = BytesIO()
    np.savez(whole, ids=ids, scores=scores)
    with suppress(OSError, UserError):  # a cache that cannot be written costs time, no more
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomically(file, whole.getvalue())
    return ids, scores


def _fingerprint(lm: TreeLM, line_end: list[int], n_ids: int, top_k: int) -> str:
    """Of the model's weights, whatever it is called, and of what is asked of it."""
    config = lm.model.config
    positions = getattr(config, "rope_parameters", None), getattr(config, "rms_norm_eps", None)  # in no weight
    digest = hashlib.blake2b(f"{_RECIPE} {lm.dtype} {line_end} {n_ids} {top_k} {positions}".encode(), digest_size=12)
    for name, weight in lm.model.named_parameters():
        flat = weight.detach().flatten()
        some = flat[:: len(flat) // _SAMPLES | 1].to("cpu", torch.float32)  # odd: not one column of a matrix
        digest.update(f"{name} {list(weight.shape)} ".encode() + some.numpy().tobytes())
    return digest.hexdigest()
