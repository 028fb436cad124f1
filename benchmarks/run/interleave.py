"""Runs one cell: one model, one set of prompts, several methods interleaved prompt by prompt on one clock.

Every (prompt, turn, method, repeat) becomes one line of the run folder, raw: output ids, seconds, and per step the
tree, the accepted path and the parts of the time. It computes no metric (metrics.py), reads no configuration (run.py)
and knows no text: how a later turn is asked is the prompt's own function.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from benchmarks.record.run_folder import RunFolder
from benchmarks.record.turn import BASELINE
from goose.engine.contract import Drafter, EstimatesAcceptance, NeedsAnswer
from goose.engine.decode import Generation, decode
from goose.engine.verify import Sampling


class Asked(Protocol):
    """A turn as it is asked: a rendered prompt."""

    ids: tuple[int, ...]
    text_sha256: str


class NoAnswer(RuntimeError):
    """A turn cannot be asked, because plain decoding failed a turn before it."""


@dataclass(frozen=True)
class CellPrompt:
    """A prompt, or a conversation: `ids` and `text_sha256` are the first turn's."""

    id: str
    ids: tuple[int, ...]
    text_sha256: str
    group: str | None = None  # of the dataset: MT-Bench's category, Spec-Bench's task
    n_turns: int = 1
    # Output ids of the turns before -> the next turn's prompt; None where there is one turn.
    follow_up: Callable[[Sequence[Sequence[int]]], Asked] | None = None


@dataclass(frozen=True)
class Settings:
    """What every method of the cell shares."""

    node_budget: int
    max_new_tokens: int
    stop_ids: frozenset[int]
    sampling: Sampling
    repeats: int


def run_cell(
    folder: RunFolder,
    lm,
    prompts: Sequence[CellPrompt],
    drafters: dict[str, Callable[[], Drafter]],  # method name -> maker of a fresh drafter
    settings: Settings,
    warm_up_ids: Sequence[int],
    on_turn: Callable[[dict], None] = lambda line: None,
) -> None:
    """Measures what the folder does not hold yet, and appends it line by line.

    Warm-up runs on drafters of its own, so that it never touches measured state.
    """
    done = folder.done_keys()
    warming = {name: make() for name, make in drafters.items()}
    needs_answer = [name for name, drafter in warming.items() if isinstance(drafter, NeedsAnswer)]
    plan = [job for job in schedule(prompts, list(drafters), settings.repeats, needs_answer) if job.key not in done]
    if not plan:
        return
    n_warm_up = min(16, settings.max_new_tokens)
    for drafter in warming.values():
        with suppress(Exception):  # what is wrong will show in the measured prompts, and be recorded there
            if isinstance(drafter, NeedsAnswer):
                drafter.set_answer([])
            decode(lm, warm_up_ids, drafter, max_new_tokens=n_warm_up, node_budget=settings.node_budget)
    del warming  # and the K/V block of a draft model with it
    measured = {name: make() for name, make in drafters.items()}
    turns = Turns(folder.lines() if done else ())
    for job in plan:
        line = _measure(lm, job, turns, measured[job.method], settings)
        folder.append(line)
        turns.saw(line)
        on_turn(line)


class Turns:
    """What each turn of each prompt is asked as.

    A later turn's prompt holds the baseline's answers to the turns before it, those of the first repeat, so that every
    method and every repeat decodes the same prompt; in fp32 all answers are equal anyway.
    """

    def __init__(self, lines: Iterable[dict] = ()):
        self._answers: dict[tuple[str, int], list[int]] = {}
        self._asked: dict[tuple[str, int], Asked] = {}
        for line in lines:
            self.saw(line)

    def saw(self, line: dict) -> None:
        if line["method"] == BASELINE and line["repeat"] == 0 and line["error"] is None:
            self._answers[line["prompt_id"], line["turn"]] = line["output_ids"]

    def answer(self, prompt_id: str, turn: int) -> list[int]:
        """The baseline's output ids. Raises NoAnswer."""
        if (prompt_id, turn) not in self._answers:
            raise NoAnswer(f"{BASELINE} failed this turn, so there is no answer to draft with")
        return self._answers[prompt_id, turn]

    def asked(self, prompt: CellPrompt, turn: int) -> Asked:
        """Ids and hash of the turn. Raises NoAnswer, and whatever the prompt's template raises."""
        if turn == 0:
            return prompt
        place = prompt.id, turn
        if place not in self._asked:  # once, because a template may write the time of day
            unanswered = [t for t in range(turn) if (prompt.id, t) not in self._answers]
            if unanswered:
                raise NoAnswer(f"{BASELINE} failed turn {unanswered[0]} of this prompt, so turn {turn} was not asked")
            self._asked[place] = prompt.follow_up([self._answers[prompt.id, t] for t in range(turn)])
        return self._asked[place]


def asked_ids(prompts: Sequence[CellPrompt], lines: Sequence[dict]) -> dict[tuple[str, int], tuple[int, ...]]:
    """(prompt id, turn) -> the ids that the recorded lines were measured on, where the turn could be asked."""
    turns, found = Turns(lines), {}
    for prompt in prompts:
        for turn in range(prompt.n_turns):
            with suppress(Exception):  # then its lines are failed ones, and nobody asks for its ids
                found[prompt.id, turn] = turns.asked(prompt, turn).ids
    return found


def longest_request(prompts: Sequence[CellPrompt], max_new_tokens: int) -> int:
    """Tokens of the longest context that any turn may reach: what it is asked with, and an answer to every turn so far.

    Counted with empty answers and their most tokens on top; a text read back may have a few more.
    """
    longest = 0
    for prompt in prompts:
        for turn in range(prompt.n_turns):
            asked = prompt if turn == 0 else prompt.follow_up([()] * turn)
            longest = max(longest, len(asked.ids) + (turn + 1) * max_new_tokens)
    return longest


@dataclass(frozen=True)
class Job:
    prompt: CellPrompt  # a Recording in a timed replay: only its id and n_turns are read here
    turn: int
    method: str
    repeat: int
    place: int  # which of the turn's methods ran first, second, ...

    @property
    def key(self) -> tuple[str, int, str, int]:
        return (self.prompt.id, self.turn, self.method, self.repeat)


def schedule(
    prompts: Sequence[CellPrompt], methods: Sequence[str], repeats: int, needs_answer: Sequence[str] = ()
) -> Iterator[Job]:
    """All jobs in order: methods side by side on each turn, their order rotated so that none always goes first.

    needs_answer: methods that draft with the baseline's answer, and so come after the others.
    """
    methods = [method for method in methods if method not in needs_answer]
    for repeat in range(repeats):
        for i, prompt in enumerate(prompts):
            for turn in range(prompt.n_turns):
                first = (i + turn + repeat) % len(methods)
                for place, method in enumerate([*methods[first:], *methods[:first], *needs_answer]):
                    yield Job(prompt, turn, method, repeat, place)


def _measure(lm, job: Job, turns: Turns, drafter: Drafter, settings: Settings) -> dict:
    line = {
        "prompt_id": job.prompt.id,
        "turn": job.turn,
        "group": job.prompt.group,
        "method": job.method,
        "repeat": job.repeat,
        "place": job.place,
        "prompt_sha256": None,  # stays so where the turn could not be asked
        "n_prompt": None,
    }
    try:
        prompt = turns.asked(job.prompt, job.turn)
        line |= {"prompt_sha256": prompt.text_sha256, "n_prompt": len(prompt.ids)}
        if isinstance(drafter, NeedsAnswer):  # an upper bound, not a method (goose/drafters/oracle.py)
            drafter.set_answer(turns.answer(job.prompt.id, job.turn))
        generation = decode(
            lm,
            prompt.ids,
            drafter,
            max_new_tokens=settings.max_new_tokens,
            stop_ids=settings.stop_ids,
            node_budget=settings.node_budget,
            sampling=settings.sampling,
        )
    except Exception as error:  # of the model, the device or a drafter: it fails one prompt, not the cell
        # A failed prompt is a line without timings, never a line with somebody else's.
        return {**line, "error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
    return {**line, "error": None, **to_record(generation, drafter)}


def to_record(generation: Generation, drafter: Drafter) -> dict:
    """What a line keeps of a decoded request, in plain values."""
    steps = generation.steps
    expected = drafter.expected if isinstance(drafter, EstimatesAcceptance) else None
    seconds = ("draft_s", "forward_s", "fetch_s", "walk_s", "commit_s", "observe_s")
    return {
        "output_ids": generation.output_ids,
        "stop_reason": generation.stop_reason,
        "prefill_s": generation.prefill_s,
        "decode_s": generation.decode_s,
        "begin_s": generation.begin_s,
        "steps": {
            "context": steps.context,
            "emitted": steps.emitted,
            "path": steps.paths,
            "tokens": [tree.tokens.tolist() for tree in steps.trees],
            "parents": [tree.parents.tolist() for tree in steps.trees],
            "sources": [tree.sources.tolist() for tree in steps.trees],
            **({} if expected is None else {"expected": [round(e, 4) for e in expected]}),
            **{name: [round(s, 7) for s in getattr(steps, name)] for name in seconds},
        },
    }
