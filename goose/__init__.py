"""Training-free speculative decoding with draft trees, for any full-attention Hugging Face decoder.

>>> import goose
>>> generation = goose.decode(model, prompt_ids, goose.GooseDrafter(), max_new_tokens=128, stop_ids=[eos])
"""

from goose.drafter import GooseDrafter
from goose.engine.decode import Drafter, Generation, Prefill, decode
from goose.engine.lm import TreeLM
from goose.engine.tree import DraftTree, TreeBuilder
from goose.engine.verify import NonFiniteLogits, Sampling, Scored, Verdict
from goose.generation import generate_with
from goose.sources.context import ContextMatcher
from goose.sources.transition import AdjacencyTable

__all__ = [
    "AdjacencyTable",
    "ContextMatcher",
    "DraftTree",
    "Drafter",
    "Generation",
    "GooseDrafter",
    "NonFiniteLogits",
    "Prefill",
    "Sampling",
    "Scored",
    "TreeBuilder",
    "TreeLM",
    "Verdict",
    "decode",
    "generate_with",
]
