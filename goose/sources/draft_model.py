"""A small causal LM of the target's tokenizer as a source of candidates, scored layer by layer through its own TreeLM.

The draft keeps K/V of its own. What the context has and they lack (the bonus, nodes that the draft never scored) is
caught up in the forward that scores the root: a tree in flight is that chain with the drafted nodes below its end.
This file knows no files, names or tokenizer classes, and not which of its candidates become nodes of a tree.

Dimension letters: n = nodes scored at once, V = rows of the draft's head, K = kept of them.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from goose.engine.contract import Prefill
from goose.engine.lm import TreeLM
from goose.engine.tree import DRAFT_MODEL, NO_PARENT, ROOT, DraftTree
from goose.engine.verify import Scored, Verdict, top_k_rows
from goose.sources.candidates import Row

_ROOM = 1024  # K/V rows reserved after a prompt at first; doubled when they run out
_ADVICE = "use a draft of the target's own tokenizer"


@dataclass(frozen=True, eq=False)
class HeadTrim:
    """The ids whose rows of the head a draft model scores; each request adds its prompt's own ids.

    A head of K rows costs K / V of the whole.
    """

    ids: np.ndarray  # int64[K], increasing

    @staticmethod
    def most_frequent(by_frequency: Sequence[int], n: int) -> "HeadTrim":
        """The first n of ids that are sorted from the most to the least frequent. Raises ValueError for n < 1."""
        if n < 1:
            raise ValueError(f"a trimmed head keeps at least one id, got n = {n}; raise it, or do not trim the head")
        return HeadTrim(np.sort(np.asarray(by_frequency, dtype=np.int64)[:n]))


def shared_ids(
    draft_size: int, target_size: int, draft_tokenizer: Any = None, target_tokenizer: Any = None
) -> np.ndarray:
    """int64[...]: the ids that mean the same to both models, increasing. Raises ValueError when vocabularies differ.

    Sizes are rows of the embedding matrices, which may be padded. Added tokens (control tokens of two releases of a
    family) may differ and are left out; an ordinary token may not.
    """
    if draft_tokenizer is None or target_tokenizer is None:
        if draft_size != target_size:
            raise ValueError(
                f"the draft has {draft_size} ids and the target {target_size}, and without both tokenizers padding "
                f"cannot be told from another vocabulary; pass both, or {_ADVICE}"
            )
        return np.arange(draft_size)
    draft, target = ({i: text for text, i in t.get_vocab().items()} for t in (draft_tokenizer, target_tokenizer))
    added = [set(t.get_added_vocab().values()) for t in (draft_tokenizer, target_tokenizer)]
    differing = [i for i in draft.keys() | target.keys() if draft.get(i) != target.get(i)]
    for ids, vocabulary, other in ((added[0], draft, target), (added[1], target, draft)):
        if wrong := sorted(i for i in differing if i in vocabulary and i not in ids):
            i = wrong[0]
            raise ValueError(
                f"{len(wrong)} ids mean different tokens to the draft and the target (id {i}: {vocabulary[i]!r} and "
                f"{other.get(i)!r}); {_ADVICE}"
            )
    size = min(draft_size, target_size)
    return np.array(sorted(i for i in draft.keys() - set(differing) if i < size), dtype=np.int64)


class DraftModelCandidates:
    """Successors by a draft model's own distribution q (a CandidateSource, see goose/sources/candidates.py).

    lm: the draft model, which shares the target's ids. Its K/V are kept from step to step.
    ids: those that may be proposed (see shared_ids); all of the head's rows when None. Of these, only the rows that the
    target has, too.
    n_proposed: successors of a node. trim: the head's rows that are scored, the prompt's own ids besides; None: all.

    q is normalised over the scored rows. A prompt, or a node, beyond the draft's own last position has no successors.
    Raises ValueError for n_proposed < 1.
    """

    source = DRAFT_MODEL
    top_k = 0  # the draft model speaks for itself: no row of the target's is kept

    def __init__(
        self, lm: TreeLM, *, ids: Sequence[int] | None = None, n_proposed: int = 10, trim: HeadTrim | None = None
    ):
        if n_proposed < 1:
            raise ValueError(f"n_proposed must be >= 1 successors of a node, got {n_proposed}")
        self.lm = lm
        self.n_proposed = self.width = n_proposed
        self._weight = lm.model.get_output_embeddings().weight.detach()  # [V, hidden]
        self._own_ids = np.arange(lm.vocab_size) if ids is None else np.unique(np.asarray(ids, dtype=np.int64))
        self._own_trim = trim
        self._n_target_rows: int | None = None
        self._set_ids()
        self._has_warned = False

    def unproposable(self, vocab_size: int) -> np.ndarray:
        """int64[...]: ids below the target's vocab_size that no node of this request can carry."""
        proposable = np.intersect1d(self._kept.cpu().numpy(), self._ids)
        return np.setdiff1d(np.arange(vocab_size), proposable)

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        if prefill.vocab_size != self._n_target_rows:
            self._n_target_rows = prefill.vocab_size
            self._set_ids()
        if self._trim is not None:
            own = np.intersect1d(np.asarray(prompt_ids, dtype=np.int64), self._ids)
            self._set_extra(np.setdiff1d(own, self._trim))
        self._is_silent = len(prompt_ids) > self.lm.max_positions
        if self._is_silent:
            self._warn_of_positions()
        else:
            self._restart(prompt_ids, _ROOM)

    def start(self, context: Sequence[int]) -> None:
        self._context = context
        if self._is_silent:
            return
        chain = self._readable(context[self.lm.n_committed :])  # what the K/V lack; the root is the last of it
        self._n_chain, self._is_scored = len(chain), False
        self._tokens = chain  # the tree in flight
        self._parents = list(range(NO_PARENT, len(chain) - 1))
        self._depths = list(range(len(chain)))
        self._in_flight = {0: len(chain) - 1}  # node of the tree that is grown -> node in flight
        self._child_of: dict[tuple[int, int], int] = {}  # (node in flight, token) -> node in flight

    def expand(self, tokens: list[int], parents: list[int], nodes: Sequence[int]) -> list[Row]:
        if self._is_silent:
            return [[] for _ in nodes]
        if list(nodes) == [0]:
            self._is_scored = self._has_position(self._depths[-1])
            if not self._is_scored:
                self._warn_of_positions()
            return self._score(0, 1) if self._is_scored else [[]]
        first = len(self._tokens)
        above = [self._in_flight[parents[node]] for node in nodes]
        if not self._has_position(self._depths[above[0]] + 1):
            return [[] for _ in nodes]
        for node, parent in zip(nodes, above, strict=True):
            self._in_flight[node] = self._child_of[parent, tokens[node]] = len(self._tokens)
            self._tokens.append(tokens[node])
            self._parents.append(parent)
            self._depths.append(self._depths[parent] + 1)
        return self._score(first, len(nodes))

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        if self._is_silent or not self._is_scored:
            return
        path = list(range(self._n_chain))
        for token in tree.tokens[verdict.path[1:]].tolist():
            node = self._child_of.get((path[-1], token))
            if node is None:
                break
            path.append(node)
        self.lm.commit(path)

    def _score(self, first: int, n_rows: int) -> list[Row]:
        """Successors of the last n_rows nodes in flight; those from `first` on are new to the draft."""
        n = len(self._tokens)
        if self.lm.n_committed + n > self._n_rows:
            self._restart(self._context[: self.lm.n_committed], 2 * self._n_rows + n)
            first = 0
        tree = DraftTree(
            np.array(self._tokens, dtype=np.int64),
            np.array(self._parents, dtype=np.int32),
            np.full(n, ROOT, dtype=np.int8),
            np.ones(n, dtype=np.float32),
        )
        return self._rows(self.lm.extend(tree, first, head=lambda hidden: self._head(hidden[-n_rows:])))

    def _has_position(self, depth: int) -> bool:
        """Whether the draft itself has a position for nodes of this depth in flight."""
        return self.lm.n_committed + depth < self.lm.max_positions

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [n, K] of the kept rows."""
        logits = hidden @ self._base_rows.T
        if len(self._hidden_columns):
            logits[:, self._hidden_columns] = -torch.inf
        return logits if self._extra_rows is None else torch.cat([logits, hidden @ self._extra_rows.T], dim=-1)

    def _rows(self, logits: torch.Tensor) -> list[Row]:
        logits = logits.float()
        best, _ = top_k_rows(logits, self.n_proposed)
        log_q = logits.gather(1, best) - logits.logsumexp(-1, keepdim=True)
        ids, scores = self._kept[best].tolist(), log_q.tolist()
        # A comparison with NaN is false, so a row that the draft could not compute proposes nothing.
        return [[pair for pair in zip(*row, strict=True) if pair[1] > -np.inf] for row in zip(ids, scores, strict=True)]

    def _warn_of_positions(self) -> None:
        if not self._has_warned:
            n = self.lm.max_positions
            warnings.warn(f"the draft model has {n} positions; beyond them drafting goes on without it", stacklevel=2)
            self._has_warned = True

    def _set_ids(self) -> None:
        """What may be proposed, and the head's rows that are scored for it."""
        n_rows = self._own_ids[-1] + 1 if self._n_target_rows is None else self._n_target_rows
        self._ids = self._own_ids[self._own_ids < n_rows]
        self._trim = None if self._own_trim is None else np.intersect1d(self._own_trim.ids, self._ids)
        # Without a trim the head is used where it lies: the few rows between that may not be proposed are hidden.
        base = np.arange(self._ids[-1] + 1) if self._trim is None else self._trim
        device = self._weight.device
        self._base = torch.from_numpy(base).to(device)  # int64[K]
        self._base_rows = self._weight[: len(base)] if self._trim is None else self._weight[self._base]  # [K, hidden]
        self._hidden_columns = torch.from_numpy(np.flatnonzero(~np.isin(base, self._ids))).to(device)
        self._set_extra(np.empty(0, dtype=np.int64))

    def _set_extra(self, ids: np.ndarray) -> None:
        """The ids that are scored besides the trimmed head's."""
        extra = torch.from_numpy(ids).to(self._base.device)
        self._extra_rows = self._weight[extra] if len(ids) else None
        self._kept = torch.cat([self._base, extra])

    def _restart(self, ids: Iterable[int], reserve: int) -> None:
        ids = self._readable(ids)
        self.lm.prefill(ids, reserve)
        self._n_rows = len(ids) + reserve

    def _readable(self, ids: Iterable[int]) -> list[int]:
        """Ids that the draft has an embedding for: a control token that only the target has is read as id 0."""
        return [token if token < self.lm.vocab_size else 0 for token in ids]
