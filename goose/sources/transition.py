"""Adjacency table: the target's own earlier predictions, tiers of longer keys over a unigram tier.

Every forward of the target scores every token it processes, rejected nodes included; a table keeps the best K of each
row under the token (unigram), under (previous token, token) (bigram) and so on. A later row overwrites an earlier one:
no merging, no decay. Knows ids and scores only, no model.

Source: Token Recycling, arXiv 2408.08696 (unigram tier); GOOSE, arXiv 2604.02047, appendix C.1 (bigram tier).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from goose.engine.tree import DraftTree
from goose.engine.verify import Scored

Successors = tuple[list[int], list[float]]  # ids and scores, best first
PromptTopK = Callable[[int, Sequence[int] | None], tuple[np.ndarray, np.ndarray]]
_NONE: tuple[list[int], list[Any]] = ([], [])
_NO_ID = -1  # fills a row narrower than K
_BITS = 21  # of a token in a key, so ids below 2,097,152: three fit into 63 bits, and keys are made in arrays


class Rows:
    """Rows of ids and scores, side by side in arrays, in the order in which they came.

    Between two steps a forward has gone over all of the processor's caches, so a look-up pays for every object it
    touches: two array rows are a few cache lines where two lists of K numbers are 2 K objects.

    dtypes: what the scores are kept in; with several, each row is kept in each and `get` chooses.
    """

    def __init__(self, width: int, *dtypes: type):
        self.n = 0
        self._ids = np.empty((512, width), dtype=np.int64)
        self._scores: list[np.ndarray] = [np.empty((512, width), dtype=dtype) for dtype in dtypes]

    @property
    def room(self) -> int:
        return len(self._ids) - self.n

    def append(self, ids: np.ndarray, scores: np.ndarray) -> range:
        """Where the rows [n, width] are now; their width need not be that of earlier rows."""
        first, self.n = self.n, self.n + len(ids)
        width = ids.shape[1]
        if self.n > len(self._ids) or width > self._ids.shape[1]:
            self._grow(max(0, width - self._ids.shape[1]))
        self._ids[first : self.n, :width] = ids
        for kept in self._scores:
            kept[first : self.n, :width] = scores
        if width < self._ids.shape[1]:
            self._ids[first : self.n, width:] = _NO_ID
        return range(first, self.n)

    def _grow(self, n_columns: int) -> None:
        n_rows = max(len(self._ids), self.n - len(self._ids)) if self.n > len(self._ids) else 0
        more = ((0, n_rows), (0, n_columns))
        self._ids = np.pad(self._ids, more, constant_values=_NO_ID)
        self._scores = [np.pad(kept, more) for kept in self._scores]

    def get(self, row: int, dtype: int = 0) -> tuple[list[int], list[Any]]:
        """Ids and scores, best first. `dtype`: index of the dtype in which the scores are wanted."""
        ids, scores = self._ids[row].tolist(), self._scores[dtype][row].tolist()
        if ids[-1] == _NO_ID:
            width = ids.index(_NO_ID)
            return ids[:width], scores[:width]
        return ids, scores

    def keep(self, rows: np.ndarray) -> None:
        """Forgets all others; what was rows[i] is i now."""
        for kept in (self._ids, *self._scores):
            kept[: len(rows)] = kept[rows]
        self.n = len(rows)


class TieredRows:
    """Rows under keys of one token, two, ... up to `order`: a token after none, one, ... of the tokens before it.

    top_k: successors kept a key. order: tokens of the longest key, 1 to 3.
    prefill_harvest: whether the prompt's own rows fill the tiers before the first step.
    state: "cold" forgets at every request, "warm" keeps what earlier requests taught.
    """

    _dtypes: tuple[type, ...]  # that scores are kept in

    def __init__(self, top_k: int, order: int, prefill_harvest: bool = True, state: str = "cold"):
        if not isinstance(top_k, int) or top_k < 1:
            raise ValueError(f"top_k must be a whole number >= 1, got {top_k!r}")
        if state not in ("cold", "warm"):
            raise ValueError(f"state must be 'cold' or 'warm', got {state!r}")
        self.top_k = top_k
        self.prefill_harvest = prefill_harvest
        self.state = state
        self._order = order
        self.reset()

    def reset(self) -> None:
        # By key, not [V, K] arrays: a request touches a few thousand of the V rows. All tiers share the rows.
        self._rows = Rows(self.top_k, *self._dtypes)
        # A tier a key length: key -> row; (previous << BITS) + token and so on, so that no tuple is made a look-up.
        self._tiers: list[dict[int, int]] = [{} for _ in range(self._order)]

    def begin(self, prompt_ids: Sequence[int], prompt_top_k: PromptTopK, rows: Sequence[int] | None = None) -> None:
        """A new request; `prompt_top_k(K, rows)` gives ids and scores [n, K] of the prompt's rows, None: of all."""
        if self.state == "cold":
            self.reset()
        if self.prefill_harvest:
            ids, scores = prompt_top_k(self.top_k, rows)
            padded, positions = [None, None, *prompt_ids], range(len(prompt_ids)) if rows is None else rows
            before, previous = ([padded[position + i] for position in positions] for i in range(2))
            self.learn([prompt_ids[position] for position in positions], previous, ids, scores, before)

    def learn(
        self,
        tokens: Sequence[int],
        previous: Sequence[int | None],
        ids: np.ndarray,  # int64[n, K], or fewer columns where the vocabulary has fewer
        scores: np.ndarray,  # float32, like ids
        before_previous: Sequence[int | None] | None = None,  # None: unknown throughout
    ) -> None:
        """Row i belongs to tokens[i] after previous[i] after before_previous[i]; None: unknown, no longer keys.

        A token that occurs twice keeps its later row.
        """
        rows = self._append(ids, scores)
        keys: list[int | None] = list(tokens)
        for distance, tier in enumerate(self._tiers):
            if distance:
                earlier = (previous, before_previous)[distance - 1]
                if earlier is None:
                    return
                shift = distance * _BITS
                keys = [
                    None if key is None or e is None else key + (e << shift)
                    for key, e in zip(keys, earlier, strict=True)
                ]
            tier.update((key, row) for key, row in zip(keys, rows, strict=True) if key is not None)

    def learn_tree(
        self, tree: DraftTree, root_previous: int | None, scored: Scored, root_before_previous: int | None = None
    ) -> None:
        """Every node of a verified tree, rejected ones included; a node's previous token is its parent's.

        The root's own are given: the context tokens before it, None where they are unknown or not to be learnt.
        """
        rows = self._append(scored.top_ids, scored.top_scores)
        keys = earlier = tree.tokens
        for distance, tier in enumerate(self._tiers):
            first = 0
            if distance:
                before_root = (root_previous, root_before_previous)[distance - 1]
                earlier = earlier[tree.parents]  # wrong at the root, whose parent is -1
                if before_root is None:
                    first = 1
                else:
                    earlier[0] = before_root
                keys = keys + (earlier << distance * _BITS)
            tier.update(zip(keys.tolist()[first:], rows[first:], strict=True))
            if distance and root_previous is None:
                return  # the keys of the root's children would be unknown one tier on

    def _append(self, ids: np.ndarray, scores: np.ndarray) -> range:
        """Where the rows are now; before they outgrow the arrays, those that no key leads to any more are dropped."""
        if len(ids) > self._rows.room:
            live = np.unique(np.fromiter((row for tier in self._tiers for row in tier.values()), dtype=np.int64))
            if 2 * len(live) <= self._rows.n:
                for tier in self._tiers:
                    moved = np.searchsorted(live, np.fromiter(tier.values(), dtype=np.int64, count=len(tier)))
                    tier.update(zip(tier, moved.tolist(), strict=True))
                self._rows.keep(live)
        return self._rows.append(ids, scores)


class AdjacencyTable(TieredRows):
    """Successors of a token, asked by (previous, token) first, then by token.

    As in GOOSE's reference code a bigram's scores are in single precision and a unigram's in half: where they lie near
    a threshold, the tree depends on it.

    top_k: successors kept a key.
    bigram: whether the bigram tier exists.
    prefill_harvest: whether the prompt's own rows fill the table before the first step.
    state: "cold" forgets at every request, "warm" keeps what earlier requests taught.
    """

    _dtypes = (np.float32, np.float16)

    def __init__(self, top_k: int = 10, bigram: bool = True, prefill_harvest: bool = True, state: str = "cold"):
        self.bigram = bigram
        super().__init__(top_k, 2 if bigram else 1, prefill_harvest, state)

    def successors(self, previous: int | None, token: int) -> Successors:
        """Ids and scores of what followed `token`, best first; empty lists when it was never processed."""
        if previous is not None and self.bigram:
            row = self._tiers[1].get((previous << _BITS) + token)
            if row is not None:
                return self._rows.get(row)
        row = self._tiers[0].get(token)
        return _NONE if row is None else self._rows.get(row, dtype=1)


class TrigramTable(TieredRows):
    """Three tiers whose rows hold levels instead of scores: a score's is the number of `edges` at or below it.

    edges: ascending, at most 127. Warm, it grows by every row learnt under a new trigram, which most are. Below the
    tiers lie the single-token rows, where set_single_token_rows brought them; no reset drops them.
    """

    _dtypes = (np.int8,)

    def __init__(self, edges: Sequence[float], top_k: int = 10, state: str = "cold"):
        self.edges = np.array(edges, dtype=np.float32)
        super().__init__(top_k, 3, state=state)
        self._single = Rows(self.top_k, *self._dtypes)  # by token

    def set_single_token_rows(self, ids: np.ndarray, scores: np.ndarray) -> None:
        """Rows of the tokens 0 .. n - 1 (goose/sources/single_token_rows.py): int64[n, K] ids, float32[n, K] scores."""
        self._single = Rows(self.top_k, *self._dtypes)
        self._single.append(*self._leveled(ids, scores))

    def longest(self, before_previous: int, previous: int, token: int) -> tuple[int, list[int], list[int]]:
        """(tier, ids, levels) by the longest key known: 3 trigram, 2 bigram, 1 unigram, 0 single-token row."""
        unigrams, bigrams, trigrams = self._tiers
        pair = (previous << _BITS) + token
        row = trigrams.get((before_previous << 2 * _BITS) + pair)
        if row is not None:
            return 3, *self._rows.get(row)
        row = bigrams.get(pair)
        if row is not None:
            return 2, *self._rows.get(row)
        row = unigrams.get(token)
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
