"""PLD, prompt lookup decoding (Saxena, 2023): one chain copied from where the newest n-gram occurred before.

Three published variants, all taking the longest n-gram first and its earliest occurrence, the newest token being part
of the key. They differ in what they do with a short continuation and with a stop id.
"""

from collections.abc import Sequence

from goose.engine.contract import Prefill
from goose.engine.tree import CONTEXT, DraftTree, chain
from goose.engine.verify import Scored, Verdict
from goose.sources.context import ContextMatcher

VARIANTS = ("hf", "original", "vllm")


class PromptLookupDrafter:
    """The tokens that followed the context's longest matching n-gram, as a chain.

    variant: hf (transformers): the continuation ends at the context's end and before a stop id ·
    original (also Spec-Bench): an n-gram counts only when num_tokens tokens follow it, otherwise a smaller one is tried
    · vllm: the continuation ends at the context's end. None of them drafts a dummy where nothing matches.

    max_ngram, min_ngram: n-gram lengths tried, longest first. num_tokens: longest draft, in tokens.
    Every node scores 1. Raises ValueError for an unknown variant or lengths below 1.
    """

    top_k = 0
    overdraft = 0

    def __init__(self, variant: str = "hf", max_ngram: int = 3, min_ngram: int = 1, num_tokens: int = 10):
        if variant not in VARIANTS:
            raise ValueError(f"variant must be one of {VARIANTS}, got {variant!r}")
        if not 1 <= min_ngram <= max_ngram:
            raise ValueError(f"1 <= min_ngram <= max_ngram must hold, got min_ngram={min_ngram}, max_ngram={max_ngram}")
        if num_tokens < 1:
            raise ValueError(f"num_tokens must be >= 1, got {num_tokens}")
        self.variant, self.num_tokens = variant, num_tokens
        self._matcher = ContextMatcher(range(max_ngram, min_ngram - 1, -1), max_match=num_tokens)

    def begin(self, prompt_ids: Sequence[int], prefill: Prefill) -> None:
        self._matcher.reset()
        self._stop_ids = prefill.stop_ids

    def draft(self, context: Sequence[int], budget: int) -> DraftTree:
        return chain(context[-1], self.lookup(context), CONTEXT, budget)

    def lookup(self, context: Sequence[int]) -> list[int]:
        """The copied continuation of `context`; [] when nothing matches."""
        self._matcher.extend(context)
        if self.variant == "original":
            return self._matcher.match(context, at_least=self.num_tokens)
        tokens = self._matcher.match(context)
        if self.variant == "hf":
            for i, token in enumerate(tokens):
                if token in self._stop_ids:
                    return tokens[:i]
        return tokens

    def observe(self, tree: DraftTree, verdict: Verdict, scored: Scored) -> None:
        pass
