"""The verification cost that sizes a drafter's trees: a named curve, or the one of the model and machine of the run.

Knows curves and the machine, no trees. What a curve is: benchmarks/cost/curve.py; the quick one: goose/engine/cost.py.
"""

from contextlib import suppress
from typing import Any

from rich.progress import Progress

from benchmarks.cost.curve import FOLDER, CostCurve, load_curve
from benchmarks.errors import UserError
from goose.engine.cost import QuickCurve, conditions_of, quick_curve
from goose.engine.identity import shape_digest

UNSTEADY = 0.05  # standard error of a quick curve's least certain time, as a share, that is worth a word
# Files of schema 1 hold a name instead of their model's shape: those that lie in results/cost.
SHAPES_OF_SCHEMA_1 = {"llama3": "b768a9afe7640802", "smollm2": "e4e7b9d42f77d587"}
MACHINE = ("cpu", "cores", "threads", "torch")  # of a curve's versions: what times on a CPU depend on


class VerifyCost:
    """Seconds of a forward of n nodes after L committed tokens, for a drafter that weighs cost: cost(n, L).

    file: a curve's file, of whatever model and machine trees shall be sized for. None: the full curve in results/cost
    of the very model shape and machine that `prepare` is given; where there is none, the quick one, from the user's
    cache folder or measured there and then. Raises UserError for a file that is no curve.
    """

    def __init__(self, file: str | None = None):
        self.file = file
        self.curve: CostCurve | QuickCurve | None = load_curve(file) if file else None

    def prepare(self, lm) -> None:
        """Finds or measures the curve of a TreeLM; one that was named stays."""
        if self.file:
            return
        self.curve = full_curve_of(lm)
        if self.curve is not None:
            return
        with Progress(transient=True) as progress:
            task = progress.add_task("verification cost, once for this model shape and machine", total=1.0)
            self.curve = quick_curve(lm, lambda share: progress.update(task, completed=share))

    def origin(self, lm) -> dict[str, Any]:
        """For the record: how the curve of a TreeLM was come by, once prepared, and the seconds that it took."""
        if isinstance(self.curve, QuickCurve):
            return _origin(self.curve)
        if not self.file:
            return {"how": f"the full curve {FOLDER / self.curve.file_name}"}
        own = _shape_of(self.curve) == shape_digest(lm.model.config)
        of = "this model's shape" if own else f"another model's shape, {self.curve.model} on {self.curve.device}"
        return {"how": f"read from {self.file}, which is of {of}"}

    @property
    def label(self) -> str | None:
        """What sized the trees, its digest included; None before it is known."""
        if isinstance(self.curve, CostCurve):
            return f"{self.curve.label}, {self.curve.date}, points {self.curve.digest}"
        return self.curve and self.curve.label

    def __call__(self, n_nodes: int, context: int) -> float:
        if self.curve is None:
            raise RuntimeError("the verification cost is not known yet; call prepare(lm) with the run's TreeLM first")
        return (
            self.curve(n_nodes, context) if isinstance(self.curve, QuickCurve) else self.curve.seconds(n_nodes, context)
        )


def _origin(curve: QuickCurve) -> dict[str, Any]:
    how = "measured now" if curve.is_new else "from the cache"
    remarks = [f"not kept ({curve.not_kept})"] if curve.not_kept else []
    if curve.error > UNSTEADY:
        remarks.append(f"unsteady, its least certain time within {curve.error:.0%}: the machine was busy")
    return {"how": how, "seconds": curve.measured_s if curve.is_new else 0.0, "remark": "; ".join(remarks) or None}


def full_curve_of(lm) -> CostCurve | None:
    """The measured curve in results/cost of a TreeLM's shape, dtype, engine and attention, and of this machine."""
    here = conditions_of(lm)
    for file in sorted(FOLDER.glob("*.json")):
        with suppress(UserError):  # no curve, or one of another version: somebody else's business
            curve = load_curve(file)
            same = curve.kind == "measured" and all(
                getattr(curve, key) == here[key] for key in ("device", "dtype", "engine", "attention")
            )
            on_this = lm.device.type != "cpu" or all(curve.versions.get(key) == here[key] for key in MACHINE)
            if same and on_this and _shape_of(curve) == here["shape"]:
                return curve
    return None


def _shape_of(curve: CostCurve) -> str | None:
    return curve.model_shape or SHAPES_OF_SCHEMA_1.get(curve.model)


class StepCost:
    """Seconds of a step that verifies n nodes at one context length, read off a curve's file: Sequoia's `cost`."""

    def __init__(self, file: str, context: int):
        if context < 1:
            raise UserError(f"the cost curve's context must be at least 1, got {context}")
        self.file, self.context = file, context
        self.curve = load_curve(file)

    @property
    def label(self) -> str:
        return self.curve.label

    def __call__(self, n_nodes: int) -> float:
        return self.curve.seconds(n_nodes, self.context)
