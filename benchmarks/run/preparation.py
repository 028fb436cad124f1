"""What is done for the drafters of a run before any clock starts: single-token rows, verification cost.

Each is done once for a model, with a progress bar, and what it took is recorded and printed beside the table.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.cost.sizing import VerifyCost
from benchmarks.models.single_token_rows import with_single_token_rows
from goose.engine.contract import Calibrated, Drafter, NeedsModel, SizedByCost
from goose.engine.lm import TreeLM


@dataclass(frozen=True)
class Prepared:
    makers: dict[str, Callable[[], Drafter]]  # method -> maker of a drafter that has what it needs
    sized_by: dict[str, str] = field(default_factory=dict)  # method -> label of the cost that sizes its trees
    calibrated_on: dict[str, str] = field(default_factory=dict)  # method -> model that its acceptance was measured on
    # What was prepared, for which methods, how it was come by, and the seconds and the remark where there are any.
    record: list[dict[str, Any]] = field(default_factory=list)


def prepared(makers: dict[str, Callable[[], Drafter]], lm: TreeLM, tokenizer: Any) -> Prepared:
    """Prepares one drafter of each method; the makers' drafters then find everything in the cache."""
    sized_by, calibrated_on, record = {}, {}, {}

    def note(what: str, method: str, **entry: Any) -> None:
        record.setdefault((what, entry["how"]), {"what": what, "methods": [], **entry})["methods"].append(method)

    for name, make in makers.items():
        one = make()
        if isinstance(one, NeedsModel):
            one.prepare(lm)
        if isinstance(one, SizedByCost) and one.sized_by is not None:
            sized_by[name] = one.sized_by
        if isinstance(one, Calibrated) and one.acceptance_of is not None:
            calibrated_on[name] = one.acceptance_of
        if isinstance(cost := getattr(one, "cost", None), VerifyCost):
            note("verification cost", name, **cost.origin(lm))
    ready, rows_of = with_single_token_rows(makers, lm, tokenizer)
    for name, rows in rows_of.items():
        how = "made now" if rows.is_new else "from the cache"
        remark = f"not kept ({rows.not_kept})" if rows.not_kept else None
        seconds = rows.made_s if rows.is_new else 0.0
        note(f"{len(rows.ids)} single-token rows", name, how=how, seconds=seconds, remark=remark)
    return Prepared(ready, sized_by, calibrated_on, list(record.values()))
