"""What is left to gain: goose_opt with every right candidate first, which only who knows the answer can draft.

Its tree holds the target's own next tokens as far as the sources name them, then goose_opt's nodes. No estimate of
chances over the same sources can accept more from the same tables: what it leaves behind, no source had named.
"""

from collections.abc import Sequence

from goose.drafters.goose_opt import GooseOptDrafter
from goose.engine.contract import Prefill
from goose.engine.tree import NO_PARENT, DraftTree, TreeBuilder
from goose.engine.verify import Scored, Verdict
from goose.sources.evidence import N_CELLS, Evidence, source_of


class OracleDrafter:
    """A strict budget of B nodes. `tell` must come before every `begin`: the ids that the request will emit.

    evidence: the sources, those of goose_opt_strict but for single tokens' rows when None.
    """

    overdraft = 0

    def __init__(self, evidence: Evidence | None = None):
        self._honest = GooseOptDrafter(evidence or Evidence(n_harvested=None))
        self.n_alone, self.know_alone = self._honest.n_alone, self._honest.know_alone
        self.top_k = self._honest.top_k
        self._answer: list[int] | None = None
        self._any_chance = [1.0] * N_CELLS

    def tell(self, answer: Sequence[int]) -> None:
        self._answer = list(answer)

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        if self._answer is None:
            raise ValueError("the oracle was not told the answer; call tell() before every request")
        self._text, self._answer = [*prompt_ids, *self._answer], None
        self._honest.begin(prompt_ids, prefill)

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        tree, evidence = self._honest.draft(context, budget), self._honest.evidence
        builder = TreeBuilder(context[-1], budget)
        node, place = 0, evidence.root(context)
        for token in self._text[len(context) : len(context) + budget - 1]:
            cells = dict(evidence.candidates(place, self._any_chance, 0.0, node == 0))
            if token not in cells:
                break
            node = builder.add(node, token, source_of(cells[token]))
            place = evidence.child(place, token)
        at: dict[int, int | None] = {0: 0}  # node of the honest tree -> its node here; None without room
        columns = tree.tokens.tolist(), tree.parents.tolist(), tree.sources.tolist(), tree.scores.tolist()
        for i, (token, parent, source, score) in enumerate(zip(*columns, strict=True)):
            if parent != NO_PARENT:
                at[i] = None if at[parent] is None else builder.add(at[parent], token, source, score)
        return builder.build()

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        self._honest.evidence.learn(tree, verdict, scored)  # the chances learn nothing: they did not choose these nodes
