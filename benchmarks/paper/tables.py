"""All tables of the paper in their order, written as Markdown, LaTeX and CSV, and cells.csv with every number."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.cost.curve import CostCurve
from benchmarks.files import write_text_atomically
from benchmarks.paper import grid, opt_tree, times, trees
from benchmarks.paper.claims import Claim, beside_the_paper
from benchmarks.paper.compare import side_by_side
from benchmarks.paper.layout import PaperTable, files, with_failures
from benchmarks.paper.runs import Arm, FailedCell


def all_tables(arms: Sequence[Arm], claims: Sequence[Claim], curves: Sequence[CostCurve]) -> list[PaperTable]:
    return [
        grid.speed_up(arms),
        grid.acceptance_length(arms),
        trees.heterogeneity(arms),
        trees.by_depth_and_rank(arms),
        trees.topology(arms),
        trees.ablations(arms),
        trees.synergies(arms),
        *opt_tree.tables(arms),
        grid.lossless(arms),
        beside_the_paper(arms, claims),
        times.step_times(arms),
        times.projected(arms, curves),
    ]


def write_tables(
    arms: Sequence[Arm],
    claims: Sequence[Claim],
    curves: Sequence[CostCurve],
    failed: Sequence[FailedCell],
    folder: Path,
) -> tuple[list[Path], list[str]]:
    """The files written, and a sentence for every run or arm that some table leaves out."""
    tables = [with_failures(table, failed) for table in all_tables(arms, claims, curves)]
    written = [file for table in tables for file in files(table, folder)]
    written.append(folder / "cells.csv")
    write_text_atomically(written[-1], grid.cells(arms).to_csv(index=False))
    refused = [note for table in tables for note in table.notes if note.startswith("refused: ")]
    again = side_by_side(arms).superseded
    more = f" and {len(again) - 3} more" if len(again) > 3 else ""
    best = "measured more than once; the run shown is complete, of the most prompts, the newest, in this order"
    return written, [*refused, *([f"{', '.join(again[:3])}{more}: {best}"] if again else [])]
