"""Adjacency table: the target's own earlier predictions, a bigram tier over a unigram tier.

Every forward of the target scores every token it processes, rejected nodes included; the table keeps the best K of
each row under (previous token, token) and under the token alone. A later row overwrites an earlier one: no merging, no
decay. Knows ids and scores only, no model.

Source: Token Recycling, arXiv 2408.08696 (unigram tier); GOOSE, arXiv 2604.02047, appendix C.1 (bigram tier).
"""

from collections.abc import Sequence

import numpy as np

from goose.engine.tree import DraftTree
from goose.engine.verify import Scored

Successors = tuple[list[int], list[float]]  # ids and scores, best first
_NONE: Successors = ([], [])
_NO_ID = -1  # behind the last id of a row narrower than K


class Rows:
    """Rows of ids and scores by key, side by side in two arrays.

    Between two steps a forward has gone over all of the processor's caches, so a look-up pays for every object it
    touches: two array rows are a few cache lines where two lists of K numbers are 2 K objects.
    """

    def __init__(self, width: int):
        self._slots: dict[int, int] = {}  # key -> row of both arrays
        self._ids = np.empty((64, width), dtype=np.int64)
        self._scores = np.empty((64, width), dtype=np.float32)

    def put(self, keys: list[int], ids: np.ndarray, scores: np.ndarray) -> None:
        """Row i takes the place of what keys[i] had; of equal keys the last one's stays. Rows may be of any width."""
        slots = self._slots
        at = np.array([slots.setdefault(key, len(slots)) for key in keys], dtype=np.intp)
        if len(slots) > len(self._ids):
            n_more = max(len(self._ids), len(slots) - len(self._ids))
            self._ids = np.concatenate([self._ids, np.empty((n_more, self._ids.shape[1]), self._ids.dtype)])
            self._scores = np.concatenate([self._scores, np.empty((n_more, self._ids.shape[1]), self._scores.dtype)])
        width, n_more = ids.shape[1], ids.shape[1] - self._ids.shape[1]
        if n_more > 0:
            self._ids = np.pad(self._ids, ((0, 0), (0, n_more)), constant_values=_NO_ID)
            self._scores = np.pad(self._scores, ((0, 0), (0, n_more)))
        if width == self._ids.shape[1]:
            self._ids[at], self._scores[at] = ids, scores
        else:
            self._ids[at, :width], self._scores[at, :width] = ids, scores
            self._ids[at, width:] = _NO_ID

    def get(self, key: int) -> Successors | None:
        slot = self._slots.get(key)
        if slot is None:
            return None
        ids, scores = self._ids[slot].tolist(), self._scores[slot].tolist()
        if ids[-1] == _NO_ID:
            width = ids.index(_NO_ID)
            return ids[:width], scores[:width]
        return ids, scores


class AdjacencyTable:
    """Successors of a token, asked by (previous, token) first, then by token.

    top_k: successors kept a key.
    bigram: whether the bigram tier exists.
    prefill_harvest: whether the prompt's own rows fill the table before the first step.
    state: "cold" forgets at every request, "warm" keeps what earlier requests taught.
    """

    def __init__(self, top_k: int = 10, bigram: bool = True, prefill_harvest: bool = True, state: str = "cold"):
        if not isinstance(top_k, int) or top_k < 1:
            raise ValueError(f"top_k must be a whole number >= 1, got {top_k!r}")
        if state not in ("cold", "warm"):
            raise ValueError(f"state must be 'cold' or 'warm', got {state!r}")
        self.top_k = top_k
        self.bigram = bigram
        self.prefill_harvest = prefill_harvest
        self.state = state
        self.reset()

    def reset(self) -> None:
        # By key, not [V, K] arrays: a request touches a few thousand of the V rows.
        self._unigrams = Rows(self.top_k)
        self._bigrams = Rows(self.top_k)  # key (previous << 32) + token: no tuple is made a look-up

    def begin(self, prompt_ids: Sequence[int], prompt_top_k) -> None:
        """A new request; `prompt_top_k(K)` gives ids and scores [L, K] of the prompt's rows."""
        if self.state == "cold":
            self.reset()
        if self.prefill_harvest:
            ids, scores = prompt_top_k(self.top_k)
            self.learn(prompt_ids, [None, *prompt_ids[:-1]], ids, scores)

    def learn(
        self,
        tokens: Sequence[int],
        previous: Sequence[int | None],
        ids: np.ndarray,  # int64[n, K], or fewer columns where the vocabulary has fewer
        scores: np.ndarray,  # float32, like ids
    ) -> None:
        """Row i belongs to tokens[i], seen after previous[i] (None: unknown, unigram tier only).

        A token that occurs twice keeps its later row.
        """
        # Deviation: the reference keeps bigram scores in single precision, unigram scores in half; here both are half
        # (verify.top_k_rows), so that the tiers share their rows. Its counts are reproduced all the same.
        self._unigrams.put(list(tokens), ids, scores)
        if self.bigram:
            known = [i for i, before in enumerate(previous) if before is not None]
            if len(known) < len(previous):
                tokens, previous = [tokens[i] for i in known], [previous[i] for i in known]
                ids, scores = ids[known], scores[known]
            pairs = zip(previous, tokens, strict=True)
            self._bigrams.put([(before << 32) + token for before, token in pairs], ids, scores)

    def learn_tree(self, tree: DraftTree, root_previous: int | None, scored: Scored) -> None:
        """Every node of a verified tree, rejected ones included; a node's previous token is its parent's."""
        tokens, ids, scores = tree.tokens, scored.top_ids, scored.top_scores
        self._unigrams.put(tokens.tolist(), ids, scores)
        if self.bigram:
            pairs = ((tokens[tree.parents] << 32) + tokens).tolist()  # the root's, of parent -1, is not one
            if root_previous is None:
                self._bigrams.put(pairs[1:], ids[1:], scores[1:])
            else:
                pairs[0] = (root_previous << 32) + int(tokens[0])
                self._bigrams.put(pairs, ids, scores)

    def successors(self, previous: int | None, token: int) -> Successors:
        """Ids and scores of what followed `token`, best first; empty lists when it was never processed."""
        if previous is not None and self.bigram:
            row = self._bigrams.get((previous << 32) + token)
            if row is not None:
                return row
        return self._unigrams.get(token) or _NONE
