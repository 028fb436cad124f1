"""Writes one HTML page of finished runs: tables, figures and a step viewer.

python scripts/report.py [RUNS ...] [--figures PNG ...] [--prompts N] [--max-mb MB] [--out FILE]
The page holds prompts of the datasets: look at their licences before you publish it.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.errors import UserError
from benchmarks.files import disk_errors, write_text_atomically
from benchmarks.show.page import build, find_runs
from benchmarks.show.viewer_data import ViewerLimits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", default=[Path("results/runs")], help="folders that hold runs")
    parser.add_argument("--figures", type=Path, nargs="*", default=[], metavar="PNG", help="pictures to embed")
    parser.add_argument("--prompts", type=int, default=3, help="the first N prompts of each run in the step viewer")
    parser.add_argument("--max-mb", type=float, default=14, help="size of the step viewer's data, all runs together")
    parser.add_argument("--out", type=Path, default=Path("results/report.html"))
    args = parser.parse_args()
    for name in ("prompts", "max_mb"):
        if (value := getattr(args, name)) < 0:
            raise UserError(f"--{name.replace('_', '-')} must not be negative, got {value}")

    runs = find_runs(args.runs)
    text, notices = build(runs, args.figures, ViewerLimits(args.prompts, int(args.max_mb * 1e6)))
    with disk_errors(args.out.parent):
        args.out.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomically(args.out, text)
    for notice in notices:
        print(f"notice: {notice}", file=sys.stderr)
    print(f"{args.out} ({len(text.encode()) / 1e6:.1f} MB, {len(runs)} runs)")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
