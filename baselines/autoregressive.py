"""Plain decoding: a drafter that proposes nothing, so that the baseline runs in the same loop on the same clock."""

from collections.abc import Sequence

from goose.engine.contract import Prefill
from goose.engine.tree import DraftTree, single_node
from goose.engine.verify import Scored, Verdict


class AutoregressiveDrafter:
    """The one-node tree, every step."""

    top_k = 0
    overdraft = 0

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        pass

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        return single_node(context[-1])

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        pass
