"""Speed: tokens per second, speed-ups and their intervals, projections, and where the time of a step goes.

A `turn` is one recorded line without an error; a step is one target forward after prefill.
"""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from benchmarks.metrics.tree_counts import sizes_and_chains
from benchmarks.metrics.turns import Turns, ratio, steps

UNSTABLE_SPREAD = 0.05
RESAMPLED_AT_ONCE = 4_000_000  # numbers of a column, to bound the bootstrap's memory
STEP_PARTS = ("draft_s", "forward_s", "fetch_s", "walk_s", "commit_s", "observe_s")
HOST_PARTS = ("draft_s", "walk_s", "observe_s")


def tokens_per_second(turns: Turns) -> float | None:
    """Sum of emitted / sum of decode seconds, over prompts that every method of the cell finished.

    The prefill's token is in neither sum; making the drafter's tables is in the seconds.
    """
    return ratio(sum(steps(turns, "emitted")), sum(turn["decode_s"] for turn in turns))


def end_to_end_tokens_per_second(turns: Turns) -> float | None:
    """Output tokens / (prefill + decode) seconds."""
    n_tokens = sum(len(turn["output_ids"]) for turn in turns)
    return ratio(n_tokens, sum(turn["prefill_s"] + turn["decode_s"] for turn in turns))


def speed_up(turns: Turns, baseline: Turns) -> float | None:
    """tokens/s of the method / tokens/s of `ar`, same cell: the ratio of totals."""
    own, plain = tokens_per_second(turns), tokens_per_second(baseline)
    return None if own is None or not plain else own / plain


def mean_of_ratios(turns: Turns, baseline: Turns) -> float | None:
    """Mean over prompts of the per-prompt speed-up."""
    e, s, e0, s0 = _per_prompt(turns, baseline)
    fine = (e0 > 0) & (s > 0)
    return float(np.mean((e[fine] / s[fine]) / (e0[fine] / s0[fine]))) if fine.any() else None


def speed_up_interval(turns: Turns, baseline: Turns, seed: int = 0) -> tuple[float, float] | None:
    """95 % interval of the speed-up: paired bootstrap over prompts (BCa), ratio of totals.

    None where the prompts show no spread: fewer than two with a step, or all alike.
    """
    columns = _per_prompt(turns, baseline)
    columns = tuple(column[columns[2] > 0] for column in columns)  # a prompt without a step has nothing to resample
    ratios = (columns[0] / columns[1]) / (columns[2] / columns[3]) if len(columns[0]) > 1 else np.zeros(1)
    if np.ptp(ratios) == 0:  # below two prompts, or all alike: no spread to resample
        return None
    low, high = bootstrap_interval(columns, seed)
    return (float(low), float(high)) if np.isfinite([low, high]).all() else None


def bootstrap_interval(columns: Sequence[np.ndarray], seed: int, n_resamples: int = 5000) -> tuple:
    """95 % interval of (sum e / sum s) / (sum e0 / sum s0): low, high.

    columns: e, s, e0, s0, each [..., n_prompts]: emitted and seconds of the method and of plain decoding. Leading axes
    are samples of their own, with the same resampled indices.

    A bootstrap of n prompts is too narrow by sqrt((n - 1) / n), and by the normal's quantile in place of Student's; the
    level is raised by both (Hesterberg, 2015, What Teachers Should Know About the Bootstrap, section 5.3).
    """
    # Imported late: the other metrics need numpy alone, and it takes a second.
    from scipy.stats import bootstrap, norm, t

    def statistic(e, s, e0, s0, axis=-1):
        return (e.sum(axis) / s.sum(axis)) / (e0.sum(axis) / s0.sum(axis))

    batch = max(1, int(RESAMPLED_AT_ONCE // max(1, columns[0].size)))
    n = columns[0].shape[-1]
    level = 2 * norm.cdf((n / (n - 1)) ** 0.5 * t.ppf(0.975, n - 1)) - 1
    level = min(level, 1 - 2 / n_resamples)  # beyond it there is no resample
    options = {"axis": -1, "paired": True, "vectorized": True, "method": "BCa", "batch": batch, "rng": seed}
    return bootstrap(columns, statistic, n_resamples=n_resamples, confidence_level=level, **options).confidence_interval


def _per_prompt(turns: Turns, baseline: Turns) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Emitted and decode seconds of the method, then of the baseline, summed a prompt; equal prompts side by side.

    The turns of a conversation are one prompt: they are not independent of each other.
    """
    columns = []
    for arm in (turns, baseline):
        emitted: dict[str, float] = {}
        seconds: dict[str, float] = {}
        for turn in arm:
            prompt = turn["prompt_id"]
            emitted[prompt] = emitted.get(prompt, 0) + sum(turn["steps"]["emitted"])
            seconds[prompt] = seconds.get(prompt, 0) + turn["decode_s"]
        columns += [np.array([column[p] for p in sorted(column)], dtype=float) for column in (emitted, seconds)]
    return tuple(columns)


def repeat_spread(turns: Turns) -> float | None:
    """(largest - smallest) / smallest tokens/s over the repeats; None with one repeat. Above 5 %: unstable."""
    repeats = sorted({turn["repeat"] for turn in turns})
    speeds = [tokens_per_second([turn for turn in turns if turn["repeat"] == r]) for r in repeats]
    if len(speeds) < 2 or not all(speeds):
        return None
    return max(speeds) / min(speeds) - 1


def draft_overhead(turns: Turns) -> float | None:
    """(draft_s + observe_s + begin_s) / decode_s."""
    own = sum(steps(turns, "draft_s")) + sum(steps(turns, "observe_s")) + sum(turn["begin_s"] for turn in turns)
    return ratio(own, sum(turn["decode_s"] for turn in turns))


def step_milliseconds(turns: Turns) -> dict[str, float]:
    """Median milliseconds of each part of a step; empty without steps."""
    columns = {part: steps(turns, part) for part in STEP_PARTS}
    return {part: 1e3 * float(np.median(values)) for part, values in columns.items() if values}


def projected_speed_up(turns: Turns, t: Callable[[int, int, bool], float], *, host: bool = False) -> float | None:
    """Speed-up of the recorded steps on another machine, whose cost of a forward is t(nodes, context, is_chain).

    Seconds of plain decoding of the same text / seconds of the method: the sum of t(1, L) over the emitted tokens, each
    at its own context L, over the sum of t(n, L) over the steps. What is left out on both sides: prefill, commits, and
    the host's own work, unless `host` adds the method's recorded draft, walk and observe seconds (plain decoding has
    next to none). None without steps.
    """
    t = cache(t)
    plain_s = own_s = 0.0
    for turn in turns:
        columns = turn["steps"]
        n_nodes, is_chain = sizes_and_chains(columns)
        rows = zip(n_nodes, is_chain, columns["context"], columns["emitted"], strict=True)
        for n, chain, context, emitted in rows:
            own_s += t(int(n), int(context), bool(chain))
            plain_s += sum(t(1, int(context) + i, True) for i in range(int(emitted)))
        if host:
            own_s += sum(sum(columns[part]) for part in HOST_PARTS)
    return ratio(plain_s, own_s)
