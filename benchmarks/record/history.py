"""The versions of a run folder's record, and how a header of an earlier one is read as today's.

    1  the first: methods hold the paths of modules as they lay then; `engine`, `files` and `sized_by` came later
    2  methods hold paths that stay when modules move (goose, baselines, benchmarks.targets); `engine` is always there

The page for readers: docs/records.md. Lines are alike in both versions (benchmarks/record/turn.py).
"""

from typing import Any

SCHEMA_VERSION = 2
READABLE = (1, 2)

# Version 1: where a class lay -> the path that stays.
MOVED = {
    "baselines.autoregressive.AutoregressiveDrafter": "baselines.AutoregressiveDrafter",
    "baselines.balanced.BalancedDrafter": "baselines.BalancedDrafter",
    "baselines.balanced.MixedBalancedDrafter": "baselines.MixedBalancedDrafter",
    "baselines.opt_tree.AdjacencyFiller": "baselines.AdjacencyFiller",
    "baselines.opt_tree.OptTreeDrafter": "baselines.OptTreeDrafter",
    "baselines.pld.PromptLookupDrafter": "baselines.PromptLookupDrafter",
    "baselines.sequoia.SequoiaDrafter": "baselines.SequoiaDrafter",
    "baselines.suffix.SuffixDrafter": "baselines.SuffixDrafter",
    "baselines.token_recycling.TokenRecyclingDrafter": "baselines.TokenRecyclingDrafter",
    "benchmarks.cost_curve.StepCost": "benchmarks.targets.StepCost",
    "benchmarks.draft.DraftChoice": "benchmarks.targets.DraftChoice",
    "benchmarks.draft.DraftFiller": "benchmarks.targets.DraftFiller",
    "benchmarks.models.ModelSpec": "benchmarks.targets.ModelSpec",
    "benchmarks.verify_cost.VerifyCost": "benchmarks.targets.VerifyCost",
    "goose.chances.Chances": "goose.Chances",
    "goose.drafter.GooseDrafter": "goose.GooseDrafter",
    "goose.optimal.GooseOptDrafter": "goose.GooseOptDrafter",
    "goose.oracle.OracleDrafter": "goose.OracleDrafter",
    "goose.sources.context.ContextMatcher": "goose.ContextMatcher",
    "goose.sources.evidence.Evidence": "goose.Evidence",
    "goose.sources.transition.AdjacencyTable": "goose.AdjacencyTable",
}


def upgraded(header: dict) -> dict:
    """A header of any readable version as one of SCHEMA_VERSION; the argument stays as it is."""
    if header.get("schema_version") == SCHEMA_VERSION:
        return header
    # Before the key `engine` there was one engine, the model's own modules.
    added = {"engine": "eager", "files": {}, "sized_by": {}}
    new = added | header | {"schema_version": SCHEMA_VERSION}
    if "methods" in new:
        new["methods"] = _with_paths_that_stay(new["methods"])
    return new


def _with_paths_that_stay(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_paths_that_stay(one) for one in value]
    if isinstance(value, dict):
        return {
            key: MOVED.get(one, one) if key == "_target_" else _with_paths_that_stay(one) for key, one in value.items()
        }
    return value
