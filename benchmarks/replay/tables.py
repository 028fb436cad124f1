"""The table of a teacher-forced timed replay: recorded text, real seconds of a model of that shape, any weights.

The timing is timed.py's; this file loads the model, holds the steps against the exact replay's and lays
the numbers out. Its speed-ups are real times of real steps, and yet no run: nothing was generated.
"""

from collections.abc import Callable, Collection, Sequence

from baselines.autoregressive import AutoregressiveDrafter
from benchmarks import metrics
from benchmarks.cost.curve import CostCurve
from benchmarks.environment import describe
from benchmarks.models.load import LoadedModel, ModelSpec, load_model
from benchmarks.record.turn import BASELINE
from benchmarks.replay.recordings import Recording
from benchmarks.replay.timed import timed_replay
from benchmarks.show.cell_table import CellTable
from benchmarks.show.format import machine_text, model_text, number
from goose.engine.contract import Drafter
from goose.engine.lm import TreeLM


def time_on(
    spec: ModelSpec,
    recordings: Sequence[Recording],
    drafters: dict[str, Callable[[], Drafter]],  # method name -> maker of a fresh drafter; `ar` is added
    node_budget: int,
    stop_ids: Collection[int],
    exact: dict[str, list[dict]],  # method -> the lines of replay() on the same recordings
    *,
    device: str = "auto",
    dtype: str = "auto",
    curve: CostCurve | None = None,
) -> CellTable:
    """Times every method on the model, on each recording in turn. With a curve: the speed-up projected onto it as well.

    Raises UserError when the model cannot be had or a recording cannot be followed on it.
    """
    loaded = load_model(spec, device=device, dtype=dtype)
    lm = TreeLM(loaded.model)
    drafters = {BASELINE: AutoregressiveDrafter, **drafters}
    lines = timed_replay(lm, recordings, drafters, node_budget, stop_ids)
    for method, turns in exact.items():
        if metrics.steps(turns, "emitted") != metrics.steps(lines[method], "emitted"):
            raise RuntimeError(f"{method}: the timed steps are not the replay's, so teacher forcing went wrong")
    rows = [_row(method, turns, lines[BASELINE]) for method, turns in lines.items()]
    conditions = _conditions(loaded, lm)
    if curve is not None:
        for row, turns in zip(rows, lines.values(), strict=True):
            row["projected"] = number(metrics.projected_speed_up(turns, curve.seconds, host=True), 2, "x")
        conditions += f"\nprojected: speed-up expected from the {curve.label}, with the drafter's time measured here"
    title = f"teacher-forced timed replay: text recorded, weights {loaded.weights}"
    return CellTable({title: rows}, conditions, [], [])


def _row(method: str, turns: list[dict], baseline: list[dict]) -> dict[str, str]:
    interval = metrics.speed_up_interval(turns, baseline) if method != BASELINE else None
    parts = metrics.step_milliseconds(turns)
    return {
        "method": method,
        "tokens/s": number(metrics.tokens_per_second(turns), 1),
        "speed-up": number(metrics.speed_up(turns, baseline), 2, "x"),
        "95 %": f"{interval[0]:.2f}-{interval[1]:.2f}" if interval else "",
        "MAL": number(metrics.mean_acceptance_length(turns), 3),
        "nodes": number(metrics.nodes_per_step(turns)[0], 1),
        **{part.removesuffix("_s"): number(parts.get(part), 2) for part in metrics.STEP_PARTS},
    }


def _conditions(loaded: LoadedModel, lm: TreeLM) -> str:
    model = {key: getattr(loaded, key) for key in ("name", "weights", "dtype")}
    return (
        f"{model_text(model, engine=lm.engine)} on {machine_text(describe(loaded.device))}; methods interleaved turn "
        "by turn; tokens/s: decoding, with the drafter's set-up; draft to observe: median milliseconds per step"
    )
