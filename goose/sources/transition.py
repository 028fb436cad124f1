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
        # Dictionaries of rows, not [V, K] arrays: a request touches a few thousand of the V rows.
        self._unigrams: dict[int, Successors] = {}
        self._bigrams: dict[int, Successors] = {}  # (previous << 32) + token: no tuple is made a look-up

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
        ids: np.ndarray,  # int64[n, K]
        scores: np.ndarray,  # float32[n, K]
    ) -> None:
        """Row i belongs to tokens[i], seen after previous[i] (None: unknown, unigram tier only).

        A token that occurs twice keeps its later row.
        """
        # Deviation: the reference keeps bigram scores in single precision, unigram scores in half; here both are half
        # (verify.top_k_rows), so that the tiers share their rows. Its counts are reproduced all the same.
        rows = list(zip(ids.tolist(), scores.tolist(), strict=True))
        self._unigrams.update(zip(tokens, rows, strict=True))
        if self.bigram:
            for before, token, row in zip(previous, tokens, rows, strict=True):
                if before is not None:
                    self._bigrams[(before << 32) + token] = row

    def learn_tree(self, tree: DraftTree, root_previous: int | None, scored: Scored) -> None:
        """Every node of a verified tree, rejected ones included; a node's previous token is its parent's."""
        tokens = tree.tokens.tolist()
        previous = [root_previous, *[tokens[parent] for parent in tree.parents[1:].tolist()]]
        self.learn(tokens, previous, scored.top_ids, scored.top_scores)

    def successors(self, previous: int | None, token: int) -> Successors:
        """Ids and scores of what followed `token`, best first; empty lists when it was never processed."""
        if previous is not None and self.bigram:
            row = self._bigrams.get((previous << 32) + token)
            if row is not None:
                return row
        return self._unigrams.get(token, _NONE)
