"""Draws one recorded draft tree: python scripts/draw_tree.py RUN [--method M] [--prompt ID] [--step N] [--out FILE].

Without --step the step that accepted the most nodes on both sources is drawn.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.errors import UserError
from benchmarks.models.load import load_tokenizer, spec_of
from benchmarks.record.run_folder import RunFolder
from benchmarks.show.figure_tree import draw_tree
from goose.engine.tree import ADJACENCY, CONTEXT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--method", default="goose")
    parser.add_argument("--prompt")
    parser.add_argument("--step", type=int)
    parser.add_argument("--out", type=Path, default=Path("results/figures/spine_tree.png"))
    args = parser.parse_args()

    folder = RunFolder.open(args.run)
    lines = [x for x in folder.lines() if x["method"] == args.method and x["error"] is None]
    lines = [x for x in lines if args.prompt in (None, x["prompt_id"])]
    if not lines:
        raise UserError(f"{args.run} has no finished prompt {args.prompt or ''} of method {args.method}")
    line, step = (lines[0], args.step) if args.step is not None else max(all_steps(lines), key=both_sources)
    tree = {name: line["steps"][name][step] for name in ("tokens", "parents", "sources", "path")}
    tokenizer = load_tokenizer(spec_of(folder.header["config"]["model"]))
    labels = [tokenizer.decode([token]).replace("\n", "\\n").replace("$", r"\$").strip(" ") for token in tree["tokens"]]
    title = f"{args.method}, {line['prompt_id']}, step {step}: {len(labels)} nodes, {len(tree['path']) - 1} accepted"
    draw_tree(tree["parents"], tree["sources"], tree["path"], labels, title, args.out)
    print(args.out)


def all_steps(lines: list[dict]):
    return [(line, step) for line in lines for step in range(len(line["steps"]["path"]))]


def both_sources(choice: tuple[dict, int]) -> tuple[int, int]:
    """More accepted on the scarcer source first, then more in all."""
    line, step = choice
    accepted = [line["steps"]["sources"][step][node] for node in line["steps"]["path"][step][1:]]
    return min(accepted.count(CONTEXT), accepted.count(ADJACENCY)), len(accepted)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
