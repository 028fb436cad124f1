"""Teacher-forced timed replay: a recorded answer, decoded on a model of the recorded one's shape with real times.

The forward is run and timed as always; then the recorded token is made the target's choice after every node whose path
equals the recording. Decoding therefore follows the recorded text exactly, whatever the weights say, and a model with
random weights gives the real time of each real step. It holds for drafters that look at the context alone, as every
replay (benchmarks/replay/recordings.py). It judges no output: the text comes out by construction.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np
import torch

from benchmarks.errors import UserError
from benchmarks.replay.recordings import OFF_RECORD, Recording, recorded_next_tokens, refuse_learner
from benchmarks.run.interleave import schedule, to_record
from goose.engine.contract import Drafter
from goose.engine.decode import decode
from goose.engine.tree import DraftTree

WARM_UP_TOKENS = 16


class TeacherForcedLM:
    """A TreeLM whose greedy choice is one recording's answer; one for each recording, over one TreeLM.

    Beyond a plain forward, a step transfers the recorded ids and scatters them into the logits; both are prepared while
    a GPU works on the forward.
    """

    def __init__(self, lm, recording: Recording):
        self._lm = lm
        self._text = [*recording.prompt_ids, *recording.output_ids]
        self._n_prompt = len(recording.prompt_ids)
        self.device, self.dtype = lm.device, lm.dtype
        self.vocab_size, self.max_positions = lm.vocab_size, lm.max_positions

    @property
    def n_committed(self) -> int:
        return self._lm.n_committed

    def reserve(self, n_rows: int) -> None:
        self._lm.reserve(n_rows)

    def prefill(self, ids: Sequence[int], reserve: int) -> torch.Tensor:
        """As TreeLM's; the last row's choice is the recording's first token."""
        if list(ids) != self._text[: self._n_prompt]:
            raise ValueError("the prompt is not the recording's; make a TeacherForcedLM for each recording")
        return self._forced(self._lm.prefill(ids, reserve), [self._text[self._n_prompt]])

    def prompt_top_k(self, k: int, rows: Sequence[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Refused: what these weights say of the prompt is not what the recorded model said."""
        raise UserError("a recording holds no scores of the prompt; time drafters with top_k = 0")

    def score(self, tree: DraftTree) -> torch.Tensor:
        """As TreeLM's; after every node on the recorded path the choice is the recorded token."""
        logits = self._lm.score(tree)
        return self._forced(logits, recorded_next_tokens(tree, self._text[self.n_committed + 1 :]))

    def commit(self, path: Sequence[int]) -> None:
        self._lm.commit(path)

    @torch.inference_mode()
    def _forced(self, logits: torch.Tensor, next_ids: list[int]) -> torch.Tensor:
        """logits [n, V] with the largest finite number at (row, next id) of every row that has one."""
        places = torch.tensor([(row, token) for row, token in enumerate(next_ids) if token != OFF_RECORD])
        if logits.is_cuda:  # from pinned memory, so that the host does not wait for the forward here
            places = places.pin_memory().to(logits.device, non_blocking=True)
        rows, tokens = places.unbind(1)
        return logits.index_put_((rows, tokens), logits.new_full((), torch.finfo(logits.dtype).max))


def timed_replay(
    lm,
    recordings: Sequence[Recording],
    drafters: dict[str, Callable[[], Drafter]],  # method name -> maker of a fresh drafter
    node_budget: int,
    stop_ids: Collection[int] = (),
    on_turn: Callable[[dict], None] = lambda line: None,
) -> dict[str, list[dict]]:
    """Method -> its lines, one per recording, as a measured run's: tokens, trees and seconds of every step.

    Methods take turns on each recording, their order rotated; each drafter goes through the recordings in order.
    Raises UserError for a drafter that needs scores and a recording that cannot be followed on this model.
    """
    measured = {name: make() for name, make in drafters.items()}
    for name, drafter in measured.items():
        refuse_learner(name, drafter)
    for recording in recordings:
        _check(lm, recording)
    for make in drafters.values():  # on drafters of its own: warming up never touches measured state
        first = recordings[0]
        n_warm_up = min(WARM_UP_TOKENS, len(first.output_ids))
        decode(TeacherForcedLM(lm, first), first.prompt_ids, make(), max_new_tokens=n_warm_up, node_budget=node_budget)
    lines: dict[str, list[dict]] = {name: [] for name in drafters}
    for job in schedule(recordings, list(drafters), repeats=1):
        recording = job.prompt
        drafter = measured[job.method]
        generation = decode(
            TeacherForcedLM(lm, recording),
            recording.prompt_ids,
            drafter,
            max_new_tokens=len(recording.output_ids),
            stop_ids=stop_ids,
            node_budget=node_budget,
        )
        if generation.output_ids != recording.output_ids:
            raise UserError(f"turn {recording.id}: a stop id stands inside the recorded output; leave the turn out")
        line = recording.line(job.method, **to_record(generation, drafter))
        lines[job.method].append(line)
        on_turn(line)
    return lines


def _check(lm, recording: Recording) -> None:
    ids = [*recording.prompt_ids, *recording.output_ids]
    if len(ids) > lm.max_positions:
        raise UserError(
            f"turn {recording.id} takes {len(ids)} positions and the model has {lm.max_positions}; leave it out, or "
            "time it on the shape of the model that was recorded"
        )
    if max(ids) >= lm.vocab_size:
        raise UserError(
            f"turn {recording.id} has id {max(ids)} and the model's vocabulary ends at {lm.vocab_size - 1}; time it on "
            "the shape of the model that was recorded"
        )
