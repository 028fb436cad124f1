"""Runs one cell: one model, one set of prompts, several methods interleaved prompt by prompt on one clock.

Every (prompt, method, repeat) becomes one line of the run folder, raw: output ids, seconds, and per step the tree, the
accepted path and the parts of the time. It computes no metric (metrics.py) and reads no configuration (run.py).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from benchmarks.records import RunFolder
from goose.engine.decode import Drafter, Generation, decode
from goose.engine.verify import Sampling

BASELINE = "ar"


@dataclass(frozen=True)
class CellPrompt:
    id: str
    ids: tuple[int, ...]
    text_sha256: str


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
    plan = [job for job in schedule(prompts, list(drafters), settings.repeats) if job.key not in done]
    if not plan:
        return
    n_warm_up = min(16, settings.max_new_tokens)
    for make in drafters.values():
        with suppress(Exception):  # what is wrong will show in the measured prompts, and be recorded there
            decode(lm, warm_up_ids, make(), max_new_tokens=n_warm_up, node_budget=settings.node_budget)
    measured = {name: make() for name, make in drafters.items()}
    for job in plan:
        line = _measure(lm, job, measured[job.method], settings)
        folder.append(line)
        on_turn(line)


@dataclass(frozen=True)
class Job:
    prompt: CellPrompt  # a Recording in a timed replay: only its id is read here
    method: str
    repeat: int
    place: int  # which of the prompt's methods ran first, second, ...

    @property
    def key(self) -> tuple[str, int, str, int]:
        return (self.prompt.id, 0, self.method, self.repeat)


def schedule(prompts: Sequence[CellPrompt], methods: Sequence[str], repeats: int) -> Iterator[Job]:
    """All jobs in order: methods side by side on each prompt, their order rotated so that none always goes first."""
    for repeat in range(repeats):
        for i, prompt in enumerate(prompts):
            first = (i + repeat) % len(methods)
            for place, method in enumerate([*methods[first:], *methods[:first]]):
                yield Job(prompt, method, repeat, place)


def _measure(lm, job: Job, drafter: Drafter, settings: Settings) -> dict:
    line = {
        "prompt_id": job.prompt.id,
        "turn": 0,
        "method": job.method,
        "repeat": job.repeat,
        "place": job.place,
        "prompt_sha256": job.prompt.text_sha256,
        "n_prompt": len(job.prompt.ids),
    }
    try:
        generation = decode(
            lm,
            job.prompt.ids,
            drafter,
            max_new_tokens=settings.max_new_tokens,
            stop_ids=settings.stop_ids,
            node_budget=settings.node_budget,
            sampling=settings.sampling,
        )
    except Exception as error:  # of the model, the device or a drafter: it fails one prompt, not the cell
        # A failed prompt is a line without timings, never a line with somebody else's.
        return {**line, "error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
    return {**line, "error": None, **recorded(generation, drafter)}


def recorded(generation: Generation, drafter: Drafter) -> dict:
    """What a line keeps of a decoded request, in plain values."""
    steps = generation.steps
    expected = getattr(drafter, "expected", None)  # E(A) of each tree, of drafters that know it
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
