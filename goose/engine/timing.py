"""Times a TreeLM's forwards in the least time that gives steady medians: few sizes, where the curve bends.

Knows no drafter, no text and no file; what the seconds are used for is cost.py's.

Dimension letters: n = nodes of a forward, root included, L = committed tokens before it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter

import numpy as np

from goose.engine.graph import NODE_BUCKETS
from goose.engine.machine import synchronize
from goose.engine.tree import CONTEXT, DraftTree, TreeBuilder
from goose.engine.verify import Sampling, fetch

TOP_K = 10  # ids and scores fetched of every row, as a drafter with tables asks for
FINE = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)  # a CPU's products work in blocks of six rows or so
COARSE = (1, 2, 4, 8, 16, 32, 64)
SHORT, LONG, LONGER = 128, 512, 1024  # context lengths
MIN_VISITS, MAX_VISITS = 3, 12  # of a size; each gives two samples
STEADY = 0.015  # standard error of a median, as a share of it, below which a size is left alone
LIMIT_S, SLOW_LIMIT_S, SLOW_S = 42.0, 90.0, 0.15  # time for all; that of models whose forward of one node is slower

Progress = Callable[[float], None]  # is told the share of the work that is done, 0 to 1


@dataclass(frozen=True)
class Timed:
    contexts: tuple[int, ...]
    sizes: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]  # [context][size], medians
    error: float  # standard error of the least certain median, as a share of it


def measure_quickly(lm, limit_s: float | None = None, on_progress: Progress = lambda share: None) -> Timed:
    """Times a TreeLM, whose sequence in flight is forgotten.

    limit_s: about how long it may take; None: three quarters of a minute, a minute and a half for slow models.
    """
    start = perf_counter()
    first_s = _first_pass(lm)
    limit = limit_s or (LIMIT_S if first_s[1] < SLOW_S else SLOW_LIMIT_S)
    contexts, sizes = _plan(lm, first_s, limit)
    trees = {n: bushy_tree(n, [i % lm.vocab_size for i in range(n)]) for n in sizes}
    rng = np.random.default_rng(0)
    rows, worst = [], 0.0
    for done, context in enumerate(contexts):
        lm.prefill(rng.integers(lm.vocab_size, size=context).tolist(), reserve=sizes[-1] + 1)
        began = perf_counter()
        until = began + (limit - (began - start)) / (len(contexts) - done)  # what is left, shared evenly

        def tell(done=done, began=began, until=until) -> None:
            on_progress((done + min(1.0, (perf_counter() - began) / max(1e-9, until - began))) / len(contexts))

        samples = _samples(lm, trees, until, tell)
        rows.append(tuple(float(np.median(samples[n])) for n in sizes))
        worst = max(worst, *(_error_of_median(samples[n]) for n in sizes))
    on_progress(1.0)
    return Timed(contexts, sizes, tuple(rows), round(worst, 3))


def _first_pass(lm) -> dict[int, float]:
    """Seconds of one forward of 1 and of 64 nodes after few tokens, or of as many as the model has room for."""
    most = min(FINE[-1], max(1, lm.max_positions // 2))
    lm.prefill([0] * min(16, lm.max_positions - most), reserve=most + 1)
    seconds = {}
    for n in (1, most):
        tree = bushy_tree(n, [i % lm.vocab_size for i in range(n)])
        lm.score(fresh(tree))  # the first of a size also makes what later ones reuse
        seconds[n] = timed_forward(lm, tree, TOP_K)[1]
    return seconds


def _plan(lm, first_s: dict[int, float], limit: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Context lengths and sizes such that each is visited often enough within the limit; at least a coarse row."""
    most = max(first_s)
    per_token = first_s[most] / most

    def fits(contexts: Sequence[int], sizes: Sequence[int]) -> bool:
        forwards = sum(np.interp(n, list(first_s), list(first_s.values())) for n in sizes)
        # Three forwards a visit and one round to warm up; longer contexts cost some more.
        return sum(contexts) * per_token + 1.3 * len(contexts) * forwards * (3 * MIN_VISITS + 1) < limit

    if lm.engine == "graph":  # a CUDA graph serves all sizes up to its own
        fine = coarse = tuple(n for n in NODE_BUCKETS if n <= most)
    else:
        fine, coarse = (tuple(n for n in sizes if n <= most) for sizes in (FINE, COARSE))
    room = lm.max_positions - max(fine)
    two, one = [(SHORT, LONGER), (SHORT, LONG)], [(SHORT,)]  # fewer sizes lose less than the slope of the context
    possible = [
        (tuple(dict.fromkeys(max(1, min(length, room)) for length in lengths)), sizes)
        for several in (two, one)
        for sizes in (fine, coarse)
        for lengths in several
    ]
    return next((plan for plan in possible if fits(*plan)), possible[-1])


def _samples(lm, trees: dict[int, DraftTree], until: float, tell: Callable[[], None]) -> dict[int, list[float]]:
    """Size -> seconds of its forwards after the prefilled context. Sizes take turns in an order drawn anew each round,
    since the forwards after the largest sizes are slow for a while; a size that is steady is left out of later rounds.
    """
    samples: dict[int, list[float]] = {n: [] for n in trees}
    rng, left = Random(0), list(trees)
    for n in rng.sample(left, len(left)):
        lm.score(fresh(trees[n]))
    for visit in range(MAX_VISITS):
        for n in rng.sample(left, len(left)):
            is_late = perf_counter() > until
            if is_late and samples[n]:
                continue
            if not is_late:
                lm.score(fresh(trees[n]))  # a step follows one of about its size
            samples[n] += [timed_forward(lm, trees[n], TOP_K)[1] for _ in range(1 if is_late else 2)]
            tell()
        if perf_counter() > until:
            break
        if visit + 1 >= MIN_VISITS:
            left = [n for n in left if _error_of_median(samples[n]) > STEADY]
        if not left:
            break
    return samples


def _error_of_median(seconds: Sequence[float]) -> float:
    """Standard error as a share of the median, from the quartiles of a normal distribution."""
    low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75])
    return 1.253 * float(high - low) / 1.349 / len(seconds) ** 0.5 / float(median)


def timed_forward(lm, tree: DraftTree, top_k: int) -> tuple[float, float]:
    """Seconds until the forward was launched, and until the host has what it needs of it."""
    tree = fresh(tree)
    synchronize(lm.device)
    start = perf_counter()
    logits = lm.score(tree)
    launched = perf_counter()
    fetch(logits, lm.n_committed + 1 + tree.depths, Sampling(), top_k)
    synchronize(lm.device)
    return launched - start, perf_counter() - start


def fresh(tree: DraftTree) -> DraftTree:
    """The tree without its derived depths and mask: a step's are new, so deriving them is part of its cost."""
    return DraftTree(tree.tokens, tree.parents, tree.sources, tree.scores)


def bushy_tree(n_nodes: int, tokens: Sequence[int]) -> DraftTree:
    """GOOSE's outline: half of the drafted nodes are a spine, the others hang on root and spine in turn.

    tokens: one a node, the root's first; siblings must be distinct.
    """
    builder = TreeBuilder(tokens[0], n_nodes)
    n_spine = n_nodes // 2
    spine = [0, *builder.add_chain(0, tokens[1 : 1 + n_spine], CONTEXT)]
    for i, token in enumerate(tokens[1 + n_spine :]):
        builder.add(spine[i % len(spine)], token, CONTEXT)
    return builder.build()
