"""Learns goose_opt's prior: python scripts/learn_prior.py --out FILE [--data-dir FOLDER] [--path CHECKPOINT].

Decodes prompts of no measured set (benchmarks/learn/prior.py says which), fits the logistic model of
goose/drafters/probabilities.py to what the target said of every candidate, and writes it with its provenance, items of
the prompts included. Every fourth prompt of a kind is held out first, to say how well the fit does on prompts that it
has not seen. A method uses FILE with method.drafter.chances.prior_file=FILE; --out goose/priors/smollm2.json replaces
the one that comes with goose.
"""

import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np

from benchmarks.errors import UserError
from benchmarks.files import write_text_atomically
from benchmarks.learn.prior import Recipe, learnt_prior, prior_prompts
from benchmarks.models.load import ModelSpec, load_model

FIGURE = Path("results/figures/reliability")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the record, a .json")
    parser.add_argument("--name", default="smollm2", help="the model's name in the record")
    parser.add_argument("--path", help="a checkpoint folder or GGUF file; without it the embedded model")
    parser.add_argument("--data-dir", type=Path, help="a folder with mbpp/mbpp.jsonl")
    for field in fields(Recipe):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=int, default=field.default)
    parser.add_argument("--keep", type=Path, help="a .npz for the candidates themselves, to try other fits on")
    parser.add_argument("--draw-only", action="store_true", help="draw the reliability diagram of the record at --out")
    args = parser.parse_args()
    if not args.draw_only:
        learn(args, recipe_of(args))
    draw(args.out)


def recipe_of(args: argparse.Namespace) -> Recipe:
    recipe = Recipe(**{field.name: getattr(args, field.name) for field in fields(Recipe)})
    if min(recipe.prompts, recipe.new_tokens, recipe.budget) < 1 or recipe.single_token_rows < 0:
        raise UserError(f"--prompts, --new-tokens and --budget must be at least 1, --single-token-rows 0, got {recipe}")
    return recipe


def learn(args: argparse.Namespace, recipe: Recipe) -> None:
    prompts = prior_prompts(args.data_dir, recipe)
    loaded = load_model(ModelSpec(args.name, "embedded", path=args.path))
    record, candidates = learnt_prior(loaded, prompts, recipe, lambda text: print(text, flush=True))
    if args.keep:
        np.savez(args.keep, cells=candidates.cells, said=candidates.said)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomically(args.out, json.dumps(record, indent=1) + "\n")
    print(f"{args.out}: {len(candidates.cells)} candidates; held out: {record['held_out']}")


def draw(prior: Path) -> None:
    from benchmarks.show.figures import draw_reliability  # imported late: matplotlib takes seconds

    record = json.loads(prior.read_text(encoding="utf-8"))
    title = f"prior of {record['learnt_from']['model']['name']} on held-out prompts"
    draw_reliability(record["reliability"], title, FIGURE)
    print(f"{FIGURE}.png")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
