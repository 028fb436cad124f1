"""Which small model drafts for which target, where it comes from, and how a method's config names it.

A student distilled here (`make draft`) is kept without the embeddings and head that it shares with its target. This
file does not know how a student is trained (benchmarks/learn/distill.py) or how a draft model grows a tree
(goose/sources/draft_model.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks.errors import UserError
from benchmarks.models.load import ModelSpec, load_model, load_tokenizer, resolve_device, resolve_dtype
from benchmarks.models.student import FOLDER, WEIGHTS, LoadedDraft, load_student, make_student, placed
from benchmarks.models.tiny import tiny_model
from goose.engine.contract import Prefill
from goose.engine.lm import TreeLM
from goose.engine.tree import DRAFT_MODEL, DraftTree
from goose.engine.user_cache import cache_root
from goose.engine.verify import Scored, Verdict
from goose.sources.candidates import Row
from goose.sources.draft_model import DraftModelCandidates, HeadTrim, shared_ids

# Name of a target (conf/model) -> its draft when the method's config names none: a hub id, or one of ours.
STUDENT, TINY = "the embedded student", "the tiny model's first layer"
DEFAULTS = {
    "smollm2": STUDENT,
    "tiny": TINY,
    "llama3": "meta-llama/Llama-3.2-1B-Instruct",
    "llama3_3b": "meta-llama/Llama-3.2-1B-Instruct",
    "qwen25coder_1b5": "Qwen/Qwen2.5-Coder-0.5B-Instruct",
    "qwen3": "Qwen/Qwen3-0.6B",
    "qwen3_1b7": "Qwen/Qwen3-0.6B",
    "vicuna7b": "double7/vicuna-68m",
    "vicuna13b": "double7/vicuna-68m",
    "vicuna33b": "double7/vicuna-68m",
}


@dataclass(frozen=True)
class DraftChoice:
    """The key `draft` of a method's candidate source: a folder or a hub id; neither means the target's default."""

    path: str | None = None
    hub_id: str | None = None

    def __post_init__(self) -> None:
        if self.path and self.hub_id:
            raise UserError(f"draft.path={self.path} and draft.hub_id={self.hub_id} exclude each other; keep one")


class DraftCandidates:
    """DraftModelCandidates by the names of target and draft: loads and checks at once, keeps the model once a process.

    target: the model that verifies. head_size: ids that the draft's head is trimmed to (null: the whole head).
    n_proposed: successors of a node. device, dtype: the target's own when "auto".
    """

    source = DRAFT_MODEL
    top_k = 0  # the draft model speaks for itself: no row of the target's is kept

    def __init__(
        self,
        target: ModelSpec,
        draft: DraftChoice | None = None,
        *,
        n_proposed: int = 10,
        head_size: int | None = 12288,
        device: str = "auto",
        dtype: str = "auto",
    ):
        if n_proposed < 1 or (head_size is not None and head_size < 1):
            raise UserError(f"n_proposed and head_size must be at least 1, got {n_proposed} and {head_size}")
        self.target, self.draft = target, draft or DraftChoice()
        self.n_proposed = self.width = n_proposed
        self.head_size = head_size
        self.device = resolve_device(device)
        self.dtype = resolve_dtype(target, self.device, dtype)
        self._candidates: DraftModelCandidates | None = None
        self._load()  # a draft that cannot be had fails before any work

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        if self._candidates is None:
            loaded = self._load()
            trim = self.head_size and HeadTrim.most_frequent(loaded.by_frequency, self.head_size)
            self._candidates = DraftModelCandidates(
                TreeLM(loaded.model), ids=loaded.ids, n_proposed=self.n_proposed, trim=trim or None
            )
        self._candidates.begin(prompt_ids, prefill)

    def start(self, context: Sequence[int]) -> None:
        self._candidates.start(context)

    def expand(self, tokens: list[int], parents: list[int], nodes: Sequence[int]) -> list[Row]:
        return self._candidates.expand(tokens, parents, nodes)

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        self._candidates.observe(tree, verdict, scored)

    def unproposable(self, vocab_size: int) -> np.ndarray:
        return self._candidates.unproposable(vocab_size)

    def _load(self) -> LoadedDraft:
        return load_draft(self.target, self.draft, self.device, self.dtype)


@lru_cache(maxsize=4)
def load_draft(target: ModelSpec, draft: DraftChoice, device: str, dtype: str) -> LoadedDraft:
    """The draft for a target, once a process. Raises UserError when it is absent or of another vocabulary."""
    name = draft.path or draft.hub_id or DEFAULTS.get(target.name)
    if name is None:
        raise UserError(
            f"no draft is known for model {target.shown_name!r}; name one by draft.path=FOLDER (or FILE.gguf) or "
            "draft.hub_id=ID"
        )
    folder = cache_root() / FOLDER if name == STUDENT else Path(draft.path).expanduser() if draft.path else None
    if folder is not None and (name == STUDENT or (folder / WEIGHTS).is_file()):
        return load_student(folder, target, device, dtype)
    if name == TINY:
        model = placed(make_student(tiny_model(), [0]), device, dtype)
        return LoadedDraft(model, np.arange(model.config.vocab_size), np.arange(model.config.vocab_size))
    spec = ModelSpec(
        f"{target.name}-draft", "hub", hub_id=draft.hub_id or (None if draft.path else name), path=draft.path
    )
    loaded = load_model(spec, device=device, dtype=dtype)
    size = loaded.model.get_output_embeddings().weight.shape[0]
    tokenizer = load_tokenizer(target)
    try:
        ids = shared_ids(size, _target_size(target, tokenizer), loaded.tokenizer, tokenizer)
    except ValueError as error:
        raise UserError(f"{name} cannot draft for {target.name}: {error}") from error
    return LoadedDraft(loaded.model, ids, ids)  # no counts: BPE numbers its ids by the frequency of their merges


def _target_size(target: ModelSpec, tokenizer) -> int:
    """Ids of the target's tokenizer: what lies beyond them in its matrix is padding, which no draft proposes."""
    return max(tokenizer.get_vocab().values()) + 1
