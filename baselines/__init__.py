"""The methods that GOOSE is compared with, one file each. Each name here stays where conf/ and records find it."""

from baselines.adjacency import AdjacencyCandidates
from baselines.autoregressive import AutoregressiveDrafter
from baselines.balanced import BalancedDrafter, MixedBalancedDrafter
from baselines.opt_tree import OptTreeDrafter
from baselines.pld import PromptLookupDrafter
from baselines.sequoia import SequoiaDrafter
from baselines.suffix import SuffixDrafter
from baselines.token_recycling import TokenRecyclingDrafter

__all__ = [
    "AdjacencyCandidates",
    "AutoregressiveDrafter",
    "BalancedDrafter",
    "MixedBalancedDrafter",
    "OptTreeDrafter",
    "PromptLookupDrafter",
    "SequoiaDrafter",
    "SuffixDrafter",
    "TokenRecyclingDrafter",
]
