"""Brings the single-token rows (goose/sources/single_token_rows.py) of a run's model to the drafters that want them.

They are made once for a model's weights, outside every clock, with a progress bar.
"""

from collections.abc import Callable

from rich.progress import Progress

from benchmarks.errors import UserError
from goose.engine.contract import Drafter, NeedsSingleTokenRows
from goose.engine.lm import TreeLM
from goose.sources import single_token_rows
from goose.sources.single_token_rows import SingleTokenRows

Maker = Callable[[], Drafter]


def with_single_token_rows(
    makers: dict[str, Maker], lm: TreeLM, tokenizer
) -> tuple[dict[str, Maker], dict[str, SingleTokenRows]]:
    """Makers of the same drafters that have what they want of the model's rows, and method -> its rows."""
    made: dict[tuple[int, int], SingleTokenRows] = {}
    of_method: dict[str, SingleTokenRows] = {}

    def having_rows(name: str, make: Maker) -> Maker:
        one = make()
        if not isinstance(one, NeedsSingleTokenRows) or not one.n_single_token_rows:
            return make
        wanted = one.n_single_token_rows, one.top_k
        if wanted not in made:
            made[wanted] = kept_rows(lm, tokenizer, *wanted)
        rows = of_method[name] = made[wanted]

        def with_rows() -> Drafter:
            drafter = make()
            drafter.set_single_token_rows(rows.ids, rows.scores)
            return drafter

        return with_rows

    return {name: having_rows(name, make) for name, make in makers.items()}, of_method


def kept_rows(lm: TreeLM, tokenizer, n_ids: int, top_k: int) -> SingleTokenRows:
    """The rows from the user's cache folder, or made now. Raises UserError for a tokenizer without a line end."""
    line_end = [token for token in tokenizer("\n")["input_ids"] if token != getattr(tokenizer, "eos_token_id", None)]
    if not line_end:
        raise UserError(
            "the tokenizer drops a line end, after which single-token rows are asked; set n_single_token_rows=0"
        )
    with Progress(transient=True) as progress:
        task = progress.add_task("single-token rows, once for this model", total=min(n_ids, lm.vocab_size))
        return single_token_rows.kept_rows(lm, line_end, n_ids, top_k, lambda n: progress.update(task, completed=n))
