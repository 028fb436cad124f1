"""The engine against its peers, measured in one run and interleaved: ratios, never bare seconds.

Peers are transformers' own greedy `generate()`, its prompt lookup and its bare forward, on the same model, dtype and
threads. No test asserts a time; `make perf` prints them and keeps them under results/perf.
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
from benchmarks.run.interleave import CellPrompt, schedule
from goose.drafters.goose import GooseDrafter
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from goose.engine.tree import DraftTree


@dataclass(frozen=True)
class Contestant:
    """Seconds of whole requests (prefill included) and what came out."""

    seconds: list[float]  # one per (prompt, repeat)
    outputs: list[list[int]]  # one per prompt


def with_generate(model, **options) -> Callable[[Sequence[int], int], list[int]]:
    """transformers' own generate(), greedy."""

    def run(ids: Sequence[int], n_new: int) -> list[int]:
        inputs = torch.tensor([ids], device=model.device)
        mask = torch.ones_like(inputs)
        out = model.generate(inputs, attention_mask=mask, max_new_tokens=n_new, do_sample=False, **options)
        return out[0, len(ids) :].tolist()

    return run


def with_decode(lm: TreeLM, drafter, stop_ids, node_budget: int = 60) -> Callable[[Sequence[int], int], list[int]]:
    """Our loop with one drafter."""

    def run(ids: Sequence[int], n_new: int) -> list[int]:
        return decode(lm, ids, drafter, max_new_tokens=n_new, stop_ids=stop_ids, node_budget=node_budget).output_ids

    return run


def race(
    runs: dict[str, Callable], prompts: Sequence[Sequence[int]], n_new: int, repeats: int
) -> dict[str, Contestant]:
    """Every one of `runs` on every prompt, in the order of a measured cell; one warm-up request each."""
    for run in runs.values():
        run(prompts[0], min(8, n_new))
    results = {name: Contestant([], []) for name in runs}
    asked = [CellPrompt(str(i), tuple(ids), "") for i, ids in enumerate(prompts)]
    for job in schedule(asked, list(runs), repeats):
        start = perf_counter()
        output = runs[job.method](job.prompt.ids, n_new)
        results[job.method].seconds.append(perf_counter() - start)
        if job.repeat == 0:
            results[job.method].outputs.append(output)
    return results


def peers(model, lm: TreeLM, stop_ids) -> dict[str, Callable]:
    """Plain decoding and prompt lookup, ours and transformers', at the same n-gram size and draft length."""
    return {
        "ours plain": with_decode(lm, AutoregressiveDrafter(), stop_ids),
        "generate greedy": with_generate(model),
        "ours pld": with_decode(lm, PromptLookupDrafter(max_ngram=3, num_tokens=10), stop_ids),
        "generate lookup": with_generate(model, prompt_lookup_num_tokens=10, max_matching_ngram_size=3),
    }


def methods(lm: TreeLM, stop_ids) -> dict[str, Callable]:
    """The reference's setting: plain, GOOSE with its elastic budget, and its context matches alone."""
    return {
        "ours plain": with_decode(lm, AutoregressiveDrafter(), stop_ids),
        "goose elastic": with_decode(lm, GooseDrafter(budget_mode="elastic"), stop_ids),
        "goose context only": with_decode(lm, GooseDrafter(use_adjacency=False), stop_ids),
        "goose strict": with_decode(lm, GooseDrafter(), stop_ids),
    }


def verify_ms(
    model, lm: TreeLM, ids: Sequence[int], sizes: Sequence[int] = (1, 2, 4, 8, 16, 32, 64), repeats: int = 15
) -> dict[int, dict[str, float]]:
    """n -> median milliseconds of a forward of n tree nodes after `ids`: the stock model's, our engine "eager" (the
    model's own layers), and ours; interleaved.

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
    """Logits [n, V] of a tree after `ids` by the unmodified model."""
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
