"""Measures an acceptance vector for Sequoia: python scripts/calibrate_acceptance.py [--draft] [--path FOLDER].

The calibration prompts are HumanEval items from --offset on: the end of the set, which measured runs leave out. The
result is a JSON file that conf/method/sequoia.yaml's acceptance_file can name.
"""

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from baselines.adjacency import AdjacencyCandidates
from benchmarks.data.items import load_dataset
from benchmarks.errors import UserError
from benchmarks.learn.acceptance import calibrate
from benchmarks.models.drafts import DraftCandidates
from benchmarks.models.generation import stop_ids
from benchmarks.models.load import ModelSpec, load_model
from goose.engine.lm import TreeLM
from goose.sources.transition import AdjacencyTable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="smollm2", help="the model's name in the record and the file")
    parser.add_argument("--path", help="a checkpoint folder; without it the embedded model")
    parser.add_argument("--offset", type=int, default=140)
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--width", type=int, default=32, help="successors of a star")
    parser.add_argument("--draft", action="store_true", help="stars of the model's draft, not of the adjacency table")
    parser.add_argument("--out", type=Path, default=Path("results/calibration"))
    args = parser.parse_args()
    for name in ("new_tokens", "width"):
        if (value := getattr(args, name)) < 1:
            raise UserError(f"--{name.replace('_', '-')} must be at least 1, got {value}")

    spec = ModelSpec(args.name, "embedded", path=args.path)
    loaded = load_model(spec)
    dataset = load_dataset("humaneval", offset=args.offset, limit=args.prompts)
    prompts = [loaded.tokenizer(item.turns[0])["input_ids"] for item in dataset.items]
    stop = stop_ids(loaded.model, loaded.tokenizer, "generation_config")
    if args.draft:
        candidates = DraftCandidates(spec, n_proposed=args.width)
        source = "the model's default draft, head of 12288 ids"
    else:
        candidates = AdjacencyCandidates(AdjacencyTable(args.width))
        source = f"adjacency: bigram over unigram, K = {args.width}, prefill harvest, cold"
    counts = calibrate(TreeLM(loaded.model), prompts, candidates, max_new_tokens=args.new_tokens, stop_ids=stop)
    record = {
        "acceptance": [round(p, 4) for p in counts.acceptance],
        "tested": counts.tested,
        "accepted": counts.accepted,
        "n_steps": counts.n_steps,
        "n_unknown": counts.n_unknown,
        "source": source,
        "model": {key: getattr(loaded, key) for key in ("name", "revision", "dtype")},
        "dataset": {"name": dataset.name, "source": dataset.source, "sha256": dataset.sha256, "style": "raw"},
        "prompts": [item.id for item in dataset.items],
        "max_new_tokens": args.new_tokens,
        "date": datetime.now(UTC).date().isoformat(),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / f"{args.name}-{dataset.name}-{'draft' if args.draft else 'adjacency'}.json"
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(file.read_text(encoding="utf-8"), file, sep="")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
