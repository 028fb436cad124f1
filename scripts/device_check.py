"""One command on a machine with a GPU, under 8 minutes: is the verifier exact there, and how near the limit?

python scripts/device_check.py [--recordings FILE.jsonl.gz] [--out results/device]

Exactness of graph against eager in fp32; verify cost of an 8B Llama shape; plain decoding against the bandwidth limit;
host work at B = 60; a teacher-forced timed replay of recorded answers. Prints tables and writes JSON after every part,
so that a part that fails costs no other's figures. Needs torch, transformers and numpy alone. --size small runs every
part in seconds, to try the script itself; its vocabulary is 1024, so recordings must hold no greater id.
"""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from time import perf_counter

import torch

from baselines.autoregressive import AutoregressiveDrafter
from baselines.pld import PromptLookupDrafter
from benchmarks.check import engine as check
from benchmarks.cost import measure
from benchmarks.cost.machine import measure_machine
from benchmarks.environment import describe
from benchmarks.errors import UserError
from benchmarks.files import write_atomically
from benchmarks.models.shapes import random_model
from benchmarks.replay.recordings import load_recordings, usual_stop_ids
from benchmarks.replay.timed import timed_replay
from goose.drafters.goose import GooseDrafter
from goose.engine.lm import TreeLM

METHODS = {
    "ar": AutoregressiveDrafter,
    "pld": PromptLookupDrafter,
    "goose_context_only": lambda: GooseDrafter(use_adjacency=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=("8b", "small"), default="8b")
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 2048, 8192])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--recordings", type=Path, help="recorded token ids of a model of this shape")
    parser.add_argument("--turns", type=int, default=6, help="of the recordings")
    parser.add_argument("--out", type=Path, default=Path("results/device"))
    args = parser.parse_args()
    shape, dtype = (check.LLAMA_8B, torch.bfloat16) if args.size == "8b" else (check.SMALL, torch.float32)
    recorded = load_recordings(args.recordings) if args.recordings else []  # a bad file fails before any work
    turns = [turn for turn in recorded if len(turn.output_ids) >= 64][: args.turns]
    unknown = {
        token for turn in turns for token in (*turn.prompt_ids, *turn.output_ids) if token >= shape["vocab_size"]
    }
    if unknown:
        raise UserError(
            f"{args.recordings} holds id {max(unknown)}, and the shape's vocabulary is {shape['vocab_size']}"
        )
    args.out.mkdir(parents=True, exist_ok=True)
    started = perf_counter()
    result = {"environment": describe(args.device), "size": args.size, "weights": "random", "dtype": str(dtype)}

    def keep(name: str, value) -> None:
        result[name] = value
        result["seconds"] = round(perf_counter() - started)
        write_atomically(args.out / "check.json", result)
        print(f"\n== {name} ({perf_counter() - started:.0f} s)")
        print(check.as_text(value if isinstance(value, list) else [value]), flush=True)

    keep("exactness, graph against eager in fp32", asdict(check.exactness(args.device)))
    machine = measure_machine(args.device, dtype)
    keep("machine", asdict(machine))
    model = random_model(shape, args.device, dtype)
    lms = {engine: TreeLM(model, engine=engine) for engine in ("eager", "graph")}
    for engine, lm in lms.items():
        label = {"model": f"llama-{args.size}", "weights": "random"}
        curve = measure.measure(lm, context_lengths=args.lengths, repeats=args.repeats, **label)
        curve.save(args.out)
        ms = [{"L": p.context, "n": p.n_nodes, "shape": p.shape, "ms": 1e3 * p.seconds} for p in curve.points]
        keep(f"verify cost, {engine}", ms)
        plain = check.plain_speed(lm, machine.copy_bytes_per_s)
        keep(f"plain decoding, {engine}", {**asdict(plain), "share_of_limit": plain.share_of_limit})
        keep(f"host work at B = 60, {engine}", check.host_work(lm, [check.repeating_prompt(lm.vocab_size)]))
    if turns:
        lines = timed_replay(lms["graph"], turns, METHODS, 60, usual_stop_ids(turns))
        keep("teacher-forced timed replay, text recorded, weights random", check.replay_rows(lines))
    print(f"\n{args.out / 'check.json'} after {result['seconds']} s")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
