"""Scores a finished run: python scripts/score.py RUN [allow_code_execution=true].

HumanEval, MBPP and ClassEval by their own tests, in a sandbox and only with allow_code_execution=true; GSM8K by its
numbers; answers to MT-Bench and Spec-Bench are written for FastChat's judge. The scores lie in RUN/scores.json. Where
data or tokenizer have moved since the run: dataset.path=FILE, model.path=FOLDER.
"""

import sys

from rich.console import Console
from rich.progress import track

from benchmarks.errors import UserError
from benchmarks.quality.score_run import score_run
from benchmarks.show.cell_table import print_blocks

KEYS = ("allow_code_execution", "dataset.path", "model.path")


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return
    run, settings = arguments[0], read_settings(arguments[1:])
    console = Console()
    table = score_run(
        run,
        allow_code_execution=settings.get("allow_code_execution") == "true",
        dataset_path=settings.get("dataset.path"),
        model_path=settings.get("model.path"),
        track=lambda items, what: track(items, what, console=console, transient=True),
    )
    print_blocks(table, console)
    console.print(table.conditions, markup=False, highlight=False)
    for text in table.notices:
        console.print(f"notice: {text}", markup=False, highlight=False)


def read_settings(arguments: list[str]) -> dict[str, str]:
    """key=value of each; UserError for a key that nothing reads or a value that is none."""
    settings = dict(argument.partition("=")[::2] for argument in arguments)
    unknown = sorted(settings.keys() - set(KEYS))
    if unknown:
        raise UserError(f"unknown setting(s) {', '.join(unknown)}; the settings are {', '.join(KEYS)}, as key=value")
    if settings.get("allow_code_execution") not in (None, "true", "false"):
        raise UserError(f"allow_code_execution is true or false, got {settings['allow_code_execution']!r}")
    empty = [key for key, value in settings.items() if not value]
    if empty:
        raise UserError(f"{empty[0]} has no value; write {empty[0]}=VALUE")
    return settings


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"error: {error}")
