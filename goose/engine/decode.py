"""The decoding loop. Read this file first: every method, plain decoding included, is one Drafter in this one loop.

    context   = prompt ids + emitted ids
    root      = the last context token; its K/V are not in the cache yet
    a step    = draft a tree, score all its nodes in one forward, walk to the accepted path, emit path + bonus, commit

The loop knows ids, trees and logits. It reads the clock around each part of a step and keeps no policy of its own.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from operator import index
from time import perf_counter

import numpy as np
import torch

from goose.engine.contract import Drafter, NeedsModel, Prefill
from goose.engine.lm import TreeLM
from goose.engine.machine import synchronize
from goose.engine.tree import DraftTree
from goose.engine.verify import Sampling, fetch, walk


@dataclass
class Steps:
    """One entry a step in every column; prefill is not a step. Times in seconds of host wall clock."""

    trees: list[DraftTree] = field(default_factory=list)
    paths: list[list[int]] = field(default_factory=list)  # accepted node indices, root first
    emitted: list[int] = field(default_factory=list)  # tokens added to the output, after cutting at stop and limit
    context: list[int] = field(default_factory=list)  # committed tokens before the step: the forward's K/V length
    draft_s: list[float] = field(default_factory=list)
    forward_s: list[float] = field(default_factory=list)  # launching the forward; all of it on a CPU
    fetch_s: list[float] = field(default_factory=list)  # argmax, top-k, and waiting for the device
    walk_s: list[float] = field(default_factory=list)
    commit_s: list[float] = field(default_factory=list)
    observe_s: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.emitted)


@dataclass(frozen=True)
class Generation:
    """One decoded request."""

    output_ids: list[int]  # emitted ids: the prompt is not in it, a stop id that ended it is
    stop_reason: str  # "stop" a stop id was emitted | "length" the limit | "positions" the model's last position
    prefill_s: float  # prompt forward and first token
    decode_s: float  # everything after it, the making of drafter tables included
    begin_s: float  # the part of decode_s spent in Drafter.begin
    steps: Steps


def decode(
    model,
    prompt_ids: Sequence[int] | torch.Tensor,
    drafter: Drafter,
    *,
    max_new_tokens: int = 128,
    stop_ids: Collection[int] = (),
    node_budget: int = 60,
    sampling: Sampling = Sampling(),  # noqa: B008 (frozen)
) -> Generation:
    """Decodes one request with `drafter`; the output equals plain decoding's whatever the drafter proposes.

    `model`: a Hugging Face decoder, or a TreeLM around one (keep it for many requests).
    `prompt_ids`: ids of one sequence, a list or a tensor [L] or [1, L].
    A drafter that has to be prepared for the model is, before the clock starts (contract.NeedsModel).
    Raises ValueError for a prompt, model or limit that cannot be decoded, NonFiniteLogits when the model breaks.
    """
    lm = model if hasattr(model, "n_committed") else TreeLM(model)
    prompt = _one_sequence(prompt_ids, lm.vocab_size)
    limit, limit_reason = _output_limit(lm, prompt, max_new_tokens)
    stop = _stop_set(stop_ids)
    context = list(prompt)
    steps = Steps()
    if isinstance(drafter, NeedsModel):
        drafter.prepare(lm)

    room = limit + node_budget + drafter.overdraft
    lm.reserve(len(prompt) + room)
    synchronize(lm.device)
    t_start = perf_counter()
    logits = lm.prefill(prompt, reserve=room)
    first = fetch(logits, np.array([len(prompt)]), sampling, top_k=0).next_tokens[0]
    synchronize(lm.device)
    t_prefilled = perf_counter()
    drafter.begin(list(prompt), Prefill(first, stop, lm.prompt_top_k, lm.vocab_size))
    t_begun = perf_counter()

    context.append(first)
    stop_reason = _stop_reason(context, len(prompt), limit, limit_reason, stop)
    while stop_reason is None:
        t0 = perf_counter()
        n_context, root = len(context), context[-1]
        tree = drafter.draft(context, node_budget)
        if len(context) != n_context or context[-1] != root:
            raise ValueError("the drafter changed the context it was shown; it may only read it")
        tree = _checked(tree, context, node_budget + drafter.overdraft, lm)
        t1 = perf_counter()
        logits = lm.score(tree)
        t2 = perf_counter()
        n_committed = lm.n_committed
        scored = fetch(logits, n_committed + 1 + tree.depths, sampling, drafter.top_k)
        t3 = perf_counter()
        verdict = walk(tree, scored.next_tokens)
        path = list(verdict.path)
        accepted = [scored.next_tokens[node] for node in path]  # each node's child on the path is that token
        emitted = _cut(accepted, limit - (len(context) - len(prompt)), stop)
        context += emitted
        stop_reason = _stop_reason(context, len(prompt), limit, limit_reason, stop)
        t4 = t5 = t6 = perf_counter()
        if stop_reason is None:
            lm.commit(path)
            t5 = perf_counter()
            drafter.observe(tree, verdict, scored)
            t6 = perf_counter()

        steps.trees.append(tree)
        steps.paths.append(path)
        steps.emitted.append(len(emitted))
        steps.context.append(n_committed)
        steps.draft_s.append(t1 - t0)
        steps.forward_s.append(t2 - t1)
        steps.fetch_s.append(t3 - t2)
        steps.walk_s.append(t4 - t3)
        steps.commit_s.append(t5 - t4)
        steps.observe_s.append(t6 - t5)

    synchronize(lm.device)
    return Generation(
        output_ids=context[len(prompt) :],
        stop_reason=stop_reason,
        prefill_s=t_prefilled - t_start,
        decode_s=perf_counter() - t_prefilled,
        begin_s=t_begun - t_prefilled,
        steps=steps,
    )


def _one_sequence(prompt_ids: Sequence[int] | torch.Tensor, vocab_size: int) -> list[int]:
    """A list of ids from a list, array or tensor of shape [L] or [1, L]."""
    try:
        ids = prompt_ids.cpu().numpy() if isinstance(prompt_ids, torch.Tensor) else np.asarray(prompt_ids)
    except ValueError as error:  # rows of different lengths
        raise ValueError(
            f"a prompt is whole numbers of shape [L] or [1, L], got rows of different lengths ({error}); "
            "decode the prompts one after the other"
        ) from error
    if ids.size == 0:
        raise ValueError("the prompt is empty: it needs at least one token (a BOS, say) to predict from")
    if ids.ndim == 2 and ids.shape[0] != 1:
        raise ValueError(
            f"batch size must be 1, got {ids.shape[0]} sequences: trees of different shapes do not batch; "
            "decode the prompts one after the other"
        )
    if ids.ndim not in (1, 2) or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(
            f"a prompt is whole numbers of shape [L] or [1, L], got {ids.dtype} of shape {list(ids.shape)}"
        )
    prompt = ids.reshape(-1).tolist()
    _refuse_unknown_ids(prompt, vocab_size, "the prompt")
    return prompt


def _stop_set(stop_ids: Collection[int]) -> frozenset[int]:
    try:
        return frozenset(index(token) for token in stop_ids)
    except TypeError as error:
        raise ValueError(f"stop_ids is a collection of whole numbers, [14] for one; got {stop_ids!r}") from error


def _refuse_unknown_ids(ids: list[int], vocab_size: int, whose: str) -> None:
    """On a GPU an id outside the embedding would end the process."""
    low, high = min(ids), max(ids)  # of a list: right after a forward numpy's reductions cost ten times as much
    if low < 0 or high >= vocab_size:
        raise ValueError(
            f"{whose} has id {low if low < 0 else high}, and the model's vocabulary is 0 to {vocab_size - 1}"
        )


def _output_limit(lm, prompt: list[int], max_new_tokens: int) -> tuple[int, str]:
    """How many tokens may be emitted, and what to call it when they have been."""
    if not isinstance(max_new_tokens, Integral) or max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be a whole number >= 1, got {max_new_tokens!r}")
    room = lm.max_positions - len(prompt)
    if room < 1:
        raise ValueError(
            f"the prompt's {len(prompt)} tokens leave no room in the model's {lm.max_positions} positions; shorten it"
        )
    return (max_new_tokens, "length") if max_new_tokens <= room else (room, "positions")


def _checked(tree: DraftTree, context: list[int], max_nodes: int, lm) -> DraftTree:
    """The tree, without nodes at positions the model does not have. Raises ValueError on a drafter's mistake."""
    if tree.n_nodes > max_nodes:
        raise ValueError(f"the drafter returned {tree.n_nodes} nodes where at most {max_nodes} are allowed")
    if tree.tokens[0] != context[-1]:
        raise ValueError(f"the tree's root is {tree.tokens[0]}, not the last context token {context[-1]}")
    _refuse_unknown_ids(tree.tokens.tolist(), lm.vocab_size, "the draft tree")
    max_depth = lm.max_positions - len(context)
    return tree if tree.n_nodes <= max_depth else tree.pruned_to_depth(max_depth)


def _cut(accepted: list[int], room: int, stop_ids: frozenset[int]) -> list[int]:
    """What of the accepted tokens is emitted: up to the first stop id, which is kept, and at most `room`."""
    for i, token in enumerate(accepted[:room]):
        if token in stop_ids:
            return accepted[: i + 1]
    return accepted[:room]


def _stop_reason(
    context: list[int], n_prompt: int, limit: int, limit_reason: str, stop_ids: frozenset[int]
) -> str | None:
    if context[-1] in stop_ids:
        return "stop"
    return limit_reason if len(context) - n_prompt >= limit else None
