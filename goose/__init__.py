"""Training-free speculative decoding with draft trees, for any full-attention Hugging Face decoder.

>>> import goose
>>> generation = goose.decode(model, prompt_ids, goose.GooseDrafter(), max_new_tokens=128, stop_ids=[eos])
>>> model.generate(**inputs, do_sample=False, custom_generate=goose.generate_with(goose.GooseDrafter()))

A drafter guesses a tree of tokens, the target model verifies it in one forward pass, and the output is exactly that of
plain decoding. Ids, trees and logits only: no text, no data sets, no benchmark.
"""

from goose.drafters.goose import GooseDrafter
from goose.drafters.goose_opt import GooseOptDrafter
from goose.drafters.oracle import OracleDrafter
from goose.drafters.probabilities import AcceptanceProbabilities
from goose.engine.contract import Drafter, Prefill
from goose.engine.cost import MeasuredCost
from goose.engine.decode import Generation, decode
from goose.engine.lm import TreeLM
from goose.engine.tree import DraftTree, TreeBuilder
from goose.engine.verify import NonFiniteLogits, Sampling, Scored, Verdict
from goose.generation import generate_with
from goose.sources.context import ContextMatcher
from goose.sources.evidence import Evidence
from goose.sources.transition import AdjacencyTable

__version__ = "0.1.0"  # pyproject.toml reads it here

__all__ = [
    "AcceptanceProbabilities",
    "AdjacencyTable",
    "ContextMatcher",
    "DraftTree",
    "Drafter",
    "Evidence",
    "Generation",
    "GooseDrafter",
    "GooseOptDrafter",
    "MeasuredCost",
    "NonFiniteLogits",
    "OracleDrafter",
    "Prefill",
    "Sampling",
    "Scored",
    "TreeBuilder",
    "TreeLM",
    "Verdict",
    "__version__",
    "decode",
    "generate_with",
]
