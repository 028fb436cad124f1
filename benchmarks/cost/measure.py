"""Makes verify-cost curves t(n, L): `measure` times a TreeLM, `roofline` computes a stand-in from a model's shape.

The curve itself, between and beyond its points, is benchmarks/cost/curve.py. Knows no drafter and no text. Needs torch,
transformers and numpy alone.

Dimension letters: n = nodes of a forward, root included, L = committed tokens before it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random

import numpy as np
import torch

from benchmarks.cost.curve import CHAIN, TREE, CostCurve, Point
from benchmarks.environment import describe
from benchmarks.errors import UserError
from benchmarks.models.shapes import attention_work, config_of, forward_work, matrix_work
from goose.engine.identity import shape_digest
from goose.engine.timing import bushy_tree, fresh, timed_forward
from goose.engine.tree import CONTEXT, DraftTree, chain

NODE_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128)
CONTEXT_LENGTHS = (128, 512, 1536)
WARM_UP_ROUNDS = 2
VERSIONS = ("torch", "transformers", "numpy", "python", "cuda", "driver", "cpu", "cores", "threads")


def measure(
    lm,
    node_counts: Sequence[int] = NODE_COUNTS,
    context_lengths: Sequence[int] = CONTEXT_LENGTHS,
    repeats: int = 15,
    top_k: int = 10,
    *,
    model: str,
    weights: str,
) -> CostCurve:
    """Times a TreeLM; the named arguments label the curve. Sizes and shapes take turns, in a new order every repeat.

    top_k: ids and scores that the host fetches of every row, as a drafter with an adjacency table asks for.
    Raises UserError when a size or length cannot be measured on this model.
    """
    sizes, lengths = sorted(set(node_counts)), sorted(set(context_lengths))
    if not sizes or not lengths or sizes[0] < 1 or lengths[0] < 1 or repeats < 1:
        raise UserError(f"nodes, lengths and repeats must be at least 1, got {sizes}, {lengths} and {repeats}")
    if lengths[-1] + sizes[-1] > lm.max_positions:
        raise UserError(
            f"{lengths[-1]} committed tokens and {sizes[-1]} nodes exceed the model's {lm.max_positions} positions; "
            "choose shorter lengths, or random weights at a shape with more positions"
        )
    rng = np.random.default_rng(0)
    config, points = lm.model.config, []
    for length in lengths:
        ids = rng.integers(lm.vocab_size, size=length).tolist()
        trees = {(shape, n): _tree(shape, n, lm.vocab_size) for shape in (TREE, CHAIN) for n in sizes}
        lm.prefill(ids, reserve=sizes[-1] + 1)
        times = _times(lm, trees, repeats, top_k)
        for (shape, n), rows in times.items():
            low, median, high = np.quantile([row[1] for row in rows], [0.25, 0.5, 0.75]).tolist()
            launch = float(np.median([row[0] for row in rows])) if lm.device.type == "cuda" else None
            work = forward_work(config, n, length, lm.dtype.itemsize)
            points.append(Point(shape, length, n, median, low, high, launch, work.n_bytes, work.n_flops))
    environment = describe(lm.device)
    return CostCurve(
        "measured", model, weights, environment["device"], _name(lm.dtype), lm.engine, lm.attention,
        {key: environment[key] for key in VERSIONS}, environment["time"][:10], tuple(points),
        model_shape=shape_digest(config),
    )  # fmt: skip


def _times(lm, trees: dict[tuple[str, int], DraftTree], repeats: int, top_k: int) -> dict[tuple[str, int], list]:
    """(shape, n) -> one (launch seconds, all seconds) a repeat."""
    times: dict[tuple[str, int], list] = {key: [] for key in trees}
    keys, rng = list(trees), Random(0)
    for repeat in range(-WARM_UP_ROUNDS, repeats):
        # In an order drawn anew: after the largest sizes the next few forwards are slow, and a fixed order would always
        # penalise n = 1, 2, 3.
        for key in rng.sample(keys, len(keys)):
            # A step follows one of about its size.
            lm.score(fresh(trees[key]))
            seconds = timed_forward(lm, trees[key], top_k)
            if repeat >= 0:
                times[key].append(seconds)
    return times


def _tree(shape: str, n_nodes: int, vocab_size: int) -> DraftTree:
    tokens = [i % vocab_size for i in range(n_nodes)]
    return chain(0, tokens[1:], CONTEXT, n_nodes) if shape == CHAIN else bushy_tree(n_nodes, tokens)


def roofline(
    shape: dict,
    bandwidth: float,
    flops: float,
    *,
    model: str,
    device: str,
    dtype: torch.dtype,
    node_counts: Sequence[int] = NODE_COUNTS,
    context_lengths: Sequence[int] = CONTEXT_LENGTHS,
) -> CostCurve:
    """The least that a forward can take, for a stand-in curve: no launches, no norms, no sampling, perfect overlap.

    t(n, L) = max(W b / bandwidth, 2 n W / flops)
            + max(2 layers kv_heads d (L + n) b / bandwidth, 4 layers heads d (L + n) n / flops)
    with W the elements of the matrices and the head (benchmarks/models/shapes.py), d the head's dimension, b the bytes
    of an element; `bandwidth` in bytes/s, `flops` in operations/s, a multiplication and an addition being two.
    """
    config, b = config_of(shape), dtype.itemsize
    points = []
    for length in sorted(set(context_lengths)):
        for n in sorted(set(node_counts)):
            parts = matrix_work(config, n, b), attention_work(config, n, length, b)
            t = sum(max(part.n_bytes / bandwidth, part.n_flops / flops) for part in parts)
            work = forward_work(config, n, length, b)
            points.append(Point(TREE, length, n, t, t, t, None, work.n_bytes, work.n_flops))
    today = datetime.now(UTC).date().isoformat()
    return CostCurve(
        "roofline", model, "none", device, _name(dtype), "none", "none", {}, today, tuple(points),
        model_shape=shape_digest(config),
    )  # fmt: skip


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
