"""Back-to-back requests for some minutes: does resident memory grow? python scripts/soak.py [--minutes 20]

Every method in turn on prompts of different lengths, one drafter a method throughout. The first pass over all of them
fills caches and pools and is the reference. Writes results/perf/soak.json.
"""

import argparse
import json
import os
from itertools import product
from pathlib import Path
from time import perf_counter

from baselines.opt_tree import OptTreeDrafter
from baselines.pld import PromptLookupDrafter
from baselines.suffix import SuffixDrafter
from benchmarks.data.items import load_dataset
from benchmarks.environment import describe
from benchmarks.models.load import ModelSpec, load_model
from goose.drafters.goose import GooseDrafter
from goose.drafters.goose_opt import GooseOptDrafter
from goose.engine.decode import decode
from goose.engine.lm import TreeLM

DRAFTERS = {
    "goose": GooseDrafter,
    "goose_opt_sources": GooseOptDrafter,
    "opt_tree": OptTreeDrafter,
    "pld": PromptLookupDrafter,
    "suffix": SuffixDrafter,
}
MAX_NEW = 96


def resident_bytes() -> int:
    """Resident memory of this process (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("results/perf/soak.json"))
    args = parser.parse_args()
    loaded = load_model(ModelSpec("smollm2", "embedded"))
    lm = TreeLM(loaded.model)
    prompts = [
        loaded.tokenizer(item.turns[0])["input_ids"] for item in load_dataset("humaneval", limit=args.prompts).items
    ]
    lm.prepare(max(map(len, prompts)) + MAX_NEW + 60, n_nodes=60)
    drafters = {name: make() for name, make in DRAFTERS.items()}
    started, samples, n_requests = perf_counter(), [], 0
    while len(samples) < 2 or perf_counter() - started < 60 * args.minutes:  # one pass has nothing to grow from
        for ids, drafter in product(prompts, drafters.values()):
            decode(lm, ids, drafter, max_new_tokens=MAX_NEW)
            n_requests += 1
        samples.append((round(perf_counter() - started), resident_bytes()))
        print(f"{samples[-1][0]:6d} s  {n_requests:5d} requests  {samples[-1][1] / 1e6:.1f} MB", flush=True)
    growth = samples[-1][1] / samples[0][1] - 1
    result = {
        "conditions": {**describe(loaded.device), "model": loaded.source, "dtype": loaded.dtype, "engine": lm.engine},
        "methods": list(drafters),
        "n_requests": n_requests,
        "resident_bytes": [{"after_s": s, "bytes": b} for s, b in samples],
        "growth_after_first_pass": round(growth, 5),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"growth after the first pass: {growth:+.2%} over {samples[-1][0] / 60:.1f} minutes")


if __name__ == "__main__":
    main()
