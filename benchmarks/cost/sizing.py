"""The verify-cost curve that sizes a drafter's trees: a named one, or the one measured of this run's own settings.

Knows curves and the machine, no trees. What a curve is: benchmarks/cost/curve.py.
"""

from contextlib import suppress

from benchmarks.cost.curve import FOLDER, CostCurve, load_curve
from benchmarks.environment import describe
from benchmarks.errors import UserError
from benchmarks.models.load import DTYPES, resolve_device

MACHINE = ("cpu", "cores", "threads")  # of a curve's versions: what times on a CPU depend on


class VerifyCost:
    """Seconds of a forward of n nodes behind L tokens, for a drafter that weighs cost: cost(n, L).

    file: a curve's file; None: the measured one in results/cost of this model, device, dtype, engine and attention (the
    run's settings, `auto` as they resolve it), one of this very machine before others. Raises UserError where there is
    none.
    """

    def __init__(
        self,
        file: str | None,
        *,
        model: str,
        device: str,
        dtype: str,
        cpu_dtype: str,  # what dtype auto means on a CPU, and on a GPU
        gpu_dtype: str,
        engine: str,
        attention: str,
    ):
        self.dtypes = {"cpu": cpu_dtype, "gpu": gpu_dtype}
        unknown = [name for name in (*self.dtypes.values(), dtype) if name not in ("auto", *DTYPES)]
        if unknown:
            raise UserError(f"dtype is {unknown[0]!r}; choose {', '.join(DTYPES)}")
        self.curve, self.remark = (
            (load_curve(file), "") if file else self._measured(model, device, dtype, engine, attention)
        )

    @property
    def label(self) -> str:
        return f"{self.curve.label}, {self.curve.date}, points {self.curve.digest}{self.remark}"

    def __call__(self, n_nodes: int, context: int) -> float:
        return self.curve.seconds(n_nodes, context)

    def _measured(self, model: str, device: str, dtype: str, engine: str, attention: str) -> tuple[CostCurve, str]:
        """The curve, and a remark when it is another machine's."""
        at = resolve_device(device)
        here = describe(at)
        by_itself = "eager" if attention != "grouped" else "fused" if at == "cpu" else "graph"
        wanted = {
            "model": model,
            "device": here["device"],
            "dtype": self.dtypes["cpu" if at == "cpu" else "gpu"] if dtype == "auto" else dtype,
            "engine": by_itself if engine == "auto" else engine,
            "attention": attention,
        }
        found = []
        for file in sorted(FOLDER.glob("*.json")):
            with suppress(UserError):  # no curve, or one of another version: somebody else's business
                curve = load_curve(file)
                if curve.kind == "measured" and all(getattr(curve, key) == value for key, value in wanted.items()):
                    found.append((at != "cpu" or all(curve.versions.get(key) == here[key] for key in MACHINE), curve))
        if not found:
            raise UserError(
                f"no verify-cost curve of {', '.join(f'{k} {v}' for k, v in wanted.items())} in {FOLDER}; measure it "
                f"once with `python scripts/measure_cost.py model={model}` (minutes), or name one with cost_curve=FILE"
            )
        is_here, curve = max(found, key=lambda pair: pair[0])
        versions = ", ".join(f"{key} {curve.versions.get(key)}" for key in MACHINE)
        return curve, "" if is_here else f", measured on another machine ({versions}): measure this one"


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
