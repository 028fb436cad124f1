"""Counts steps of context-only drafters on recorded token ids: python scripts/replay.py FILE.jsonl.gz [--budget 60].

No model, no clock. A method is a file of conf/method; --dataset spec_bench takes Spec-Bench's turns of a mixed file.
"""

import argparse
import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from benchmarks.errors import UserError
from benchmarks.replay import STARTS, load_recordings, replay, replay_table, usual_stop_ids
from benchmarks.tables import rich_tables

METHODS = Path(__file__).resolve().parents[1] / "conf" / "method"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--methods", default="pld,suffix,goose_context_only")
    parser.add_argument("--budget", type=int, default=60, help="most nodes of a tree, root included")
    parser.add_argument("--dataset", help="one dataset of the file, or spec_bench")
    parser.add_argument("--limit", type=int, help="the first N turns")
    parser.add_argument(
        "--start",
        choices=STARTS,
        default="prefill",
        help="who writes the first output token: the prefill, as in goose.decode, or a step behind the bare prompt",
    )
    args = parser.parse_args()
    for name in ("budget", "limit"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise UserError(f"--{name} must be at least 1, got {value}")

    recordings = load_recordings(args.file, args.dataset, args.limit)
    stop_ids = usual_stop_ids(recordings)
    drafters = {name: make_drafter(name) for name in args.methods.split(",")}
    lines = {m: replay(recordings, m, drafter, args.budget, stop_ids, args.start) for m, drafter in drafters.items()}
    conditions = (
        f"{args.file.name}, {args.dataset or 'all datasets'}, {len(recordings)} turns, B = {args.budget}, "
        f"stop ids {sorted(stop_ids) or 'none'}; MAL: emitted/steps, first token by the {args.start}"
    )
    table = replay_table(lines, conditions)
    console = Console()
    console.print(*rich_tables(table), sep="\n")
    console.print(table.conditions, highlight=False)


def method_config(name: str) -> DictConfig:
    """conf/method/NAME.yaml over the files its `defaults` name; the script needs no other group of the config."""
    file = METHODS / f"{name}.yaml"
    if not file.exists():
        raise UserError(
            f"there is no method {name!r}; conf/method has {', '.join(sorted(f.stem for f in METHODS.glob('*.yaml')))}"
        )
    own = OmegaConf.load(file)
    bases = [method_config(base) for base in own.pop("defaults", []) if base != "_self_"]
    return OmegaConf.merge(*bases, own)


def make_drafter(name: str):
    return hydra.utils.instantiate(method_config(name).drafter, _convert_="all")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
