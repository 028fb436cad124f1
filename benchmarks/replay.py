"""Replays recorded answers through context-only drafters: exact step counts, no model.

Greedy decoding writes the same text whatever is drafted, so a recorded answer decides every verdict: the target's token
after a node is the recorded one while the path to the node equals the recording. That holds for drafters that look at
the context alone; those that learn from the target's scores (top_k > 0) are refused, since a recording has none. Knows
no model, no tokenizer, no configuration and no clock: it counts steps, not seconds.
"""

import gzip
import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import metrics
from benchmarks.errors import UserError
from benchmarks.tables import CellTable, number
from goose.engine.decode import Drafter, Prefill
from goose.engine.tree import DraftTree
from goose.engine.verify import Scored, walk

SPEC_BENCH = "spec_bench"
STARTS = ("prefill", "prompt")
OFF_RECORD = -1  # "the target's token" where the recording does not say: no node carries it
FIELDS = ("id", "dataset", "category", "turn", "prompt_ids", "output_ids")


@dataclass(frozen=True)
class Recording:
    """One recorded turn in the model's own token ids."""

    id: str
    dataset: str
    category: str
    turn: int
    prompt_ids: list[int]
    output_ids: list[int]  # a stop id that ended it is part of it

    @property
    def in_spec_bench(self) -> bool:
        """Spec-Bench is MT-Bench (both turns), GSM8K as `math_reasoning`, and four sets of its own."""
        return self.dataset in ("mt_bench", "spec_bench_other") or self.category == "math_reasoning"


def load_recordings(path: Path, dataset: str | None = None, limit: int | None = None) -> list[Recording]:
    """The turns of a `.jsonl.gz` file, of one dataset (or of `spec_bench`) when asked, the first `limit` of them."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            turns = [Recording(**{name: line[name] for name in FIELDS}) for line in map(json.loads, lines)]
    except OSError as error:
        raise UserError(f"{path} cannot be read as a gzip file of recorded turns: {error}") from error
    except (KeyError, json.JSONDecodeError) as error:
        raise UserError(f"{path} holds lines that are not recorded turns ({', '.join(FIELDS)}): {error!r}") from error
    names = sorted({turn.dataset for turn in turns})
    if dataset is not None:
        turns = [turn for turn in turns if (turn.in_spec_bench if dataset == SPEC_BENCH else turn.dataset == dataset)]
    if not turns:
        raise UserError(f"{path} holds no turn of dataset {dataset!r}; it has {', '.join(names) or 'none at all'}")
    empty = [turn.id for turn in turns if not turn.prompt_ids or not turn.output_ids]
    if empty:
        raise UserError(f"{path}: turn {empty[0]} has no prompt or no output")
    return turns[:limit]


def usual_stop_ids(recordings: Sequence[Recording]) -> frozenset[int]:
    """The id that ends most recordings; none when no id ends most of them (the others were cut at their limit)."""
    (token, n_ends), *_ = Counter(recording.output_ids[-1] for recording in recordings).most_common(1)
    return frozenset([token] if 2 * n_ends > len(recordings) else [])


def replay(
    recordings: Sequence[Recording],
    method: str,
    drafter: Drafter,
    node_budget: int,
    stop_ids: Collection[int] = (),
    start: str = "prefill",
) -> list[dict]:
    """One line a recording, as metrics.py reads them; the drafter goes through them in order, as in a run.

    start: prefill: the first output token is the prefill's, as in goose.decode · prompt: the first step drafts behind
        the bare prompt and emits that token too, as a loop without a prefill of its own counts.
    """
    if start not in STARTS:
        raise ValueError(f"start must be one of {STARTS}, got {start!r}")
    if drafter.top_k > 0:
        raise UserError(f"{method} learns from the target's scores, which a recording does not hold; run it on a model")
    stop, n_given = frozenset(stop_ids), int(start == "prefill")
    return [
        {
            "prompt_id": recording.id,
            "turn": recording.turn,
            "method": method,
            "repeat": 0,
            "error": None,
            "dataset": recording.dataset,
            "category": recording.category,
            "output_ids": recording.output_ids,
            "steps": _steps(recording, drafter, node_budget, stop, n_given),
        }
        for recording in recordings
    ]


def _steps(
    recording: Recording, drafter: Drafter, node_budget: int, stop_ids: frozenset[int], n_given: int
) -> dict[str, list]:
    """The columns of the steps that write the output behind its first `n_given` tokens."""
    prompt, output = recording.prompt_ids, recording.output_ids
    columns: dict[str, list] = {name: [] for name in ("emitted", "path", "tokens", "parents", "sources")}
    drafter.begin(list(prompt), Prefill(output[0], stop_ids, _no_scores))
    context = [*prompt, *output[:n_given]]
    n_done = n_given
    while n_done < len(output):
        tree = drafter.draft(context, node_budget)
        next_ids = recorded_next_tokens(tree, output[n_done:])
        verdict = walk(tree, next_ids)
        emitted = output[n_done : n_done + len(verdict.path)]  # accepted nodes + bonus, cut at the recording's end
        context += emitted
        n_done += len(emitted)
        if n_done < len(output):
            drafter.observe(tree, verdict, _unscored(next_ids))
        columns["emitted"].append(len(emitted))
        columns["path"].append(verdict.path)
        for name in ("tokens", "parents", "sources"):
            columns[name].append(getattr(tree, name).tolist())
    return columns


def recorded_next_tokens(tree: DraftTree, continuation: Sequence[int]) -> list[int]:
    """n: the target's token after each node of `tree`, whose root is followed by `continuation` in the recording."""
    next_ids = [OFF_RECORD] * tree.n_nodes
    next_ids[0] = continuation[0]
    depth = {0: 0}  # nodes whose path equals the recording
    pairs = zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True)
    for node, (parent, token) in enumerate(pairs):
        if parent in depth and token == next_ids[parent]:
            depth[node] = depth[parent] + 1
            if depth[node] < len(continuation):
                next_ids[node] = continuation[depth[node]]
    return next_ids


def _unscored(next_ids: list[int]) -> Scored:
    n = len(next_ids)
    return Scored(next_ids, np.empty((n, 0), dtype=np.int64), np.empty((n, 0), dtype=np.float32))


def _no_scores(k: int) -> tuple[np.ndarray, np.ndarray]:
    raise UserError("a recording holds no scores of the prompt; a drafter with top_k = 0 must not ask for them")


def replay_table(
    lines: dict[str, list[dict]],  # method -> its lines, the same recordings in each
    conditions: str,
) -> CellTable:
    """Two blocks: every measure a method, and MAL a dataset and category."""
    methods = [_method_row(method, turns) for method, turns in lines.items()]
    groups = dict.fromkeys((line["dataset"], line["category"]) for line in next(iter(lines.values())))
    by_group = [_group_row(group, lines) for group in sorted(groups)]
    return CellTable({"all turns": methods, "MAL by dataset and category": by_group}, conditions, [], [])


def _method_row(method: str, turns: list[dict]) -> dict[str, str]:
    mean_nodes, most_nodes = metrics.nodes_per_step(turns)
    return {
        "method": method,
        "MAL": number(metrics.mean_acceptance_length(turns), 3),
        "tau": number(metrics.tau(turns), 3),
        "nodes": number(mean_nodes, 1),
        "max": str(most_nodes),
        "accepted": number(metrics.draft_acceptance(turns), 3),
        "empty": number(metrics.empty_draft_share(turns), 3),
        "emitted": str(sum(metrics.steps(turns, "emitted"))),
        "steps": str(len(metrics.steps(turns, "emitted"))),
    }


def _group_row(group: tuple[str, str], lines: dict[str, list[dict]]) -> dict[str, str]:
    own = {m: [t for t in turns if (t["dataset"], t["category"]) == group] for m, turns in lines.items()}
    rates = {method: number(metrics.mean_acceptance_length(turns), 3) for method, turns in own.items()}
    return {"dataset": group[0], "category": group[1], "turns": str(len(next(iter(own.values())))), **rates}
