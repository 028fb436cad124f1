"""The versions of a run folder's record, and how a header of an earlier one is read as today's.

    1  the first: methods hold the paths of modules as they lay then; `engine`, `files` and `sized_by` came later
    2  methods hold paths that stay when modules move (goose, baselines, benchmarks.targets); `engine` is always there
    3  classes and keys of methods that were renamed (MOVED, RENAMED_KEYS)

The page for readers: docs/records.md. Lines are alike in all versions (benchmarks/record/turn.py).
"""

from typing import Any

SCHEMA_VERSION = 3
READABLE = (1, 2, 3)

# A class path of an earlier version -> today's.
MOVED = {
    "baselines.autoregressive.AutoregressiveDrafter": "baselines.AutoregressiveDrafter",
    "baselines.balanced.BalancedDrafter": "baselines.BalancedDrafter",
    "baselines.balanced.MixedBalancedDrafter": "baselines.MixedBalancedDrafter",
    "baselines.AdjacencyFiller": "baselines.AdjacencyCandidates",
    "baselines.opt_tree.AdjacencyFiller": "baselines.AdjacencyCandidates",
    "baselines.opt_tree.OptTreeDrafter": "baselines.OptTreeDrafter",
    "baselines.pld.PromptLookupDrafter": "baselines.PromptLookupDrafter",
    "baselines.sequoia.SequoiaDrafter": "baselines.SequoiaDrafter",
    "baselines.suffix.SuffixDrafter": "baselines.SuffixDrafter",
    "baselines.token_recycling.TokenRecyclingDrafter": "baselines.TokenRecyclingDrafter",
    "benchmarks.cost_curve.StepCost": "benchmarks.targets.StepCost",
    "benchmarks.draft.DraftChoice": "benchmarks.targets.DraftChoice",
    "benchmarks.draft.DraftFiller": "benchmarks.targets.DraftCandidates",
    "benchmarks.models.ModelSpec": "benchmarks.targets.ModelSpec",
    "benchmarks.targets.DraftFiller": "benchmarks.targets.DraftCandidates",
    "benchmarks.verify_cost.VerifyCost": "benchmarks.targets.VerifyCost",
    "goose.Chances": "goose.AcceptanceProbabilities",
    "goose.chances.Chances": "goose.AcceptanceProbabilities",
    "goose.drafter.GooseDrafter": "goose.GooseDrafter",
    "goose.optimal.GooseOptDrafter": "goose.GooseOptDrafter",
    "goose.oracle.OracleDrafter": "goose.OracleDrafter",
    "goose.sources.context.ContextMatcher": "goose.ContextMatcher",
    "goose.sources.evidence.Evidence": "goose.Evidence",
    "goose.sources.transition.AdjacencyTable": "goose.AdjacencyTable",
}

# Today's class path -> its arguments that had another name in an earlier version, old -> new.
RENAMED_KEYS = {
    "baselines.OptTreeDrafter": {"fill": "candidates"},
    "baselines.SequoiaDrafter": {"fill": "candidates"},
}


def upgraded(header: dict) -> dict:
    """A header of any readable version as one of SCHEMA_VERSION; the argument stays as it is."""
    if header.get("schema_version") == SCHEMA_VERSION:
        return header
    # Before the key `engine` there was one engine, the model's own modules.
    added = {"engine": "eager", "files": {}, "sized_by": {}}
    new = added | header | {"schema_version": SCHEMA_VERSION}
    if "methods" in new:
        new["methods"] = _with_todays_names(new["methods"])
    return new


def _with_todays_names(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_todays_names(one) for one in value]
    if isinstance(value, dict):
        target = MOVED.get(value.get("_target_"), value.get("_target_"))
        renamed = RENAMED_KEYS.get(target, {})
        return {
            renamed.get(key, key): target if key == "_target_" else _with_todays_names(one)
            for key, one in value.items()
        }
    return value
