"""Decodes one prompt with three drafters, prints what their steps did, and draws one draft tree.

    python examples/draft_trees.py                     # the embedded model, after `make model`
    python examples/draft_trees.py FOLDER              # any supported checkpoint on disk
    python examples/draft_trees.py --out tree.png --prompt "def add(a, b):"

Needs the checkout's environment (`make setup`): the drawing is the harness's, everything else is the library's.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import goose
from baselines import AutoregressiveDrafter, PromptLookupDrafter
from benchmarks.models.embedded import FOLDER
from goose.engine.user_cache import cache_root

PROMPT = '''def count_vowels(text):
    """Number of vowels in text."""
    return sum(character in "aeiou" for character in text.lower())


def count_consonants(text):
    """Number of consonants in text."""
'''


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", nargs="?", type=Path, default=cache_root() / FOLDER)
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--out", type=Path, default=Path("draft_tree.png"))
    args = parser.parse_args()
    if not args.checkpoint.is_dir():
        parser.error(f"there is no folder {args.checkpoint}; run `make model`, or name a checkpoint's folder")

    tokenizer = AutoTokenizer.from_pretrained(args.checkpoint)
    model = AutoModelForCausalLM.from_pretrained(args.checkpoint, dtype=torch.float32)
    prompt_ids = tokenizer(args.prompt, return_tensors="pt")["input_ids"]
    lm = goose.TreeLM(model)  # one model and one KV cache for all drafters

    drafters = {"plain": AutoregressiveDrafter(), "pld": PromptLookupDrafter(), "goose": goose.GooseDrafter()}
    decoded = {name: goose.decode(lm, prompt_ids, drafter, max_new_tokens=64) for name, drafter in drafters.items()}
    for name, generation in decoded.items():
        same = "same output" if generation.output_ids == decoded["plain"].output_ids else "OTHER OUTPUT"
        print(f"{name:6} {len(generation.output_ids)} tokens, {summary(generation.steps)}, {same}")

    steps = decoded["goose"].steps
    best = max(range(len(steps)), key=steps.emitted.__getitem__)
    draw(steps, best, tokenizer, args.out)
    print(f"step {best} emitted {steps.emitted[best]} tokens; its draft tree is drawn in {args.out}")


def summary(steps) -> str:
    """Forwards, mean acceptance length (tokens per forward, the target's own included) and mean tree size."""
    n = max(len(steps), 1)
    n_nodes = sum(tree.n_nodes for tree in steps.trees)
    return f"{len(steps)} forwards, acceptance length {sum(steps.emitted) / n:.2f}, {n_nodes / n:.1f} nodes per tree"


def draw(steps, step: int, tokenizer, file: Path) -> None:
    from benchmarks.show.figure_tree import draw_tree

    tree, path = steps.trees[step], steps.paths[step]
    labels = [tokenizer.decode([token]).replace("\n", "\\n").replace("$", r"\$").strip() for token in tree.tokens]
    title = f"GOOSE, step {step}: {tree.n_nodes} nodes, {len(path) - 1} accepted"
    draw_tree(tree.parents.tolist(), tree.sources.tolist(), path, labels, title, file)


if __name__ == "__main__":
    main()
