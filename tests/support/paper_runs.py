"""Run folders made by hand, through RunFolder, with numbers that can be checked by eye.

Every method writes 30 tokens a prompt after the prefill's, so tokens/s is 30 / seconds and plain decoding's is 10.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.record.run_folder import RunFolder
from goose.engine.tree import ADJACENCY, CONTEXT, ROOT
from handmade import chain_step, header, line, tree_step

R, C, A = ROOT, CONTEXT, ADJACENCY
# Spine of four context nodes, an adjacency node below it, three more at the root: all but those three are accepted.
GOOSE_STEP = tree_step([-1, 0, 1, 2, 3, 4, 0, 0, 0], [R, C, C, C, C, A, A, A, A], [0, 1, 2, 3, 4, 5])
# Two levels of three; the second child, then its first: three tokens a step.
ISO3_STEP = tree_step([-1, 0, 0, 0, 2, 2, 2], [R, A, A, A, A, A, A], [0, 2, 4])

STEPS = {  # method -> steps of a prompt, seconds
    "ar": ([chain_step(0, 0)] * 30, 3.0),
    "pld": ([chain_step(4, 4)] * 6, 1.5),  # 2x, MAL 5
    "tr": ([tree_step([-1, 0, 0], [R, A, A], [0, 1])] * 15, 2.0),  # 1.5x, MAL 2
    "iso3": ([ISO3_STEP] * 10, 2.0),  # 1.5x, MAL 3
    "goose": ([GOOSE_STEP] * 5, 1.0),  # 3x, MAL 6, p_s 4/4, p_t 1/4
    "goose_no_bigram": ([chain_step(4, 4)] * 6, 1.25),  # 2.4x, MAL 5
    "opt_tree": ([ISO3_STEP] * 10, 2.5),  # 1.2x, MAL 3
}


def turns(method: str, prompts: Sequence[str] = ("Q1", "Q2"), repeats: int = 1, **fields) -> list[dict]:
    """The lines of one method: the same steps for every prompt."""
    steps, seconds = STEPS[method]
    return [
        line(prompt, fields.get("name", method), steps, fields.get("seconds", seconds), repeat=repeat)
        for repeat in range(repeats)
        for prompt in prompts
    ]


def expecting(lines: list[dict], expected: float) -> list[dict]:
    """The same lines with E(A) in every step."""
    return [x | {"steps": x["steps"] | {"expected": [expected] * len(x["steps"]["emitted"])}} for x in lines]


def full_header(methods: dict[str, dict], model="tiny", dataset="humaneval", prompts=("Q1", "Q2"), **changes) -> dict:
    """A whole cell.json; `changes` go to config, and dtype, device and weights to where they belong."""
    place = {
        "dtype": "model",
        "weights": "model",
        "weights_digest": "model",
        "source": "model",
        "device": "environment",
        "torch": "environment",
    }
    config = {key: value for key, value in changes.items() if key not in place}
    made = header(list(methods), **config)
    made["methods"] = methods
    made["model"] |= {"name": model, "source": model, "revision": "r1", "weights": "pretrained"}
    made["dataset"] |= {"name": dataset, "sha256": "d" * 64}
    made["prompts_sha256"] = [f"{prompt:0>64}" for prompt in prompts]
    made["stop_ids"] = [0]
    for key, value in changes.items():
        if key in place:
            made[place[key]][key] = value
    return made


def made_run(
    runs_dir: Path,
    lines: dict[str, list[dict]],  # method -> its lines
    drafters: dict[str, dict] | None = None,
    divergences: Sequence[dict] = (),
    finish: bool = True,
    **header_fields,
) -> RunFolder:
    methods = {method: (drafters or {}).get(method, {"_target_": method}) for method in lines}
    head = full_header(methods, **header_fields)
    folder = RunFolder.create(runs_dir, f"{head['model']['name']}-{head['dataset']['name']}", head)
    for own in lines.values():
        for one in own:
            folder.append(one)
    if finish:
        folder.finish({"divergences": list(divergences)})
    else:
        folder.close()
    return folder


def usual_run(runs_dir: Path, methods: Sequence[str] = ("ar", "pld", "tr", "iso3", "goose"), **fields) -> RunFolder:
    """A run of `methods` as STEPS has them."""
    return made_run(runs_dir, {method: turns(method) for method in methods}, **fields)
