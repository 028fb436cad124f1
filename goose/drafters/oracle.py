"""What is left to gain: goose_opt with every right candidate first, which takes the answer to be known in advance.

Its tree holds the target's own next tokens as far as the sources name them, then goose_opt's nodes. No estimate of
probabilities over the same sources can accept more from the same tables: what it misses, no source had named.
"""

from collections.abc import Sequence

import numpy as np

from goose.drafters.goose_opt import GooseOptDrafter
from goose.engine.contract import Prefill
from goose.engine.tree import DraftTree, TreeBuilder
from goose.engine.verify import Scored, Verdict
from goose.sources.evidence import N_CELLS, Evidence, source_of


class OracleDrafter:
    """An upper bound at a strict budget of B nodes. `set_answer` must come before every `begin`.

    evidence: the sources, those of goose_opt_strict but for single-token rows when None.
    """

    overdraft = 0

    def __init__(self, evidence: Evidence | None = None):
        self._honest = GooseOptDrafter(evidence or Evidence(n_harvested=None), size="budget")
        self.top_k = self._honest.top_k
        self._answer: list[int] | None = None
        self._any_probability = [1.0] * N_CELLS

    @property
    def n_single_token_rows(self) -> int:
        return self._honest.n_single_token_rows

    def set_single_token_rows(self, ids: np.ndarray, scores: np.ndarray) -> None:
        """int64[n, K] and float32[n, K] of the ids 0 .. n - 1."""
        self._honest.set_single_token_rows(ids, scores)

    def set_answer(self, output_ids: Sequence[int]) -> None:
        """The ids that the next request will emit."""
        self._answer = list(output_ids)

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        if self._answer is None:
            raise ValueError("the oracle does not know the answer; call set_answer() before every request")
        self._text, self._answer = [*prompt_ids, *self._answer], None
        self._honest.begin(prompt_ids, prefill)

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        tree, evidence = self._honest.draft(context, budget), self._honest.evidence
        builder = TreeBuilder(context[-1], budget)
        node, state = 0, evidence.root(context)
        for token in self._text[len(context) : len(context) + budget - 1]:
            cells = dict(evidence.candidates(state, self._any_probability, 0.0, node == 0))
            child = builder.add(node, token, source_of(cells[token])) if token in cells else None
            if child is None:
                break
            node, state = child, evidence.child(state, token)
        at = {0: 0}  # node of the honest tree -> its node here, where there was room
        columns = tree.tokens.tolist(), tree.parents.tolist(), tree.sources.tolist(), tree.scores.tolist()
        for i, (token, parent, source, score) in enumerate(zip(*columns, strict=True)):
            if parent in at:
                child = builder.add(at[parent], token, source, score)
                if child is not None:
                    at[i] = child
        return builder.build()

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        self._honest.evidence.learn(tree, verdict, scored)  # no probability: it did not choose these nodes
