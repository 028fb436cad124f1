"""Compares outputs with plain decoding's, and explains a divergence in half precision by judging it again in fp32.

In fp32 every output must be equal; in half precision two tokens may be so close that rounding decides. It knows ids
and logits, not methods.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch

from benchmarks.metrics.turns import turn_key
from goose.engine.verify import Sampling, choice_scores


@dataclass(frozen=True)
class Divergence:
    """Where an output first differs from plain decoding's, and why."""

    prompt_id: str
    turn: int
    method: str
    repeat: int
    index: int  # of the first differing output token
    baseline_token: int | None  # None: the output ended there
    method_token: int | None
    margin: float | None  # top-1 minus top-2 score at that prefix, in the run's own precision
    gap_fp32: float | None  # how far the worse of the two tokens lies below the best, in fp32
    spread: float | None  # largest difference between the run's precision and fp32 over that row
    verdict: str  # "tie" | "broken"


def first_difference(baseline: Sequence[int], other: Sequence[int]) -> int | None:
    """Index of the first token in which two outputs differ (an ended output differs from a longer one); None: equal."""
    for i, (a, b) in enumerate(zip(baseline, other, strict=False)):
        if a != b:
            return i
    return None if len(baseline) == len(other) else min(len(baseline), len(other))


def divergences(
    lines: Sequence[dict],  # recorded lines of all methods
    baseline: str,
    prompts: dict[tuple[str, int], Sequence[int]],  # (prompt id, turn) -> the ids it was asked with
    judge: Callable[[Sequence[int], int, int], dict] | None,  # (prefix, token, token) -> margin, gap_fp32, spread
) -> list[dict]:
    """Every output, of every repeat, that differs from the baseline's first. Without a judge it is `broken`.

    tie: both tokens lie within twice the numeric spread of the best one in fp32 (each logit may be off by the spread).
    """
    finished = [line for line in lines if line["error"] is None]
    expected = {(x["prompt_id"], x["turn"]): x["output_ids"] for x in reversed(finished) if x["method"] == baseline}
    found = []
    for line in finished:
        place, output = (line["prompt_id"], line["turn"]), line["output_ids"]
        plain = expected.get(place)
        index = None if plain is None else first_difference(plain, output)
        if index is None:
            continue
        a = plain[index] if index < len(plain) else None
        b = output[index] if index < len(output) else None
        facts = {"margin": None, "gap_fp32": None, "spread": None}
        verdict = "broken"
        if judge is not None and a is not None and b is not None:
            facts = judge([*prompts[place], *plain[:index]], a, b)
            verdict = "tie" if facts["gap_fp32"] <= 2 * facts["spread"] else "broken"
        found.append(asdict(Divergence(*place, line["method"], line["repeat"], index, a, b, **facts, verdict=verdict)))
    return found


def fp32_judge(lm, lm_fp32, sampling: Sampling) -> Callable[[Sequence[int], int, int], dict]:
    """A judge from the run's own TreeLM and an fp32 one of the same weights."""

    def judge(prefix: Sequence[int], a: int, b: int) -> dict:
        own, fp32 = (choice_scores(m.prefill(prefix, reserve=0), len(prefix), sampling)[0].cpu() for m in (lm, lm_fp32))
        top = torch.topk(own, 2).values
        return {
            "margin": float(top[0] - top[1]),
            "gap_fp32": float(fp32.max() - min(fp32[a], fp32[b])),
            "spread": float((own - fp32).abs().max()),
        }

    return judge


@dataclass(frozen=True)
class Losslessness:
    n_outputs: int  # one per prompt, turn and repeat
    n_equal: int
    n_ties: int

    @property
    def broken(self) -> bool:
        return self.n_equal + self.n_ties < self.n_outputs

    def __str__(self) -> str:
        if self.n_outputs == 0:
            return "n/a"
        parts = [f"{self.n_equal}/{self.n_outputs} equal"]
        if self.n_ties:
            parts.append(f"{self.n_ties} ties")
        if self.broken:
            parts.append(f"{self.n_outputs - self.n_equal - self.n_ties} BROKEN")
        return ", ".join(parts)


def losslessness(lines: Sequence[dict], method: str, divergences: Sequence[dict]) -> Losslessness:
    """Outputs equal to plain decoding's; the others by the verdict recorded for them (benchmarks/metrics/lossless.py).

    Over all that the method finished, also where another method failed.
    """
    outputs = {turn_key(x) for x in lines if x["method"] == method and x["error"] is None}
    differ = [d for d in divergences if d["method"] == method]
    n_ties = sum(d["verdict"] == "tie" for d in differ)
    return Losslessness(len(outputs), len(outputs) - len(differ), n_ties)
