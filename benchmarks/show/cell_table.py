"""The table of one cell, for the terminal and as Markdown, with the conditions beside the numbers.

Numbers come from metrics.py; this file lays them out and says what is missing, failed, broken or unstable.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.table import Table

from benchmarks import metrics
from benchmarks.cost.curve import CostCurve
from benchmarks.record.turn import BASELINE

NOT_AVAILABLE = "n/a"
FEW_PROMPTS = 20  # below it a 95 % interval covers 92 to 93 % (tests/test_intervals.py)
ORACLE = "goose.OracleDrafter"
BOUND = "(knows all)"  # the row of a drafter that knows the answer


@dataclass(frozen=True)
class CellTable:
    """Titled blocks of rows ready to print. `problems` make the run fail; `notices` do not."""

    blocks: dict[str, list[dict[str, str]]]
    conditions: str
    notices: list[str]
    problems: list[str]


def cell_table(
    header: dict, lines: Sequence[dict], divergences: Sequence[dict], curve: CostCurve | None = None
) -> CellTable:
    """The table of a cell from its run folder's header and lines. With a curve: the speed-ups projected onto it."""
    methods = list(header["methods"])
    turns = metrics.common_turns(lines, methods)
    speed, drafts, times, outputs, notices, problems = [], [], [], [], [], []
    verdicts = {method: metrics.losslessness(lines, method, divergences) for method in methods}
    for method in methods:
        own, verdict = turns[method], verdicts[method]
        trusted = not (verdict.broken or verdicts[BASELINE].broken)
        row = _speed_row(method, own, turns[BASELINE], trusted)
        if curve is not None:
            row["projected"] = number(metrics.projected_speed_up(own, curve.seconds), 2, "x") if trusted else "broken"
        speed.append(row)
        drafts.append(_draft_row(method, own))
        times.append(_time_row(method, own, turns[BASELINE], trusted))
        outputs.append({"method": method, "output": str(verdict)})
        failed = [line for line in lines if line["method"] == method and line["error"] is not None]
        if failed:
            problems.append(f"{method}: {len(failed)} failed, first {failed[0]['prompt_id']}: {failed[0]['error']}")
        if verdict.broken:
            problems.append(f"{method}: output differs from plain decoding's ({verdict}); its speed-up is not printed")
        if method != BASELINE and metrics.empty_draft_share(own) == 1.0:
            notices.append(f"{method} drafted nothing in any step: its numbers are plain decoding's")
        spread = metrics.repeat_spread(own)
        if spread is not None and spread > metrics.UNSTABLE_SPREAD:
            notices.append(
                f"{method} is unstable: its repeats differ by {spread:.0%}; quiet the machine, raise repeats"
            )
    if turns[BASELINE]:
        bound = metrics.bound_on_mal(turns[BASELINE], header["config"]["node_budget"])
        speed.append(dict.fromkeys(speed[0], "") | {"method": BOUND, "MAL": number(bound, 2)})
    if not turns[BASELINE] and any(line["error"] is None for line in lines):
        problems.append("no prompt was finished by every method, so there is nothing to compare")
    blocks = {
        "speed": speed,
        "drafts": drafts,
        "milliseconds of a step (medians), drafter's share of decoding, mean of per-prompt speed-ups": times,
        "output, against plain decoding": outputs,
    }
    conditions = _conditions(header, lines, turns)
    if curve is not None:
        conditions += projected_note(curve)
    for method, drafter in header["methods"].items():
        if isinstance(drafter, dict) and drafter.get("_target_") == ORACLE:
            conditions += f"\n{method} is told the answer and drafts twice: its MAL is a bound, its time means nothing"
    for method, label in header.get("sized_by", {}).items():
        conditions += f"\ntrees of {method} are sized by the {label}"
    for entry in header.get("preparation", []):
        took = f" in {entry['seconds']:.1f} s, outside every clock" if entry.get("seconds") else ""
        remark = f"; {entry['remark']}" if entry.get("remark") else ""
        conditions += f"\n{entry['what']} ({', '.join(entry['methods'])}): {entry['how']}{took}{remark}"
    return CellTable(blocks, conditions, notices, problems)


def projected_note(curve: CostCurve) -> str:
    """The line of the conditions that says what the column `projected` is."""
    return f"\nprojected: speed-up by the {curve.label}, drafting for free"


def _speed_row(method: str, own: list[dict], baseline: list[dict], trusted: bool) -> dict[str, str]:
    interval = metrics.speed_up_interval(own, baseline) if trusted and method != BASELINE else None
    return {
        "method": method,
        "tokens/s": number(metrics.tokens_per_second(own), 1),
        "speed-up": number(metrics.speed_up(own, baseline), 2, "x") if trusted else "broken",
        "95 %": f"{interval[0]:.2f}-{interval[1]:.2f}" if interval else "",
        "MAL": number(metrics.mean_acceptance_length(own), 2),
        "tau": number(metrics.tau(own), 2),
        "nodes": number(metrics.nodes_per_step(own)[0], 1),
    }


def _draft_row(method: str, own: list[dict]) -> dict[str, str]:
    sources = metrics.acceptance_by_source(own)
    return {
        "method": method,
        "e2e t/s": number(metrics.end_to_end_tokens_per_second(own), 1),
        "steps": str(len(metrics.steps(own, "emitted"))),
        "max": str(metrics.nodes_per_step(own)[1]),
        "empty": _percent(metrics.empty_draft_share(own)),
        "accepted": _percent(metrics.draft_acceptance(own)),
        "p_s": _percent(sources["context"].acceptance),
        "p_s*": _percent(sources["context"].conditional_acceptance),
        "p_t": _percent(sources["adjacency"].acceptance),
        "p_t*": _percent(sources["adjacency"].conditional_acceptance),
    }


def _time_row(method: str, own: list[dict], baseline: list[dict], trusted: bool) -> dict[str, str]:
    parts = metrics.step_milliseconds(own)
    row = {part.removesuffix("_s"): number(parts.get(part), 2) for part in metrics.STEP_PARTS}
    mean_ratio = "broken" if not trusted else number(metrics.mean_of_ratios(own, baseline), 2, "x")
    return {"method": method, **row, "drafter": _percent(metrics.draft_overhead(own)), "ratio": mean_ratio}


def _conditions(header: dict, lines: Sequence[dict], turns: dict[str, list[dict]]) -> str:
    model, data, env, config = header["model"], header["dataset"], header["environment"], header["config"]
    n_prompts = len({turn["prompt_id"] for turn in turns[BASELINE]})
    n_all = len({line["prompt_id"] for line in lines})
    n_stepping = metrics.n_stepping(turns[BASELINE])
    ended = without_step(n_prompts - n_stepping)
    few = f"an interval from {n_stepping} prompts covers less often than it says; " if n_stepping < FEW_PROMPTS else ""
    sampling = f"temperature {config['temperature']} seed {config['seed']}" if config["temperature"] else "greedy"
    engine = header["engine"]
    return (
        f"{model['name']} ({model['weights']}, {model['dtype']}, engine {engine}, attention {config['attention']}) "
        f"on {env['device']} ({env['cpu']}, {env['threads']} threads), torch {env['torch']}, "
        f"transformers {env['transformers']}\n"
        f"{data['name']} ({data['source']}), {n_prompts} of {n_all} prompts finished by every method{ended}, "
        f"{config['prompt_style']} style, at most {config['max_new_tokens']} new tokens, B = {config['node_budget']}, "
        f"{sampling}, stop ids by {config['stop_rule']}, {config['repeats']} repeat(s)\n"
        f"{few}tokens/s: decoding, the drafter's set-up included; e2e: prefill too; 95 %: paired bootstrap over "
        "prompts; nodes: mean a step, root included, max the most; accepted, p_s (context), p_t (adjacency): "
        f"accepted/drafted; *: accepted/tested; {BOUND}: a bound, the next B tokens drafted in every step"
    )


def without_step(n_prompts: int) -> str:
    """What is said behind a number of prompts when so many of them weigh nothing (metrics.n_stepping)."""
    return f" ({n_prompts} ended with the first token: no step)" if n_prompts else ""


def rich_tables(table: CellTable) -> list[Table]:
    """One table a block, for the terminal."""
    rendered = []
    for title, rows in table.blocks.items():
        out = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE, padding=(0, 1, 0, 0))
        for i, column in enumerate(rows[0]):
            out.add_column(column, justify="left" if i == 0 else "right", no_wrap=True)
        for row in rows:
            out.add_row(*row.values())
        rendered.append(out)
    return rendered


def markdown(table: CellTable) -> str:
    """All blocks and the conditions, as Markdown."""
    blocks = [
        f"{title}:\n\n{grid_lines(list(rows[0]), [r.values() for r in rows])}" for title, rows in table.blocks.items()
    ]
    notes = [f"- {text}" for text in [*table.problems, *table.notices]]
    return "\n\n".join([*blocks, table.conditions.replace("\n", "  \n"), *(["\n".join(notes)] if notes else [])]) + "\n"


def grid_lines(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown grid: its first column to the left, the others to the right."""
    body = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(_escaped, cells)) + " |" for cells in body)


def _escaped(cell: str) -> str:
    return cell.replace("|", r"\|")


def number(value: float | None, digits: int, unit: str = "") -> str:
    return NOT_AVAILABLE if value is None else f"{value:.{digits}f}{unit}"


def _percent(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else f"{100 * value:.0f}%"
