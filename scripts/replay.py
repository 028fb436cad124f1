"""Replays recorded token ids through context-only drafters: python scripts/replay.py FILE.jsonl.gz [--budget 60].

Counts steps, without a clock. --time-on MODEL also times them, decoding the recorded text on that model of conf/model;
--cost FILE projects the speed-up onto a verify-cost curve. A method is a file of conf/method."""

import argparse
import sys
from functools import partial
from pathlib import Path

import hydra
from conf_files import drafter_config, model_spec
from rich.console import Console

from benchmarks.cost.curve import load_curve
from benchmarks.errors import UserError
from benchmarks.models.spec import WEIGHTS
from benchmarks.replay.count import STARTS, replay, replay_table
from benchmarks.replay.recordings import load_recordings, usual_stop_ids
from benchmarks.replay.tables import time_on
from benchmarks.show.cell_table import print_blocks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--methods", default="pld,suffix,goose_context_only")
    parser.add_argument("--budget", type=int, default=60, help="most nodes of a tree, root included")
    parser.add_argument("--dataset", help="one dataset of the file, or spec_bench")
    parser.add_argument("--limit", type=int, help="the first N turns")
    parser.add_argument("--start", choices=STARTS, default="prefill", help="what writes the first token (replay())")
    parser.add_argument("--cost", type=load_curve, help="a verify-cost curve (a file of results/cost) to project onto")
    parser.add_argument("--time-on", metavar="MODEL", help="time the steps on this model as well")
    parser.add_argument("--weights", choices=WEIGHTS, default=WEIGHTS[0], help="of that model; random: at its shape")
    for name in ("--device", "--dtype"):
        parser.add_argument(name, default="auto", help="of that model")
    args = parser.parse_args()
    for name in ("budget", "limit"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise UserError(f"--{name} must be at least 1, got {value}")
    recordings = load_recordings(args.file, args.dataset, args.limit)
    stop_ids = usual_stop_ids(recordings)
    makers = {name: partial(make_drafter, name) for name in args.methods.split(",")}
    lines = {m: replay(recordings, m, make(), args.budget, stop_ids, args.start) for m, make in makers.items()}
    conditions = (
        f"{args.file.name}, {args.dataset or 'all datasets'}, {len(recordings)} turns, B = {args.budget}, "
        f"stop ids {sorted(stop_ids) or 'none'}; MAL: emitted/steps, first token by the {args.start}"
    )
    tables = [replay_table(lines, conditions, args.cost)]
    if args.time_on:
        spec = model_spec(args.time_on, weights=args.weights)
        options = {"device": args.device, "dtype": args.dtype, "curve": args.cost}
        tables.append(time_on(spec, recordings, makers, args.budget, stop_ids, lines, **options))
    for table in tables:
        print_blocks(table, console := Console(highlight=False))
    console.print(table.conditions, soft_wrap=not console.is_terminal)


def make_drafter(name: str):
    config = drafter_config(name)
    refuse_what_a_recording_lacks(name, config)
    return hydra.utils.instantiate(config, _convert_="all")


def refuse_what_a_recording_lacks(name: str, config: dict) -> None:
    """Before a draft model is loaded or a cost curve is looked for, which a recording has no use for."""
    if config.get("top_k") or config.get("n_single_token_rows"):
        raise UserError(f"{name} learns from the target's scores, which a recording does not hold; run it on a model")
    if {"target", "draft"} <= config.keys():
        raise UserError(f"{name} asks the draft model of a target, which a recording does not have; run it on a model")
    for inner in config.values():
        if isinstance(inner, dict):
            refuse_what_a_recording_lacks(name, inner)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
