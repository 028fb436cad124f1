"""What the published claims measure, as functions of an arm of ours and of its neighbours: METRICS, by the name that
results/paper/claims.csv uses.

A neighbour is another arm of the same model and dataset, at any budget and temperature. None: the arm has no such
number. The numbers themselves come from benchmarks.metrics.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.metrics import tree_metrics
from benchmarks.paper.runs import Arm

Values = Callable[[Arm, Sequence[Arm]], float | None]


@dataclass(frozen=True)
class Metric:
    value: Values
    in_kind: bool = False  # compares numbers of one run, so another model may be asked as well
    timed: bool = False  # depends on the hardware
    is_sweep: bool = False  # needs every budget, not the main one alone


def _number(name: str) -> Values:
    return lambda arm, neighbours: arm.numbers.get(name)


def _change_against(method: str, name: str) -> Values:
    """Change of the arm's number against another method's at the same budget and temperature."""

    def value(arm: Arm, neighbours: Sequence[Arm]) -> float | None:
        other = _beside(arm, neighbours).get(method)
        return tree_metrics.change(arm.numbers.get(name), other.numbers.get(name) if other else None)

    return value


def _beside(arm: Arm, neighbours: Sequence[Arm]) -> dict[str, Arm]:
    """Method -> arm at the same budget and temperature."""
    return {a.method: a for a in neighbours if _conditions(a) == _conditions(arm)}


def _conditions(arm: Arm) -> tuple[int, float]:
    return arm.run.node_budget, arm.run.temperature


def _synergy_gain(arm: Arm, neighbours: Sequence[Arm]) -> float | None:
    beside = _beside(arm, neighbours)
    mals = [beside[name].numbers.get("mal") if name in beside else None for name in ("pld", "tr")]
    value = tree_metrics.synergy(arm.numbers.get("mal"), *mals)
    return None if value is None else value - 1


def _warm_over_greedy(arm: Arm, neighbours: Sequence[Arm]) -> float | None:
    """MAL at temperature 1 / MAL at temperature 0; a number of the greedy arm."""
    hot = [a for a in neighbours if (a.method, *_conditions(a)) == (arm.method, arm.run.node_budget, 1.0)]
    if arm.run.temperature != 0 or not hot or not arm.numbers.get("mal"):
        return None
    return hot[0].numbers["mal"] / arm.numbers["mal"]


def _growth_past(n_nodes: int) -> Values:
    """MAL at the largest budget / MAL at the largest one up to n_nodes; a number of the arm with the largest budget."""

    def value(arm: Arm, neighbours: Sequence[Arm]) -> float | None:
        own = [a for a in neighbours if (a.method, a.run.temperature) == (arm.method, arm.run.temperature)]
        small = [a for a in own if a.run.node_budget <= n_nodes and a.numbers.get("mal")]
        largest = max(a.run.node_budget for a in own)
        if not small or largest <= n_nodes or arm.run.node_budget < largest:
            return None
        return arm.numbers["mal"] / max(small, key=lambda a: a.run.node_budget).numbers["mal"]

    return value


def _best_delta(arm: Arm, neighbours: Sequence[Arm]) -> float | None:
    """The arm's delta where it is the fastest of its method's deltas; no number of the others."""
    own = [a for a in neighbours if a.stem == arm.stem and _conditions(a) == _conditions(arm)]
    own = [a for a in own if "delta" in a.drafter and a.numbers.get("speed_up") is not None]
    if len({a.drafter["delta"] for a in own}) < 2:
        return None
    best = max(own, key=lambda a: a.numbers["speed_up"])
    return best.drafter["delta"] if best is arm else None


METRICS = {
    "speed_up": Metric(_number("speed_up"), timed=True),
    "mal": Metric(_number("mal")),
    "tau": Metric(_number("tau")),
    "p_s": Metric(_number("p_s")),
    "p_t": Metric(_number("p_t")),
    "p_s / p_t": Metric(_number("p_ratio"), in_kind=True),
    "tau gain over iso3": Metric(_change_against("iso3", "tau"), in_kind=True),
    "synergy gain": Metric(_synergy_gain, in_kind=True),
    "speed_up change against goose": Metric(_change_against("goose", "speed_up"), in_kind=True, timed=True),
    "expected": Metric(lambda arm, neighbours: arm.expectation and arm.expectation.expected),
    "accepted": Metric(lambda arm, neighbours: arm.expectation and arm.expectation.accepted),
    "mal at T = 1 over T = 0": Metric(_warm_over_greedy, in_kind=True),
    "mal growth past 150 nodes": Metric(_growth_past(150), in_kind=True, is_sweep=True),
    "best delta": Metric(_best_delta, timed=True, is_sweep=True),
}
STATISTICS = {"mean": tree_metrics.mean_known, "median": tree_metrics.median_known, "max": max}
