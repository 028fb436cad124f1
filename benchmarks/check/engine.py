"""The engine on its own: is it exact on this device, how near the limit does it run, what does the host add?

Parts of scripts/device_check.py and scripts/perf.py. Latency does not depend on weight values, and exactness is a
comparison of two engines over the same ones, so random weights serve. Needs torch, transformers and numpy alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np
import torch

from baselines.autoregressive import AutoregressiveDrafter
from benchmarks import metrics
from benchmarks.models.shapes import forward_work, random_model
from goose.drafters.goose import GooseDrafter
from goose.engine.cache import TreeCache
from goose.engine.decode import decode
from goose.engine.families import head_dim
from goose.engine.lm import TreeLM
from goose.engine.tree import DraftTree

LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 16384,
    "rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    "tie_word_embeddings": False,
}  # fmt: skip
SMALL = {
    **LLAMA_8B, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "vocab_size": 1024,
}  # fmt: skip


@dataclass(frozen=True)
class Exactness:
    """Two engines over one model in fp32, on the same trees and paths."""

    max_difference: float  # of any logit
    logit_spread: float  # largest absolute logit, to read it against
    equal_choices: float  # share of rows with the same argmax
    equal_outputs: bool  # of decoding with GOOSE, token for token
    n_rows: int


def exactness(device: str, shape: dict = SMALL, n_trees: int = 40, seed: int = 0) -> Exactness:
    """Engine "graph" against "eager": scattered trees of 1 to 128 nodes and commits, then whole requests."""
    torch.backends.cuda.matmul.allow_tf32 = False
    model = random_model(shape, device, torch.float32)
    rng = np.random.default_rng(seed)
    eager, graph = TreeLM(model, engine="eager"), TreeLM(model, engine="graph")
    prompt = rng.integers(shape["vocab_size"], size=200).tolist()
    for lm in (eager, graph):
        lm.prefill(prompt, reserve=n_trees * 12 + 160)
    worst = spread = 0.0
    equal = n_rows = 0
    for _ in range(n_trees):
        tree = scattered_tree(rng, int(rng.integers(1, 129)), shape["vocab_size"])
        a, b = eager.score(tree), graph.score(tree)
        worst, spread = max(worst, float((a - b).abs().max())), max(spread, float(a.abs().max()))
        equal, n_rows = equal + int((a.argmax(-1) == b.argmax(-1)).sum()), n_rows + tree.n_nodes
        path = np.flatnonzero(tree.ancestor_mask[rng.integers(tree.n_nodes)]).tolist()[:12]
        for lm in (eager, graph):
            lm.commit(path)
    outputs = [
        decode(lm, prompt[:50] * 3, GooseDrafter(), max_new_tokens=96, node_budget=60).output_ids
        for lm in (eager, graph)
    ]
    return Exactness(worst, spread, equal / n_rows, outputs[0] == outputs[1], n_rows)


def scattered_tree(rng: np.random.Generator, n_nodes: int, vocab_size: int) -> DraftTree:
    """A tree of n_nodes whose parents are drawn at random; tokens differ, so siblings do."""
    tokens = rng.choice(vocab_size, size=n_nodes, replace=False).tolist()
    return DraftTree.from_lists(tokens, [-1, *(int(rng.integers(i)) for i in range(1, n_nodes))])


@dataclass(frozen=True)
class PlainSpeed:
    tokens_per_s: float  # plain decoding, the loop and all
    limit_tokens_per_s: float  # weights and K/V read once a token at `bandwidth`

    @property
    def share_of_limit(self) -> float:
        return self.tokens_per_s / self.limit_tokens_per_s


def plain_speed(lm: TreeLM, bandwidth: float, context: int = 256, n_new: int = 128) -> PlainSpeed:
    """Plain decoding after `context` tokens against the bytes that it must read, `bandwidth` in bytes/s."""
    ids = np.random.default_rng(0).integers(lm.vocab_size, size=context).tolist()
    seconds = []
    for _ in range(3):
        generation = decode(lm, ids, AutoregressiveDrafter(), max_new_tokens=n_new)
        seconds.append(generation.decode_s / len(generation.steps))
    n_bytes = forward_work(lm.model.config, 1, context + n_new // 2, lm.dtype.itemsize).n_bytes
    return PlainSpeed(1 / median(seconds), bandwidth / n_bytes)


def host_work(
    lm: TreeLM, prompts: Sequence[Sequence[int]], n_new: int = 96, node_budget: int = 60
) -> dict[str, float | int]:
    """GOOSE's host work per step (draft, walk, observe: metrics.HOST_PARTS) beside launching and the whole step.

    Median milliseconds over the steps that drew at least half of `node_budget`; empty where none did. `mask_ms` is a
    part of launching: what the engine derives of a fresh tree before its forward.
    """
    decode(lm, prompts[0], GooseDrafter(), max_new_tokens=8, node_budget=node_budget)  # warm-up
    rows = []
    for ids in prompts:
        steps = decode(lm, ids, GooseDrafter(), max_new_tokens=n_new, node_budget=node_budget).steps
        for i, tree in enumerate(steps.trees):
            if tree.n_nodes >= node_budget // 2:
                row = {name.removesuffix("_s"): getattr(steps, name)[i] for name in metrics.STEP_PARTS}
                host = sum(row[name.removesuffix("_s")] for name in metrics.HOST_PARTS)
                rows.append({**row, "mask": _seconds_of_mask(tree), "host": host, "step": sum(row.values())})
    if not rows:
        return {}
    ms = {name: 1e3 * median(row[name] for row in rows) for name in rows[0]}
    ms["launch"] = ms["forward"]  # on a GPU; on a CPU it is the forward itself
    kept = ("draft", "walk", "observe", "host", "mask", "launch", "step")
    return {**{f"{k}_ms": ms[k] for k in kept}, "host_share": ms["host"] / ms["step"], "n_steps": len(rows)}


def repeating_prompt(vocab_size: int) -> list[int]:
    """Random ids, four times over, so that GOOSE's trees are full."""
    return np.random.default_rng(1).integers(vocab_size, size=64).tolist() * 4


def _seconds_of_mask(tree: DraftTree) -> float:
    fresh = DraftTree(tree.tokens, tree.parents, tree.sources, tree.scores)
    start = perf_counter()
    _ = fresh.depths, fresh.ancestor_mask
    return perf_counter() - start


def commit_us(lm: TreeLM, context: int, n_path: int = 8, repeats: int = 300) -> float:
    """Median microseconds of committing a scattered path after `context` tokens, on the model's K/V shape."""
    config = lm.model.config
    devices = [lm.device] * config.num_hidden_layers
    cache = TreeCache(devices, config.num_key_value_heads, head_dim(config), lm.dtype)
    cache.reset(context + 64)
    path = [0, *range(2, 2 * n_path, 2)]
    samples = []
    for _ in range(repeats):
        cache.n_committed = context
        start = perf_counter()
        cache.commit(path)
        samples.append(perf_counter() - start)
    return 1e6 * median(samples)


def replay_rows(lines: dict[str, list[dict]]) -> list[dict]:
    """One row per method of a teacher-forced timed replay (benchmarks/replay/timed.py), `ar` first among the lines."""
    baseline = next(iter(lines.values()))
    return [
        {
            "method": method,
            "tokens_per_s": metrics.tokens_per_second(turns),
            "speed_up": metrics.speed_up(turns, baseline),
            "MAL": metrics.mean_acceptance_length(turns),
            "nodes": metrics.nodes_per_step(turns)[0],
        }
        for method, turns in lines.items()
    ]


def as_text(rows: Sequence[dict]) -> str:
    """Rows of like keys as an aligned table, without a library for it."""
    if not rows:
        return "(none)"
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)


def _cell(value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
