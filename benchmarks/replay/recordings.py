"""Recorded answers of a real model in its own token ids, and what they say of a draft tree.

Greedy decoding writes the same text whatever is drafted, so a recorded answer decides every verdict: the target's token
after a node is the recorded one while the path to the node equals the recording. Needs nothing but numpy and goose; who
replays (benchmarks/replay/count.py counts, benchmarks/replay/timed.py times) is not known here.
"""

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import UserError
from goose.engine.contract import Drafter
from goose.engine.tree import DraftTree

SPEC_BENCH = "spec_bench"
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

    n_turns = 1  # of a schedule: a recorded turn stands for itself

    @property
    def in_spec_bench(self) -> bool:
        """Spec-Bench is MT-Bench (both turns), GSM8K as `math_reasoning`, and four sets of its own."""
        return self.dataset in ("mt_bench", "spec_bench_other") or self.category == "math_reasoning"

    def line(self, method: str, **recorded) -> dict:
        """A line as benchmarks.metrics reads it: which turn, which method, and what was `recorded` of it."""
        place = {"prompt_id": self.id, "turn": self.turn, "method": method, "repeat": 0, "error": None}
        return {**place, "dataset": self.dataset, "category": self.category, **recorded}


def refuse_learner(method: str, drafter: Drafter) -> None:
    """Raises UserError for a drafter that a recording cannot serve."""
    if drafter.top_k > 0:
        raise UserError(f"{method} learns from the target's scores, which a recording does not hold; run it on a model")


def load_recordings(path: Path, dataset: str | None = None, limit: int | None = None) -> list[Recording]:
    """The turns of a `.jsonl.gz` file, of one dataset (or of `spec_bench`) when asked, the first `limit` of them."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            turns = [Recording(**{name: line[name] for name in FIELDS}) for line in map(json.loads, lines)]
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read as a gzip file of recorded turns: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} holds lines that are not recorded turns ({', '.join(FIELDS)}): {error!r}") from error
    wrong = [turn.id for turn in turns if not _is_sound(turn)]
    if wrong:
        raise UserError(
            f"{path}: turn {wrong[0]} has no prompt or no output (lists of token ids, one at least), or its dataset or "
            "category is no text"
        )
    names = sorted({turn.dataset for turn in turns})
    if dataset is not None:
        turns = [turn for turn in turns if (turn.in_spec_bench if dataset == SPEC_BENCH else turn.dataset == dataset)]
    if not turns:
        raise UserError(f"{path} holds no turn of dataset {dataset!r}; it has {', '.join(names) or 'none at all'}")
    return turns[:limit]


def _is_sound(turn: Recording) -> bool:
    columns = (turn.prompt_ids, turn.output_ids)
    are_ids = all(
        isinstance(ids, list) and ids and all(type(i) is int and 0 <= i < 2**31 for i in ids) for ids in columns
    )
    return are_ids and isinstance(turn.dataset, str) and isinstance(turn.category, str)


def usual_stop_ids(recordings: Sequence[Recording]) -> frozenset[int]:
    """The id that ends most recordings; none when no id ends most of them (the others were cut at their limit)."""
    (token, n_ends), *_ = Counter(recording.output_ids[-1] for recording in recordings).most_common(1)
    return frozenset([token] if 2 * n_ends > len(recordings) else [])


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
