"""make paper-tables, make paper-figures: the paper's tables and figures from the run folders there are.

python scripts/paper_tables.py [RUNS ...] [--tables FOLDER] [--figures FOLDER] [--only tables|figures]
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.cost.curve import FOLDER
from benchmarks.errors import UserError
from benchmarks.paper.claims import FILE, load_claims
from benchmarks.paper.compare import told_apart
from benchmarks.paper.runs import failed_cells, load_arms
from benchmarks.paper.tables import write_tables
from benchmarks.paper.times import load_curves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", default=[Path("results/runs")], help="folders that hold runs")
    parser.add_argument("--tables", type=Path, default=Path("results/tables"))
    parser.add_argument("--figures", type=Path, default=Path("results/figures"))
    parser.add_argument("--claims", type=Path, default=FILE)
    parser.add_argument("--cost", type=Path, default=FOLDER, help="folder of verify-cost curves to project onto")
    parser.add_argument("--only", choices=("tables", "figures"))
    args = parser.parse_args()

    console = Console(soft_wrap=True, highlight=False, markup=False)
    arms, notices = load_arms(args.runs)
    arms = told_apart(arms)
    failed = failed_cells(args.runs, arms)
    notices += [cell.text for cell in failed]
    curves, problems = load_curves(args.cost)
    notices += problems
    files: list[Path] = []
    if args.only != "figures":
        written, remarks = write_tables(arms, load_claims(args.claims), curves, failed, args.tables)
        files, notices = files + written, notices + remarks
    if args.only != "tables":
        from benchmarks.paper.figures import draw_all  # imported late: it takes matplotlib with it

        written, missing = draw_all(arms, curves, args.figures)
        files, notices = files + written, notices + missing
    for notice in dict.fromkeys(notices):
        console.print(f"notice: {notice}")
    for folder in dict.fromkeys(file.parent for file in files):
        names = sorted({file.stem for file in files if file.parent == folder})
        console.print(f"{folder}: {', '.join(names)}")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
