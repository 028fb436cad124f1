"""The versions of a run folder's record, and how a header of an earlier one is read as today's.

    1  the first: methods hold the paths of modules as they lay then; `engine`, `files` and `sized_by` came later
    2  methods hold paths that stay when modules move (goose, baselines, benchmarks.targets); `engine` is always there
    3  Evidence's n_alone is n_single_token_rows; VerifyCost takes the file alone, all else is the model's;
       `preparation` says what was done before the clock, and how long it took

The page for readers: docs/records.md. Lines are alike in all versions (benchmarks/record/turn.py).
"""

from typing import Any

SCHEMA_VERSION = 3
READABLE = (1, 2, 3)

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

# Version 2: an argument's name then -> now.
RENAMED = {"n_alone": "n_single_token_rows"}


def upgraded(header: dict) -> dict:
    """A header of any readable version as one of SCHEMA_VERSION; the argument stays as it is."""
    if header.get("schema_version") == SCHEMA_VERSION:
        return header
    # Before the key `engine` there was one engine, the model's own modules.
    added = {"engine": "eager", "files": {}, "sized_by": {}, "preparation": []}
    new = added | header | {"schema_version": SCHEMA_VERSION}
    if "methods" in new:
        new["methods"] = _as_today(new["methods"])
    return new


def _as_today(value: Any) -> Any:
    """A method's config with today's paths and arguments."""
    if isinstance(value, list):
        return [_as_today(one) for one in value]
    if not isinstance(value, dict):
        return value
    config = {key: MOVED.get(one, one) if key == "_target_" else _as_today(one) for key, one in value.items()}
    match config.get("_target_"):
        case "goose.Evidence" if "n_alone" in config:
            return {RENAMED.get(key, key): one for key, one in config.items()}
        case "benchmarks.targets.VerifyCost":
            return {key: one for key, one in config.items() if key in ("_target_", "file")}
    return config
