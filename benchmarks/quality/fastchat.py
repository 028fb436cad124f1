"""MT-Bench and Spec-Bench answers in FastChat's model_answer format, for a judge; they are not judged here."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from benchmarks.data.items import Item
from benchmarks.errors import UserError
from benchmarks.files import disk_errors, write_text_atomically


def model_answers(
    model_id: str,
    items: Mapping[str, Item],
    conversations: Mapping[tuple[str, int], Sequence[str]],  # (item id, repeat) -> an answer for each turn
    created: str,
) -> list[dict]:
    """One row per question, in the order of their ids; the repeats are its choices. `created` is an ISO date."""
    choices: dict[str, list[dict]] = {}
    for item_id, repeat in sorted(conversations):
        turns = [answer.strip() for answer in conversations[item_id, repeat]]
        choices.setdefault(item_id, []).append({"index": repeat, "turns": turns})
    rows = []
    for item_id, made in choices.items():
        identity = json.dumps([model_id, item_id, made], sort_keys=True).encode()
        rows.append(
            {
                "question_id": question_id(items[item_id]),
                "answer_id": hashlib.sha256(identity).hexdigest()[:22],  # equal answers, equal id
                "model_id": model_id,
                "choices": made,
                "tstamp": datetime.fromisoformat(created).timestamp(),
            }
        )
    return sorted(rows, key=lambda row: row["question_id"])


def question_id(item: Item) -> int:
    """By which the judge finds question and reference again."""
    found = item.reference.get("question_id", item.id)
    try:
        return int(found)
    except ValueError as error:
        raise UserError(
            f"{item.id} has no question_id, by which a judge would find its question; "
            "score with FastChat's own question.jsonl (dataset.path=FILE)"
        ) from error


def write_answers(file: Path, rows: Sequence[dict]) -> None:
    """JSON lines, whole or not at all."""
    with disk_errors(file.parent):
        file.parent.mkdir(exist_ok=True)
    write_text_atomically(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
