"""The table of one run, for the terminal and as Markdown, with the conditions beside the numbers.

Numbers come from benchmarks.metrics; this file lays them out and says what is missing, failed, broken or unstable.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.cells import cell_len
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from benchmarks import metrics
from benchmarks.cost.curve import CostCurve
from benchmarks.record.turn import BASELINE
from benchmarks.show.format import FEW_PROMPTS, header_text, number, percent, prompt_text, settings_text, without_step

ORACLE = "goose.OracleDrafter"
BOUND = "(oracle)"  # the row of the upper bound


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
    verdicts = {method: metrics.losslessness(lines, method, divergences) for method in methods}
    speed, drafts, times, outputs, notices, problems = [], [], [], [], [], []
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
        problems += _problems(method, lines, verdict)
        notices += _notices(method, own)
    if turns[BASELINE]:
        bound = metrics.bound_on_mal(turns[BASELINE], header["config"]["node_budget"])
        speed.append(dict.fromkeys(speed[0], "") | {"method": BOUND, "MAL": number(bound, 2)})
    if not turns[BASELINE] and any(line["error"] is None for line in lines):
        problems.append("no prompt was finished by every method, so there is nothing to compare")
    blocks = {
        "speed": speed,
        "drafts": drafts,
        "milliseconds per step (medians), drafter's share of decoding, mean of per-prompt speed-ups": times,
        "output, against plain decoding": outputs,
    }
    conditions = _conditions(header, lines, turns, curve)
    return CellTable(blocks, conditions, notices, problems)


def _problems(method: str, lines: Sequence[dict], verdict: metrics.Losslessness) -> list[str]:
    found = []
    failed = [line for line in lines if line["method"] == method and line["error"] is not None]
    if failed:
        found.append(f"{method}: {len(failed)} failed, first {failed[0]['prompt_id']}: {failed[0]['error']}")
    if verdict.broken:
        found.append(f"{method}: output differs from plain decoding's ({verdict}); its speed-up is not printed")
    return found


def _notices(method: str, own: list[dict]) -> list[str]:
    found = []
    if method != BASELINE and metrics.empty_draft_share(own) == 1.0:
        found.append(f"{method} drafted nothing in any step: its numbers are plain decoding's")
    spread = metrics.repeat_spread(own)
    if spread is not None and spread > metrics.UNSTABLE_SPREAD:
        found.append(f"{method} is unstable: its repeats differ by {spread:.0%}; quiet the machine, raise repeats")
    return found


def projected_note(curve: CostCurve) -> str:
    """The line of the conditions that says what the column `projected` is."""
    return f"\nprojected: speed-up expected from the {curve.label}; drafting time is not included"


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
        "empty": percent(metrics.empty_draft_share(own)),
        "accepted": percent(metrics.draft_acceptance(own)),
        "p_s": percent(sources["context"].acceptance),
        "p_s*": percent(sources["context"].conditional_acceptance),
        "p_t": percent(sources["adjacency"].acceptance),
        "p_t*": percent(sources["adjacency"].conditional_acceptance),
    }


def _time_row(method: str, own: list[dict], baseline: list[dict], trusted: bool) -> dict[str, str]:
    parts = metrics.step_milliseconds(own)
    row = {part.removesuffix("_s"): number(parts.get(part), 2) for part in metrics.STEP_PARTS}
    mean_ratio = "broken" if not trusted else number(metrics.mean_of_ratios(own, baseline), 2, "x")
    return {"method": method, **row, "drafter": percent(metrics.draft_overhead(own)), "ratio": mean_ratio}


def _conditions(header: dict, lines: Sequence[dict], turns: dict[str, list[dict]], curve: CostCurve | None) -> str:
    data, config = header["dataset"], header["config"]
    n_prompts = len({turn["prompt_id"] for turn in turns[BASELINE]})
    n_all = len({line["prompt_id"] for line in lines})
    n_stepping = metrics.n_stepping(turns[BASELINE])
    ended = without_step(n_prompts - n_stepping)
    few = f"an interval from {n_stepping} prompts covers less often than it says; " if n_stepping < FEW_PROMPTS else ""
    said = (
        f"{header_text(header)}\n{data['name']} ({data['source']}), {n_prompts} of {n_all} prompts finished by every "
        f"method{ended}, {prompt_text(config)}, B = {config['node_budget']}, {settings_text(config)}\n"
        f"{few}tokens/s: decoding, with the drafter's set-up; e2e: with prefill as well; 95 %: paired bootstrap over "
        "prompts; nodes: mean per step, root included, max the most; accepted, p_s (context), p_t (adjacency): "
        f"accepted/drafted; *: accepted/tested; {BOUND}, upper bound: an oracle that always drafts the next B output "
        "tokens"
    )
    if curve is not None:
        said += projected_note(curve)
    for method, drafter in header["methods"].items():
        if isinstance(drafter, dict) and drafter.get("_target_") == ORACLE:
            said += f"\n{method} is an upper bound, not a method: it is given the output in advance, so its time "
            said += "means nothing"
    model = header["model"]["name"]
    for method, measured_on in header.get("calibrated_on", {}).items():
        if measured_on != model:
            said += f"\n{method}: acceptance vector measured on {measured_on}, not on {model}: "
            said += "see scripts/calibrate_acceptance.py"
    for method, label in header.get("sized_by", {}).items():
        said += f"\ntrees of {method} are sized by the {label}"
    for entry in header.get("preparation", []):
        took = f" in {entry['seconds']:.1f} s, outside every clock" if entry.get("seconds") else ""
        remark = f"; {entry['remark']}" if entry.get("remark") else ""
        said += f"\n{entry['what']} ({', '.join(entry['methods'])}): {entry['how']}{took}{remark}"
    return said


def print_blocks(table: CellTable, console: Console) -> None:
    """Every block as wide as the terminal allows; output that is piped or kept in a file has no width: whole lines."""
    whole = not console.is_terminal
    for rendered in rich_tables(table, None if whole else console.width):
        console.print(rendered, soft_wrap=whole)


def rich_tables(table: CellTable, width: int | None = None) -> list[Group]:
    """One titled group a block. What is wider than `width` goes on in a further table, the first column repeated."""
    rendered = []
    for title, rows in table.blocks.items():
        first, *others = rows[0]
        parts: list[list[str]] = [[first]]
        for column in others:
            if len(parts[-1]) > 1 and width is not None and _natural_width(rows, [*parts[-1], column]) > width:
                parts.append([first])
            parts[-1].append(column)
        rendered.append(Group(Text(title, style="italic"), *(_rich_table(rows, part, width) for part in parts)))
    return rendered


def _rich_table(rows: Sequence[dict[str, str]], columns: Sequence[str], width: int | None) -> Table:
    """Where even two columns are too wide, their texts wrap, at blanks if they can: no word of a number is cut."""
    natural = _natural_width(rows, columns)
    out = Table(header_style="bold", box=SIMPLE, padding=(0, 1, 0, 0), width=min(natural, width or natural))
    for i, column in enumerate(columns):
        longest = max(cell_len(word) for row in rows for word in [*row[column].split(), *column.split(), ""])
        out.add_column(
            escape(column),
            justify="left" if i == 0 else "right",
            no_wrap=natural == out.width,
            overflow="fold",
            min_width=longest if i else None,
        )
    for row in rows:
        out.add_row(*(escape(row[column]) for column in columns))
    return out


def _natural_width(rows: Sequence[dict[str, str]], columns: Sequence[str]) -> int:
    """Of a table whose texts are not wrapped: each column's, one blank after it, and the two edges of SIMPLE."""
    widths = [max(cell_len(text) for text in [column, *(row[column] for row in rows)]) + 1 for column in columns]
    return sum(widths) + len(columns) - 1 + 2


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
