"""make perf: the engine beside transformers' generate(), as ratios of one run, printed and kept in results/perf."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from rich import print

from benchmarks.check import peers
from benchmarks.check.engine import commit_us, host_work, plain_speed
from benchmarks.cost.machine import measure_machine
from benchmarks.data.items import load_dataset
from benchmarks.environment import describe
from benchmarks.models.generation import stop_ids
from benchmarks.models.load import ModelSpec, load_model
from goose.engine.lm import TreeLM

REFERENCE = {"goose elastic": 1.34, "goose context only": 1.85}  # seen once with the reference code, same 8 prompts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/perf/cpu.json"))
    args = parser.parse_args()

    loaded = load_model(ModelSpec("smollm2", "embedded"))
    lm = TreeLM(loaded.model)
    stop = stop_ids(loaded.model, loaded.tokenizer, "generation_config")
    items = load_dataset("humaneval", limit=args.prompts).items
    prompts = [loaded.tokenizer(item.turns[0])["input_ids"] for item in items]

    against = peers.race(peers.peers(loaded.model, lm, stop), prompts, args.new_tokens, args.repeats)
    methods = peers.race(peers.methods(lm, stop), prompts, args.new_tokens, args.repeats)
    ratios = {
        "plain: generate() seconds / ours": ratio(against, "generate greedy", "ours plain"),
        "pld: generate(prompt_lookup) seconds / ours": ratio(against, "generate lookup", "ours pld"),
        **{f"{name}: speed-up over plain": ratio(methods, "ours plain", name) for name in list(methods)[1:]},
    }
    verify = peers.verify_ms(loaded.model, lm, prompts[0])
    machine = measure_machine(lm.device, lm.dtype)
    plain = plain_speed(lm, machine.read_bytes_per_s)
    host = host_work(lm, prompts[:4], args.new_tokens)
    commits = {context: commit_us(lm, context) for context in (200, 4000)}
    result = {
        "conditions": {
            **describe(loaded.device),
            "model": loaded.source,
            "dtype": loaded.dtype,
            "prompts": f"HumanEval 0 to {args.prompts - 1}, raw",
            "new_tokens": args.new_tokens,
            "repeats": args.repeats,
            "engine": lm.engine,
        },
        "ratios": ratios,
        "seconds": {name: sum(one.seconds) for race in (against, methods) for name, one in race.items()},
        "equal_outputs": all(
            one.outputs == against["ours plain"].outputs for one in (*against.values(), *methods.values())
        ),
        "verify_ms_by_nodes": verify,
        "verify_over_stock": {n: round(ms["ours"] / ms["stock"], 3) for n, ms in verify.items()},
        "machine": asdict(machine),
        "plain": {**asdict(plain), "share_of_limit": round(plain.share_of_limit, 3)},
        "host_ms_per_step_at_60": host,
        "commit_us": commits,
        "commit_4000_over_200": commits[4000] / commits[200],
        "reference_speed_ups_seen_once": REFERENCE,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(result)


def ratio(results: dict[str, peers.Contestant], numerator: str, denominator: str) -> float:
    return round(sum(results[numerator].seconds) / sum(results[denominator].seconds), 3)


if __name__ == "__main__":
    main()
