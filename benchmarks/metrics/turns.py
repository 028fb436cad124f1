"""What all metrics are computed from: the recorded lines without an error ("turns"), and those that methods share."""

from collections.abc import Sequence

Turns = Sequence[dict]


def steps(turns: Turns, column: str) -> list:
    """One column over all steps of all turns."""
    return [value for turn in turns for value in turn["steps"][column]]


def n_stepping(turns: Turns) -> int:
    """Prompts with a step. The others ended with the prefill's token and weigh nothing in any number."""
    return len({turn["prompt_id"] for turn in turns if len(turn["steps"]["emitted"])})


def ratio(numerator: float, denominator: float) -> float | None:
    """None where there is nothing to divide by; tables print it as n/a."""
    return numerator / denominator if denominator else None


def common_turns(lines: Sequence[dict], methods: Sequence[str]) -> dict[str, list[dict]]:
    """Method -> its turns on the (prompt, turn, repeat)s that every method of the cell finished."""
    ok = [line for line in lines if line["error"] is None]
    place = {m: {turn_key(line) for line in ok if line["method"] == m} for m in methods}
    shared = set.intersection(*place.values()) if place else set()
    turns = {m: [line for line in ok if line["method"] == m and turn_key(line) in shared] for m in methods}
    return {m: sorted(ts, key=turn_key) for m, ts in turns.items()}


def turn_key(line: dict) -> tuple[str, int, int]:
    return line["prompt_id"], line["turn"], line["repeat"]
