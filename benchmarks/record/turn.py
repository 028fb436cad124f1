"""One line of turns.jsonl: one prompt's turn, decoded once by one method. docs/records.md describes it for readers.

Lines are plain dictionaries, so that a file of any version is read without code; these types name their keys.
"""

from typing import NotRequired, TypedDict

BASELINE = "ar"  # the method of plain decoding, part of every run


class Steps(TypedDict):
    """Columns with one entry a step; prefill is not a step. Seconds are host wall clock."""

    context: list[int]  # committed tokens before the step
    emitted: list[int]  # tokens added to the output, after cutting at a stop id and at the limit
    path: list[list[int]]  # accepted nodes, root first
    tokens: list[list[int]]  # of the tree's nodes, root first
    parents: list[list[int]]  # -1 for the root
    sources: list[list[int]]  # goose.engine.tree.SOURCE_NAMES
    draft_s: list[float]
    forward_s: list[float]
    fetch_s: list[float]
    walk_s: list[float]
    commit_s: list[float]
    observe_s: list[float]
    expected: NotRequired[list[float]]  # E(A) of each tree, of drafters that know it


class Turn(TypedDict):
    """`error` is None where the turn was decoded; a failed one has the keys up to `error` alone."""

    prompt_id: str
    turn: int  # of a conversation, from 0
    group: str | None  # of the dataset: MT-Bench's category, Spec-Bench's task
    method: str
    repeat: int
    place: int  # which of the turn's methods ran first, second, ...
    prompt_sha256: str | None  # None where the turn could not be asked
    n_prompt: int | None
    error: str | None
    output_ids: NotRequired[list[int]]
    stop_reason: NotRequired[str]  # "stop" | "length" | "positions"
    prefill_s: NotRequired[float]
    decode_s: NotRequired[float]
    begin_s: NotRequired[float]
    steps: NotRequired[Steps]
