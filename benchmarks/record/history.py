"""The versions of a run folder's record, and how a header of an earlier one is read as today's.

    1  the first: methods hold the paths of modules as they lay then; `engine`, `files` and `sized_by` came later
    2  methods hold paths that stay when modules move (goose, baselines, benchmarks.targets), some under new names
       (MOVED, RENAMED_KEYS), and VerifyCost takes a file alone, since all else is the model's; `engine`, the setting
       `cache`, the model's `weights_digest` and `shape_digest`, and `preparation` are there

The page for readers: docs/records.md. Lines are alike in all versions (benchmarks/record/turn.py).
"""

from typing import Any

SCHEMA_VERSION = 2
READABLE = (1, 2)

# A class path of version 1 -> today's.
MOVED = {
    "baselines.autoregressive.AutoregressiveDrafter": "baselines.AutoregressiveDrafter",
    "baselines.balanced.BalancedDrafter": "baselines.BalancedDrafter",
    "baselines.balanced.MixedBalancedDrafter": "baselines.MixedBalancedDrafter",
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
    "benchmarks.verify_cost.VerifyCost": "benchmarks.targets.VerifyCost",
    "goose.chances.Chances": "goose.AcceptanceProbabilities",
    "goose.drafter.GooseDrafter": "goose.GooseDrafter",
    "goose.optimal.GooseOptDrafter": "goose.GooseOptDrafter",
    "goose.oracle.OracleDrafter": "goose.OracleDrafter",
    "goose.sources.context.ContextMatcher": "goose.ContextMatcher",
    "goose.sources.evidence.Evidence": "goose.Evidence",
    "goose.sources.transition.AdjacencyTable": "goose.AdjacencyTable",
}

# Today's class path -> its arguments that had another name in version 1, old -> new.
RENAMED_KEYS = {
    "baselines.OptTreeDrafter": {"fill": "candidates"},
    "baselines.SequoiaDrafter": {"fill": "candidates"},
    "goose.Evidence": {"n_alone": "n_single_token_rows"},
}
# Arguments that are the loaded model's to say today.
DROPPED_KEYS = {
    "benchmarks.targets.VerifyCost": {"model", "device", "dtype", "cpu_dtype", "gpu_dtype", "engine", "attention"}
}

# Settings that version 1 lacks -> what a run did then.
ADDED_SETTINGS = {"cache": True}
# The same of a class's arguments; until `acceptance_of` came, conf/ held vectors of one model alone.
ADDED_KEYS = {"baselines.SequoiaDrafter": {"acceptance_of": "smollm2"}}


SHIPPED_PRIOR = "goose/priors/smollm2.json"
PRIOR_OF_VERSION_1 = "dbe60b06fbea5ca2c6a1f1c6164cc94fa69d67ff8e2528f8d9e6e6dfa9411d69"  # its sha256; records lack it


def upgraded(header: dict) -> dict:
    """A header of any readable version as one of SCHEMA_VERSION; the argument stays as it is."""
    if header.get("schema_version") == SCHEMA_VERSION:
        return header
    # Before the key `engine` there was one engine, the model's own modules.
    added = {"engine": "eager", "files": {}, "sized_by": {}, "preparation": []}
    new = added | header | {"schema_version": SCHEMA_VERSION}
    if "config" in new:
        new["config"] = ADDED_SETTINGS | new["config"]
    if "methods" in new:
        new["methods"] = _with_todays_keys(new["methods"])
        if any_uses_shipped_prior(new["methods"]):
            new["files"] = {SHIPPED_PRIOR: PRIOR_OF_VERSION_1} | new["files"]
    return new


def uses_shipped_prior(config: dict) -> bool:
    """Whether this very config is of probabilities that start from the prior that comes with goose."""
    is_one = config.get("_target_") == "goose.AcceptanceProbabilities"
    return is_one and config.get("prior_file") is None and config.get("calibration") != "none"


def any_uses_shipped_prior(config: dict) -> bool:
    """The same of a config or anything in it."""
    inner = (value for value in config.values() if isinstance(value, dict))
    return uses_shipped_prior(config) or any(map(any_uses_shipped_prior, inner))


def as_recorded(model: dict, recorded: dict) -> dict:
    """A model's identity with the keys that a record of it has, to be compared with that record.

    Before there were digests, a model that was loaded from a path bore the name of the config that it stood in for.
    """
    own = {key: value for key, value in model.items() if key in recorded}
    return own if "weights_digest" in recorded else own | {"name": recorded.get("name")}


def _with_todays_keys(value: Any) -> Any:
    """Methods of any version with today's paths and arguments; those of today stay as they are."""
    if isinstance(value, list):
        return [_with_todays_keys(one) for one in value]
    if isinstance(value, dict):
        target = MOVED.get(value.get("_target_"), value.get("_target_"))
        renamed, dropped = RENAMED_KEYS.get(target, {}), DROPPED_KEYS.get(target, ())
        own = {
            renamed.get(key, key): target if key == "_target_" else _with_todays_keys(one)
            for key, one in value.items()
            if key not in dropped
        }
        return own | {key: then for key, then in ADDED_KEYS.get(target, {}).items() if key not in own}
    return value
