"""Replays recorded answers through context-only drafters: exact step counts, no model.

A recorded answer decides every verdict (recordings.py). That holds for drafters that look at the context
alone; those that learn from the target's scores (top_k > 0) are refused, since a recording has none. Knows no model, no
tokenizer, no configuration and no clock: it counts steps, not seconds (timed.py times them).
"""

from collections.abc import Collection, Sequence

import numpy as np

from benchmarks import metrics
from benchmarks.cost.curve import CostCurve
from benchmarks.errors import UserError
from benchmarks.replay.recordings import Recording, recorded_next_tokens, refuse_learner
from benchmarks.show.cell_table import CellTable, projected_note
from benchmarks.show.format import number
from goose.engine.contract import Drafter, Prefill
from goose.engine.verify import Scored, walk

STARTS = ("prefill", "prompt")
TREE_COLUMNS = ("tokens", "parents", "sources")


def replay(
    recordings: Sequence[Recording],
    method: str,
    drafter: Drafter,
    node_budget: int,
    stop_ids: Collection[int] = (),
    start: str = "prefill",
) -> list[dict]:
    """One line per recording, as benchmarks.metrics reads them; the drafter goes through them in order, as in a run.

    start: prefill: the first output token is the prefill's, as in goose.decode · prompt: the first step drafts after
        the bare prompt and emits that token too, as a loop without a prefill of its own counts.
    """
    if start not in STARTS:
        raise ValueError(f"start must be one of {STARTS}, got {start!r}")
    refuse_learner(method, drafter)
    stop, n_given = frozenset(stop_ids), int(start == "prefill")
    return [
        recording.line(
            method, output_ids=recording.output_ids, steps=_steps(recording, drafter, node_budget, stop, n_given)
        )
        for recording in recordings
    ]


def _steps(
    recording: Recording, drafter: Drafter, node_budget: int, stop_ids: frozenset[int], n_given: int
) -> dict[str, list]:
    """The columns of the steps that write the output after its first `n_given` tokens."""
    prompt, output = recording.prompt_ids, recording.output_ids
    columns: dict[str, list] = {name: [] for name in ("context", "emitted", "path", *TREE_COLUMNS)}
    drafter.begin(list(prompt), Prefill(output[0], stop_ids, _no_scores))
    context = [*prompt, *output[:n_given]]
    n_done = n_given
    while n_done < len(output):
        tree = drafter.draft(context, node_budget)
        next_ids = recorded_next_tokens(tree, output[n_done:])
        verdict = walk(tree, next_ids)
        columns["context"].append(len(context) - 1)  # committed tokens before the step
        emitted = output[n_done : n_done + len(verdict.path)]  # accepted nodes + bonus, cut at the recording's end
        context += emitted
        n_done += len(emitted)
        if n_done < len(output):
            drafter.observe(tree, verdict, _unscored(next_ids))
        columns["emitted"].append(len(emitted))
        columns["path"].append(verdict.path)
        for name in TREE_COLUMNS:
            columns[name].append(getattr(tree, name).tolist())
    return columns


def _unscored(next_ids: list[int]) -> Scored:
    n = len(next_ids)
    return Scored(next_ids, np.empty((n, 0), dtype=np.int64), np.empty((n, 0), dtype=np.float32))


def _no_scores(k: int, rows: Sequence[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
    raise UserError("a recording holds no scores of the prompt; a drafter with top_k = 0 must not ask for them")


def replay_table(
    lines: dict[str, list[dict]],  # method -> its lines, the same recordings in each
    conditions: str,
    curve: CostCurve | None = None,
) -> CellTable:
    """Two blocks: every measure by method; MAL by dataset and category. With a curve: the projected speed-up."""
    methods = [_method_row(method, turns) for method, turns in lines.items()]
    if curve is not None:
        for row, turns in zip(methods, lines.values(), strict=True):
            row["projected"] = number(metrics.projected_speed_up(turns, curve.seconds), 2, "x")
        conditions += projected_note(curve)
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
