"""Adjacency table: the target's own earlier predictions, tiers of longer keys over a unigram tier.

Every forward of the target scores every token it processes, rejected nodes included; the table keeps the best K of
each row under (previous token, token) and under the token alone, and where wanted under (the one before, previous
token, token). A later row overwrites an earlier one: no merging, no decay. Knows ids and scores only, no model.

Source: Token Recycling, arXiv 2408.08696 (unigram tier); GOOSE, arXiv 2604.02047, appendix C.1 (bigram tier).
"""

from collections.abc import Sequence

import numpy as np

from goose.engine.tree import DraftTree
from goose.engine.verify import Scored

Successors = tuple[list[int], list[float]]  # ids and scores, best first
_NONE: Successors = ([], [])
_NO_ID = -1  # behind the last id of a row narrower than K
_BITS = 21  # of a token in a key, so ids below 2,097,152: three fit into 63 bits, and keys are made in arrays


class Rows:
    """Rows of ids and scores, side by side in two arrays, in the order in which they came.

    Between two steps a forward has gone over all of the processor's caches, so a look-up pays for every object it
    touches: two array rows are a few cache lines where two lists of K numbers are 2 K objects.
    """

    def __init__(self, width: int, dtype: type = np.float32):
        self.n = 0
        self._ids = np.empty((512, width), dtype=np.int64)
        self._scores = np.empty((512, width), dtype=dtype)

    @property
    def room(self) -> int:
        return len(self._ids) - self.n

    def append(self, ids: np.ndarray, scores: np.ndarray) -> range:
        """Where the rows are now. They may be narrower than K, or wider."""
        first, self.n = self.n, self.n + len(ids)
        if ids.shape[1] > self._ids.shape[1]:
            n_more = ids.shape[1] - self._ids.shape[1]
            self._ids = np.pad(self._ids, ((0, 0), (0, n_more)), constant_values=_NO_ID)
            self._scores = np.pad(self._scores, ((0, 0), (0, n_more)))
        if self.n > len(self._ids):
            n_more = max(len(self._ids), self.n - len(self._ids))
            self._ids = np.concatenate([self._ids, np.empty((n_more, self._ids.shape[1]), self._ids.dtype)])
            self._scores = np.concatenate([self._scores, np.empty((n_more, self._ids.shape[1]), self._scores.dtype)])
        width = ids.shape[1]
        self._ids[first : self.n, :width] = ids
        self._scores[first : self.n, :width] = scores
        if width < self._ids.shape[1]:
            self._ids[first : self.n, width:] = _NO_ID
        return range(first, self.n)

    def get(self, row: int) -> Successors:
        ids, scores = self._ids[row].tolist(), self._scores[row].tolist()
        if ids[-1] == _NO_ID:
            width = ids.index(_NO_ID)
            return ids[:width], scores[:width]
        return ids, scores

    def keep(self, rows: np.ndarray) -> None:
        """Forgets all others; what was rows[i] is i now."""
        self._ids[: len(rows)], self._scores[: len(rows)] = self._ids[rows], self._scores[rows]
        self.n = len(rows)


class AdjacencyTable:
    """Successors of a token, asked by (previous, token) first, then by token.

    top_k: successors kept a key.
    bigram: whether the bigram tier exists.
    prefill_harvest: whether the prompt's own rows fill the table before the first step.
    state: "cold" forgets at every request, "warm" keeps what earlier requests taught.
    """

    trigram = False  # whether there is a tier of (before the previous, previous, token) above: TrigramTable's

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
        # By key, not [V, K] arrays: a request touches a few thousand of the V rows. All tiers share the rows.
        self._rows = Rows(self.top_k)
        self._unigrams: dict[int, int] = {}  # token -> row
        self._bigrams: dict[int, int] = {}  # (previous << BITS) + token -> row: no tuple is made a look-up
        self._trigrams: dict[int, int] = {}

    def begin(self, prompt_ids: Sequence[int], prompt_top_k, rows: Sequence[int] | None = None) -> None:
        """A new request; `prompt_top_k(K, rows)` gives ids and scores [n, K] of the prompt's rows, None: of all."""
        if self.state == "cold":
            self.reset()
        if self.prefill_harvest:
            ids, scores = prompt_top_k(self.top_k, rows)
            padded, places = [None, None, *prompt_ids], range(len(prompt_ids)) if rows is None else rows
            before, previous, tokens = ([padded[place + i] for place in places] for i in range(3))
            self.learn(tokens, previous, ids, scores, before)

    def learn(
        self,
        tokens: Sequence[int],
        previous: Sequence[int | None],
        ids: np.ndarray,  # int64[n, K], or fewer columns where the vocabulary has fewer
        scores: np.ndarray,  # float32, like ids
        before_previous: Sequence[int | None] = (),  # the tokens before `previous`; needed by the trigram tier alone
    ) -> None:
        """Row i belongs to tokens[i], seen after previous[i] (None: unknown, unigram tier only).

        A token that occurs twice keeps its later row.
        """
        # Deviation: the reference keeps bigram scores in single precision, unigram scores in half; here both are half
        # (verify.top_k_rows), so that the tiers share their rows. Its counts are reproduced all the same.
        rows = self._append(ids, scores)
        self._unigrams.update(zip(tokens, rows, strict=True))
        if self.bigram:
            pairs = zip(previous, tokens, rows, strict=True)
            self._bigrams.update(((p << _BITS) + t, row) for p, t, row in pairs if p is not None)
        if self.trigram and before_previous:
            triples = zip(before_previous, previous, tokens, rows, strict=True)
            self._trigrams.update(
                ((((b << _BITS) + p) << _BITS) + t, row) for b, p, t, row in triples if b is not None and p is not None
            )

    def learn_tree(
        self, tree: DraftTree, root_previous: int | None, scored: Scored, root_before_previous: int | None = None
    ) -> None:
        """Every node of a verified tree, rejected ones included; a node's previous token is its parent's.

        The root's own are given: the context tokens before it, None where they are unknown or not to be learnt.
        """
        tokens, parents = tree.tokens, tree.parents
        rows = self._append(scored.top_ids, scored.top_scores)
        self._unigrams.update(zip(tokens.tolist(), rows, strict=True))
        if not self.bigram:
            return
        above = tokens[parents]  # the root's, of parent -1, is not one
        first = 1 if root_previous is None else 0
        if root_previous is not None:
            above[0] = root_previous
        keys = (above << _BITS) + tokens
        self._bigrams.update(zip(keys.tolist()[first:], rows[first:], strict=True))
        if self.trigram and root_previous is not None:
            before = above[parents]  # of the root's children: its own previous token
            first = 1 if root_before_previous is None else 0
            before[0] = root_before_previous or 0
            keys += before << 2 * _BITS
            self._trigrams.update(zip(keys.tolist()[first:], rows[first:], strict=True))

    def successors(self, previous: int | None, token: int) -> Successors:
        """Ids and scores of what followed `token`, best first; empty lists when it was never processed."""
        row = None
        if previous is not None:
            row = self._bigrams.get((previous << _BITS) + token)
        if row is None:
            row = self._unigrams.get(token)
            if row is None:
                return _NONE
        return self._rows.get(row)

    def _append(self, ids: np.ndarray, scores: np.ndarray) -> range:
        """The rows' places; before they outgrow the arrays, those that no key leads to any more are dropped."""
        if len(ids) > self._rows.room:
            tiers = (self._unigrams, self._bigrams, self._trigrams)
            live = np.unique(np.fromiter((row for tier in tiers for row in tier.values()), dtype=np.int64))
            if 2 * len(live) <= self._rows.n:
                for tier in tiers:
                    places = np.searchsorted(live, np.fromiter(tier.values(), dtype=np.int64, count=len(tier)))
                    tier.update(zip(tier, places.tolist(), strict=True))
                self._rows.keep(live)
        return self._rows.append(ids, scores)


class TrigramTable(AdjacencyTable):
    """A table with a trigram tier on top, whose rows hold levels: a score's is the number of `edges` at or below it.

    edges: ascending, at most 127. Warm, it grows by every row learnt under a new trigram, which most are. Below the
    tiers lie the single-token rows, where set_single_token_rows brought them; no reset drops them.
    """

    trigram = True

    def __init__(self, edges: Sequence[float], top_k: int = 10, state: str = "cold"):
        self.edges = np.array(edges, dtype=np.float32)
        super().__init__(top_k, state=state)
        self._single = Rows(self.top_k, np.int8)  # by token

    def reset(self) -> None:
        super().reset()
        self._rows = Rows(self.top_k, np.int8)

    def set_single_token_rows(self, ids: np.ndarray, scores: np.ndarray) -> None:
        """Rows of the tokens 0 .. n - 1 (goose/sources/single_token_rows.py): int64[n, K] ids, float32[n, K] scores."""
        self._single = Rows(self.top_k, np.int8)
        self._single.append(*self._leveled(ids, scores))

    def longest(self, before_previous: int, previous: int, token: int) -> tuple[int, list[int], list[int]]:
        """(tier, ids, levels) by the longest key known: 3 trigram, 2 bigram, 1 unigram, 0 single-token row."""
        pair = (previous << _BITS) + token
        row = self._trigrams.get((before_previous << 2 * _BITS) + pair)
        if row is not None:
            return 3, *self._rows.get(row)
        row = self._bigrams.get(pair)
        if row is not None:
            return 2, *self._rows.get(row)
        row = self._unigrams.get(token)
        if row is not None:
            return 1, *self._rows.get(row)
        return 0, *(self._single.get(token) if token < self._single.n else _NONE)

    def levels(self, scores: np.ndarray) -> np.ndarray:
        """int64, like scores: the number of `edges` at or below each."""
        return np.searchsorted(self.edges, scores, side="right")

    def _append(self, ids: np.ndarray, scores: np.ndarray) -> range:
        return super()._append(*self._leveled(ids, scores))

    def _leveled(self, ids: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return ids[:, : self.top_k], self.levels(scores[:, : self.top_k])
