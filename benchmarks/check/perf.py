"""What the engine costs beside its peers, all measured in one run and interleaved: ratios, never bare seconds.

Peers are transformers' own greedy `generate()` and its prompt lookup, on the same model, dtype and threads. No test
asserts any of this; `make perf` prints it and keeps it under results/perf.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch
from transformers import DynamicCache

from baselines.autoregressive import AutoregressiveDrafter
from baselines.pld import PromptLookupDrafter
from benchmarks.cost.measure import bushy_tree
from benchmarks.errors import UserError
from goose.drafters.goose import GooseDrafter
from goose.engine.cache import TreeCache
from goose.engine.decode import decode
from goose.engine.families import head_dim
from goose.engine.lm import TreeLM
from goose.engine.tree import DraftTree


@dataclass(frozen=True)
class Arm:
    """Seconds of whole requests (prefill included) and what came out."""

    seconds: list[float]  # one a (prompt, repeat)
    outputs: list[list[int]]  # one a prompt


def generate_arm(model, **options) -> Callable[[Sequence[int], int], list[int]]:
    """transformers' own generate(), greedy."""

    def run(ids: Sequence[int], n_new: int) -> list[int]:
        inputs = torch.tensor([ids], device=model.device)
        mask = torch.ones_like(inputs)
        out = model.generate(inputs, attention_mask=mask, max_new_tokens=n_new, do_sample=False, **options)
        return out[0, len(ids) :].tolist()

    return run


def decode_arm(lm: TreeLM, drafter, stop_ids, node_budget: int = 60) -> Callable[[Sequence[int], int], list[int]]:
    """Our loop with one drafter."""

    def run(ids: Sequence[int], n_new: int) -> list[int]:
        return decode(lm, ids, drafter, max_new_tokens=n_new, stop_ids=stop_ids, node_budget=node_budget).output_ids

    return run


def race(arms: dict[str, Callable], prompts: Sequence[Sequence[int]], n_new: int, repeats: int) -> dict[str, Arm]:
    """Every arm on every prompt, side by side, the order rotated; one warm-up request an arm."""
    names = list(arms)
    for run in arms.values():
        run(prompts[0], min(8, n_new))
    results = {name: Arm([], []) for name in names}
    for repeat in range(repeats):
        for i, ids in enumerate(prompts):
            first = (i + repeat) % len(names)
            for name in names[first:] + names[:first]:
                start = perf_counter()
                output = arms[name](ids, n_new)
                results[name].seconds.append(perf_counter() - start)
                if repeat == 0:
                    results[name].outputs.append(output)
    return results


def peer_arms(model, lm: TreeLM, stop_ids) -> dict[str, Callable]:
    """Plain decoding and prompt lookup, ours and transformers', at the same n-gram size and draft length."""
    return {
        "ours plain": decode_arm(lm, AutoregressiveDrafter(), stop_ids),
        "generate greedy": generate_arm(model),
        "ours pld": decode_arm(lm, PromptLookupDrafter(max_ngram=3, num_tokens=10), stop_ids),
        "generate lookup": generate_arm(model, prompt_lookup_num_tokens=10, max_matching_ngram_size=3),
    }


def method_arms(lm: TreeLM, stop_ids) -> dict[str, Callable]:
    """The reference's setting: plain, GOOSE with its elastic budget, and its context matches alone."""
    return {
        "ours plain": decode_arm(lm, AutoregressiveDrafter(), stop_ids),
        "goose elastic": decode_arm(lm, GooseDrafter(budget_mode="elastic"), stop_ids),
        "goose context only": decode_arm(lm, GooseDrafter(use_adjacency=False), stop_ids),
        "goose strict": decode_arm(lm, GooseDrafter(), stop_ids),
    }


def verify_ms(
    model, lm: TreeLM, ids: Sequence[int], sizes: Sequence[int] = (1, 2, 4, 8, 16, 32, 64), repeats: int = 15
) -> dict[int, dict[str, float]]:
    """n -> median milliseconds of a forward of n tree nodes behind `ids`: the stock model's, the same engine's without
    stand-ins, and ours; interleaved.

    Stock: transformers' own forward with its own cache, position ids and an additive tree mask.
    """
    trees = {n: bushy_tree(n, range(n)) for n in sizes}
    lms = {"eager": TreeLM(model, engine="eager"), "ours": lm}
    for one in lms.values():
        one.prefill(ids, reserve=max(sizes))
    scorers = {"stock": stock_scorer(model, ids), **{name: one.score for name, one in lms.items()}}
    times = {(name, n): [] for name in scorers for n in sizes}
    for repeat in range(repeats + 1):
        for n, tree in trees.items():
            for name, score in scorers.items():
                start = perf_counter()
                score(DraftTree(tree.tokens, tree.parents, tree.sources, tree.scores))
                if repeat:
                    times[name, n].append(perf_counter() - start)
    return {n: {name: 1e3 * median(times[name, n]) for name in scorers} for n in sizes}


def stock_scorer(model, ids: Sequence[int]) -> Callable[[DraftTree], torch.Tensor]:
    """Logits [n, V] of a tree behind `ids` by the unmodified model."""
    argument = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(input_ids=torch.tensor([ids]), use_cache=True, **{argument: cache})

    @torch.inference_mode()
    def score(tree: DraftTree) -> torch.Tensor:
        mask = torch.zeros((tree.n_nodes, len(ids) + tree.n_nodes), dtype=model.dtype)
        mask[:, len(ids) :].masked_fill_(torch.from_numpy(~tree.ancestor_mask), -torch.inf)
        logits = model(
            input_ids=torch.from_numpy(tree.tokens)[None],
            position_ids=torch.from_numpy(len(ids) + tree.depths)[None],
            attention_mask=mask[None, None],
            **{argument: cache},
        ).logits[0]
        cache.crop(-tree.n_nodes)
        return logits

    return score


def host_work_ms(lm: TreeLM, prompts: Sequence[Sequence[int]], n_new: int, node_budget: int = 60) -> dict[str, float]:
    """Median milliseconds a step of GOOSE's host work: draft, mask, walk, observe; no forward, no top-k.

    Over the steps that drew at least half the budget.
    """
    rows: list[dict[str, float]] = []
    for ids in prompts:
        steps = decode(lm, ids, GooseDrafter(), max_new_tokens=n_new, node_budget=node_budget).steps
        for i, tree in enumerate(steps.trees):
            if tree.n_nodes >= node_budget // 2:
                parts = {name: getattr(steps, f"{name}_s")[i] for name in ("draft", "walk", "observe")}
                rows.append({**parts, "mask": _seconds_of_mask(tree)})
    if not rows:
        raise UserError(f"no step drew {node_budget // 2} nodes; measure on more prompts or more new tokens")
    parts = {name: 1e3 * median(row[name] for row in rows) for name in rows[0]}
    return {**parts, "sum": 1e3 * median(sum(row.values()) for row in rows)}


def _seconds_of_mask(tree: DraftTree) -> float:
    """What the engine derives of a fresh tree before its forward: depths and ancestors."""
    fresh = DraftTree(tree.tokens, tree.parents, tree.sources, tree.scores)
    start = perf_counter()
    _ = fresh.depths, fresh.ancestor_mask
    return perf_counter() - start


def commit_us(lm: TreeLM, context: int, n_path: int = 8, repeats: int = 300) -> float:
    """Median microseconds of committing a scattered path behind `context` tokens, on the model's K/V shape."""
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
