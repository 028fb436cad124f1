"""Learns goose_opt's prior chances: python scripts/learn_prior.py [--data-dir FOLDER] [--path FOLDER].

Decodes prompts that no table of results/ measures (GSM8K's test items from 1000 on, which a run of the whole set, and
four questions of Spec-Bench, would measure; MBPP items outside its test split; chat requests made here; functions and
classes of Python's standard library), fits the logistic model of goose/drafters/probabilities.py to what the target
said of every candidate, and writes it with its provenance. Every fourth prompt of a kind is held out first, to say how
well the fit does on prompts it has not seen.
"""

import argparse
import json
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.errors import UserError
from benchmarks.learn.corpus import PromptText, prompt_ids, training_prompts
from benchmarks.learn.prior import expected_calibration_error, learn, log_loss, reliability
from benchmarks.learn.stdlib_code import stdlib_classes, stdlib_functions
from benchmarks.models.generation import stop_ids
from benchmarks.models.load import ModelSpec, load_model
from benchmarks.models.single_token_rows import kept_rows
from benchmarks.show.figures import draw_reliability
from goose.drafters.probabilities import EDGES, LAYOUT, PRIOR_FILE, face_value, fit_prior, prior_of
from goose.engine.lm import TreeLM
from goose.sources.evidence import Evidence

FIGURE = Path("results/figures/reliability")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="smollm2", help="the model's name in the record")
    parser.add_argument("--path", help="a checkpoint folder; without it the embedded model")
    parser.add_argument("--data-dir", type=Path, help="a folder with gsm8k/test.jsonl and mbpp/mbpp.jsonl")
    parser.add_argument("--prompts", type=int, default=25, help="of each of the six kinds")
    parser.add_argument("--new-tokens", type=int, default=192, help="long enough for texts that repeat themselves")
    parser.add_argument("--alone", type=int, default=16384, help="ids whose rows alone are known")
    parser.add_argument("--budget", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=PRIOR_FILE)
    parser.add_argument("--keep", type=Path, help="a .npz for the candidates themselves, to try other fits on")
    parser.add_argument("--draw-only", action="store_true", help="draw the reliability diagram of the record at --out")
    args = parser.parse_args()
    if args.draw_only:
        draw(args.out)
        return
    if args.alone < 0:
        raise UserError(f"--alone must be at least 0, got {args.alone}")
    if args.prompts < 1:
        raise UserError(f"--prompts must be at least 1 of each kind, got {args.prompts}")

    code = [
        *(PromptText("function", text) for text in stdlib_functions()),
        *(PromptText("class", text) for text in stdlib_classes()),
    ]
    chosen = choose([*training_prompts(args.data_dir), *code], args.prompts, args.seed)
    loaded = load_model(ModelSpec(args.name, "embedded", path=args.path))
    lm = TreeLM(loaded.model)
    decoding = {
        "max_new_tokens": args.new_tokens,
        "stop_ids": stop_ids(loaded.model, loaded.tokenizer, "generation_config"),
        "node_budget": args.budget,
    }
    prompts = [prompt_ids(prompt, loaded.tokenizer) for prompt in chosen]
    last_of = np.zeros(len(prompts), dtype=int)  # candidates up to and with each prompt

    def on_prompt(n: int, total: int) -> None:
        print(f"{n} of {len(prompts)} prompts, {total} candidates", flush=True)
        last_of[n - 1] = total

    alone = kept_rows(lm, loaded.tokenizer, args.alone, Evidence().top_k) if args.alone else None
    model, cells, said = learn(lm, prompts, on_prompt, alone, **decoding)
    if args.keep:
        np.savez(args.keep, cells=cells, said=said, last_of=last_of)
    held = np.zeros(len(cells), dtype=bool)
    n_kinds = len({prompt.origin for prompt in chosen})
    for i in range(len(prompts)):
        if i // n_kinds % 4 == 3:  # kinds come in turn: the fourth, the eighth, ... of every kind
            held[last_of[i - 1] : last_of[i]] = True
    judged = prior_of(fit_prior(cells[~held], said[~held]))
    seen, truth = cells[held], said[held]
    scores = {
        name: {"log_loss": round(log_loss(p, seen, truth), 5), "ece": round(_ece(p, seen, truth), 5)}
        for name, p in (("fit to the other prompts", judged), ("face value", face_value()))
    }
    record = {
        "layout": LAYOUT,
        "edges": {name: list(values) for name, values in EDGES.items()},
        "model": model,
        "learnt_from": {
            "model": {key: getattr(loaded, key) for key in ("name", "revision", "dtype")},
            "prompts": {kind: sum(p.origin == kind for p in chosen) for kind in sorted({p.origin for p in chosen})},
            "candidates": len(cells),
            "said": int(said.sum()),
            **{key: value for key, value in decoding.items() if key != "stop_ids"},
            "alone": args.alone,
            "seed": args.seed,
            "python": platform.python_version(),
            "date": datetime.now(UTC).date().isoformat(),
        },
        "held_out": {"every": 4, **scores},
        "reliability": [{k: round(v, 4) for k, v in b.items()} for b in reliability(judged, seen, truth)],
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{args.out}: {len(cells)} candidates; held out: {scores}")
    draw(args.out)


def draw(prior: Path) -> None:
    record = json.loads(prior.read_text(encoding="utf-8"))
    title = f"prior of {record['learnt_from']['model']['name']} on held-out prompts"
    draw_reliability(record["reliability"], title, FIGURE)
    print(f"{FIGURE}.png")


def choose(prompts: list[PromptText], n_of_each: int, seed: int) -> list[PromptText]:
    """n of each kind, kinds in turn, the same for the same seed."""
    rng = np.random.default_rng(seed)
    kinds = {}
    for prompt in prompts:
        kinds.setdefault(prompt.origin, []).append(prompt)
    drawn = [[own[i] for i in rng.permutation(len(own))[:n_of_each]] for own in kinds.values()]
    return [prompt for row in zip(*drawn, strict=False) for prompt in row]


def _ece(p: np.ndarray, cells: np.ndarray, said: np.ndarray) -> float:
    return expected_calibration_error(reliability(p, cells, said))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
