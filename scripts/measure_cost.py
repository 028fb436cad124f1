"""Measures a verify-cost curve into results/cost: python scripts/measure_cost.py model=smollm2 [KEY=VALUE ...].

model.path=FOLDER measures a local checkpoint, weights=random a model's shape without one. bandwidth=BYTES_PER_S
flops=FLOP_PER_S device=NAME computes the roofline of a device that is not here instead. Lists as [1,16,64].
"""

import sys
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from conf_files import model_spec
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from benchmarks.cost import measure
from benchmarks.cost.curve import FOLDER, CostCurve
from benchmarks.cost.machine import measure_machine
from benchmarks.errors import UserError, first_line
from benchmarks.models.load import DTYPES, ModelSpec, load_model, resolve_dtype
from benchmarks.show.cell_table import print_blocks
from benchmarks.show.cost_table import cost_table
from goose.engine.lm import TreeLM


@dataclass
class Keys:
    model: str = "smollm2"  # a file of conf/model
    weights: str = "pretrained"
    path: str | None = None  # a local copy of its checkpoint
    device: str = "auto"
    dtype: str = "auto"
    engine: str = "auto"
    nodes: list[int] = field(default_factory=lambda: list(measure.NODE_COUNTS))
    lengths: list[int] = field(default_factory=lambda: list(measure.CONTEXT_LENGTHS))
    repeats: int = 15
    top_k: int = 10  # ids and scores fetched of every row
    bandwidth: float | None = None
    flops: float | None = None
    out: Path = FOLDER


def main() -> None:
    # As run.py takes them: model=NAME model.path=FOLDER, any field of the model's file.
    of_model = [text.removeprefix("model.") for text in sys.argv[1:] if text.startswith("model.")]
    own = [text for text in sys.argv[1:] if not text.startswith("model.")]
    try:
        keys = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Keys), OmegaConf.from_dotlist(own)))
        changes = OmegaConf.to_container(OmegaConf.from_dotlist(of_model))
    except (OmegaConfBaseException, ValueError) as error:
        raise UserError(f"{first_line(error)}; the keys are {', '.join(f.name for f in fields(Keys))}") from error
    spec = model_spec(keys.model, **{"weights": keys.weights, "path": keys.path, **changes})
    curve = roofline(keys, spec) if keys.bandwidth or keys.flops else measured(keys, spec)
    file = curve.save(keys.out)
    table = cost_table(curve)
    print_blocks(table, console := Console(highlight=False))
    console.print(table.conditions, soft_wrap=not console.is_terminal)
    print(file)


def measured(keys: Keys, spec: ModelSpec) -> CostCurve:
    loaded = load_model(spec, device=keys.device, dtype=keys.dtype)
    lm = TreeLM(loaded.model, engine=keys.engine)
    label = {"model": loaded.name, "weights": loaded.weights}
    curve = measure.measure(lm, keys.nodes, keys.lengths, keys.repeats, keys.top_k, **label)
    return replace(curve, machine=measure_machine(lm.device, lm.dtype))


def roofline(keys: Keys, spec: ModelSpec) -> CostCurve:
    if not (keys.bandwidth and keys.flops and spec.shape) or keys.device == "auto":
        raise UserError("a roofline needs bandwidth=, flops= and device=NAME together, and a model that has a shape")
    label = {"model": spec.shown_name, "device": keys.device, "dtype": DTYPES[resolve_dtype(spec, "cuda", keys.dtype)]}
    sizes = {"node_counts": keys.nodes, "context_lengths": keys.lengths}
    return measure.roofline(spec.shape, keys.bandwidth, keys.flops, **label, **sizes)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
