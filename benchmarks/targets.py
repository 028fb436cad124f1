"""What conf/ names by dotted path besides goose and baselines: import paths that stay when modules move.

Records hold these paths; paths of earlier versions are read through benchmarks/record/history.py.
"""

from benchmarks.cost.sizing import StepCost, VerifyCost
from benchmarks.models.drafts import DraftCandidates, DraftChoice
from benchmarks.models.load import ModelSpec

__all__ = ["DraftCandidates", "DraftChoice", "ModelSpec", "StepCost", "VerifyCost"]
