"""Which recorded runs are of one model: told by its weights, whatever it was called."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

N_SHOWN = 8  # digits of a digest in a label


def model_labels(models: Sequence[dict]) -> list[str]:
    """A label for each of the `model` entries of headers: its name, and a short digest where a name stands for several.

    Weights are told apart by their digest; those of records that have none, or that were loaded in another dtype, by
    their revision.
    """
    by_name: dict[str, list[list[dict]]] = defaultdict(list)  # name -> groups of entries of one model
    for model in models:
        groups = by_name[model["name"]]
        own = [group for group in groups if any(is_same_model(model, other) for other in group)]
        by_name[model["name"]] = [group for group in groups if group not in own] + [[model, *chain.from_iterable(own)]]
    return [_label(model, by_name[model["name"]]) for model in models]


def is_same_model(a: dict, b: dict) -> bool:
    """Whether two `model` entries of one name are of one checkpoint."""
    if a.get("weights_digest") and b.get("weights_digest") and a.get("dtype") == b.get("dtype"):
        return a["weights_digest"] == b["weights_digest"]
    return a.get("revision") == b.get("revision")


def _label(model: dict, groups: list[list[dict]]) -> str:
    if len(groups) == 1:
        return model["name"]
    (own,) = (group for group in groups if any(other is model for other in group))
    digests = sorted(other["weights_digest"] for other in own if other.get("weights_digest"))
    shown = digests[0] if digests else str(model.get("revision")).rpartition(":")[2]
    return f"{model['name']} ({shown[:N_SHOWN]})"
