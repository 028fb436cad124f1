"""What the methods of a finished run answered: texts from recorded ids, the items they answer, and which are the same.

It does not know whether an answer is right (scorers.py) nor how fast it was given (benchmarks.metrics).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.data.items import Item
from benchmarks.data.prompts import load_run_dataset
from benchmarks.errors import UserError
from benchmarks.models.load import load_tokenizer, spec_of
from benchmarks.record.run_folder import RunFolder

Ids = tuple[tuple[int, ...], ...]  # output ids of each turn
AnswerKey = tuple[str, int]  # item id, repeat
Outputs = dict[str, dict[AnswerKey, Ids]]  # by method; only what was finished


@dataclass(frozen=True)
class Answers:
    """Of one run. `text` decodes the ids of one turn."""

    folder: RunFolder
    outputs: Outputs
    n_failed: dict[str, int]  # method -> conversations with a failed turn
    same_as: dict[str, str | None]  # method -> the first method before it with all the same ids
    items: dict[str, Item]
    text: Callable[[Sequence[int]], str]

    def distinct(self) -> list[tuple[str, Ids]]:
        return distinct(self.outputs)

    def given_by(self, item: str, ids: Ids) -> list[str]:
        """The methods that gave this answer to this item, in some repeat."""
        return [
            method
            for method, own in self.outputs.items()
            if any(place[0] == item and own_ids == ids for place, own_ids in own.items())
        ]


def distinct(outputs: Outputs) -> list[tuple[str, Ids]]:
    """(item id, ids) of every different answer, in order of appearance."""
    return list(dict.fromkeys((item, ids) for own in outputs.values() for (item, _), ids in own.items()))


def read_answers(folder: RunFolder, dataset_path: str | None = None, model_path: str | None = None) -> Answers:
    """Outputs, items and tokenizer of a run; the paths say where the two lie now, if not where the run found them.

    Raises UserError when the data are not the ones that the run was made with.
    """
    outputs, n_failed = recorded_outputs(folder)
    items = _items(folder.header, dataset_path)
    missing = sorted({item for own in outputs.values() for item, _ in own} - items.keys())
    if missing:
        raise UserError(f"{folder.path}: the dataset lacks {len(missing)} of its items now, {missing[0]} first")
    spec = dict(folder.header["config"]["model"])
    if model_path is not None:
        spec["path"] = model_path
    tokenizer = load_tokenizer(spec_of(spec))
    text = partial(answer_text, tokenizer, stop_ids=frozenset(folder.header["stop_ids"]))
    return Answers(folder, outputs, n_failed, same_answers(outputs), items, text)


def recorded_outputs(folder: RunFolder) -> tuple[Outputs, dict[str, int]]:
    """The finished outputs by method, and how many conversations of each method failed in some turn."""
    turns: dict[tuple[str, AnswerKey], dict[int, dict]] = {}
    for line in folder.lines():
        turns.setdefault((line["method"], (line["prompt_id"], line["repeat"])), {})[line["turn"]] = line
    outputs: Outputs = {method: {} for method in folder.header["methods"]}
    n_failed = dict.fromkeys(outputs, 0)
    for (method, place), by_turn in turns.items():
        if any(line["error"] is not None for line in by_turn.values()):
            n_failed[method] += 1
        else:
            outputs[method][place] = tuple(tuple(by_turn[turn]["output_ids"]) for turn in sorted(by_turn))
    return outputs, n_failed


def same_answers(outputs: Mapping[str, Mapping[AnswerKey, Ids]]) -> dict[str, str | None]:
    """Method -> the first method before it whose outputs are all the same, or None."""
    same: dict[str, str | None] = {}
    for method, own in outputs.items():
        same[method] = next((other for other in same if own and same[other] is None and outputs[other] == own), None)
    return same


def answer_text(tokenizer: Any, ids: Sequence[int], stop_ids: Iterable[int]) -> str:
    """The text of output ids as it follows other text, without the stop id that ended it.

    Decoded after a line end, because some tokenizers drop a blank that begins a text, and with it an indentation.
    """
    ids = list(ids[:-1]) if ids and ids[-1] in set(stop_ids) else list(ids)
    anchor = tokenizer("\n", add_special_tokens=False)["input_ids"]
    decode = partial(tokenizer.decode, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    before, whole = decode(anchor), decode([*anchor, *ids])
    return whole[len(before) :] if whole.startswith(before) else decode(ids)


def _items(header: dict, dataset_path: str | None) -> dict[str, Item]:
    dataset = load_run_dataset(header["config"], dataset_path)
    if dataset.sha256 != header["dataset"]["sha256"]:
        raise UserError(
            f"{dataset.source} is not what the run was made with: its sha256 is {dataset.sha256}, recorded was "
            f"{header['dataset']['sha256']} ({header['dataset']['source']}); name that file with dataset.path=FILE"
        )
    return {item.id: item for item in dataset.items}
