"""make draft: distils the embedded model's 4-layer student into the cache folder, and says how well it agrees.

python scripts/make_draft.py [--data-dir FOLDER]   FOLDER holds gsm8k/test.jsonl and mbpp/mbpp.jsonl; else the hub
"""

import argparse
import json
import sys
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from benchmarks.errors import UserError
from benchmarks.learn.distill import Recipe, distil
from benchmarks.models.generation import stop_ids
from benchmarks.models.load import ModelSpec, load_model
from benchmarks.models.student import FOLDER, WEIGHTS, save_student
from goose.engine.user_cache import cache_root


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--corpus", type=Path, help="a .npz that keeps the generated text; reused when it is there")
    for field in fields(Recipe):
        kind = {"nargs": "+", "type": int} if field.name == "layers" else {"type": type(field.default)}
        parser.add_argument(f"--{field.name.replace('_', '-')}", default=field.default, **kind)
    args = parser.parse_args()
    recipe = Recipe(**{field.name: getattr(args, field.name) for field in fields(Recipe)} | {"layers": (*args.layers,)})

    started = perf_counter()
    loaded = load_model(ModelSpec("smollm2", "embedded"), device="cpu", dtype="float32")
    stop = stop_ids(loaded.model, loaded.tokenizer, "generation_config")
    made = distil(loaded.model, loaded.tokenizer, stop, recipe, args.data_dir, args.corpus, say)
    record = {
        **made.record,
        "target": {"name": loaded.name, "revision": loaded.revision, **made.record["target"]},
        "wall_s": round(perf_counter() - started),
        "date": datetime.now(UTC).date().isoformat(),
    }
    folder = save_student(made.student, made.by_frequency, record, cache_root() / FOLDER)
    print(json.dumps(record, indent=1))
    print(f"{folder} ({(folder / WEIGHTS).stat().st_size / 1e6:.1f} MB)")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
