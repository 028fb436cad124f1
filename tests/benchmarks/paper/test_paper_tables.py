"""Every table of the paper from runs made by hand, checked by eye, and what it says where there is nothing."""

import csv
import io
import re

import pandas as pd
import pytest

from benchmarks.cost.curve import TREE, CostCurve, Point
from benchmarks.paper import grid, opt_tree, times, trees
from benchmarks.paper.compare import told_apart
from benchmarks.paper.layout import PaperTable, files, latex, markdown, with_failures
from benchmarks.paper.runs import failed_cells, load_arms
from benchmarks.paper.tables import all_tables, write_tables
from benchmarks.record.grid import Outcome, begin, record
from handmade import divergence, failed, line
from paper_runs import expecting, made_run, turns, usual_run

METHODS = ("ar", "pld", "tr", "iso3", "goose", "goose_no_bigram")


def loaded(tmp_path) -> list:
    return told_apart(load_arms([tmp_path])[0])


def row(table: PaperTable, **wanted) -> dict[str, str]:
    """The one row of what is shown that has these values."""
    found = [r for r in table.shown.to_dict("records") if all(r[key] == value for key, value in wanted.items())]
    assert len(found) == 1, (wanted, table.shown.to_string())
    return found[0]


@pytest.fixture
def arms(tmp_path) -> list:
    usual_run(tmp_path, METHODS)
    return loaded(tmp_path)


# 1, 2: the grid


def test_speed_ups_and_what_was_not_run(arms):
    table = grid.speed_up(arms)
    assert row(table, method="goose") == {
        "model": "tiny", "B": "60", "method": "goose", "humaneval": "3.00x", "mbpp": "not run", "classeval": "not run",
        "gsm8k": "not run", "mtbench": "not run",
    }  # fmt: skip
    assert row(table, method="goose_no_bigram")["humaneval"] == "2.40x"
    assert row(table, model="llama3")["humaneval"] == "not run"
    assert "ar" not in set(table.shown.method)
    assert any("what is not run: make grid EXP=main" in note for note in table.notes)
    numbers = table.numbers.set_index("method")
    assert numbers.speed_up["pld"] == pytest.approx(2.0)
    assert numbers.tokens_per_second["ar"] == pytest.approx(10)


def test_prompts_that_ended_with_the_first_token_are_counted_out_loud(tmp_path):
    lines = {m: [*turns(m, ["Q1", "Q2"]), line("Q3", m)] for m in ("ar", "pld")}
    made_run(tmp_path, lines, prompts=("Q1", "Q2", "Q3"))
    (conditions,) = [note for note in grid.speed_up(loaded(tmp_path)).notes if "prompts: " in note]
    assert conditions.endswith("prompts: humaneval 3 (1 ended with the first token: no step)")


def test_intervals_stand_in_brackets(tmp_path):
    lines = {"ar": turns("ar", ["Q1", "Q2", "Q3"]), "pld": turns("pld", ["Q1", "Q2", "Q3"])}
    for i, x in enumerate(lines["pld"]):
        x["decode_s"] *= 1 + 0.1 * i
    made_run(tmp_path, lines, prompts=("Q1", "Q2", "Q3"))
    table = grid.speed_up(loaded(tmp_path))
    text = row(table, method="pld")["humaneval"]
    value, low, high = map(float, re.fullmatch(r"(.*)x \[(.*), (.*)\]", text).groups())
    assert low <= value <= high
    assert value == pytest.approx(9.0 / (1.5 * 3.3), abs=0.01)
    assert any("covers less often" in note for note in table.notes)


def test_failed_broken_unstable_and_torn_cells_are_shown_as_what_they_are(tmp_path):
    slow = [x | {"decode_s": x["decode_s"] * (1 + x["repeat"])} for x in turns("iso3", repeats=2)]
    lines = {m: turns(m, repeats=2) for m in ("ar", "pld")} | {"iso3": slow}
    lines["goose"] = [failed(q, "goose", repeat=r) for q in ("Q1", "Q2") for r in (0, 1)]
    made_run(tmp_path, lines, divergences=[divergence("Q1", "pld", "broken")], repeats=2)
    made_run(
        tmp_path, {"ar": turns("ar", ["Q1"]), "pld": turns("pld", ["Q1"]), "tr": []}, finish=False, dataset="gsm8k"
    )
    table = grid.speed_up(loaded(tmp_path))
    assert row(table, method="pld")["humaneval"] == "broken"
    assert row(table, method="goose")["humaneval"] == "failed"
    assert re.fullmatch(r"1\.00x.*\*", row(table, method="iso3")["humaneval"])
    assert row(table, method="pld")["gsm8k"] == "2.00x+"
    assert row(table, method="tr")["gsm8k"] == "unfinished"
    notes = " ".join(table.notes)
    for text in (
        "* unstable",
        "+ of a run that is not finished",
        "broken: the output differs",
        "failed: no prompt",
        "resume=",
    ):
        assert text in notes
    assert table.numbers.set_index(["method", "dataset"]).speed_up.isna()["pld", "humaneval"]
    lengths = grid.acceptance_length(loaded(tmp_path))
    assert row(lengths, method="pld")["humaneval"] == "5.00 / 4.43"  # 31 tokens in 1 + 6 forwards


def test_lengths_are_mal_and_tau(arms):
    table = grid.acceptance_length(arms)
    assert row(table, method="goose")["humaneval"] == "6.00 / 5.17"  # 31 / 6
    assert row(table, method="tr")["humaneval"] == "2.00 / 1.94"  # 31 / 16


def test_the_main_budget_is_the_one_with_most_methods(tmp_path):
    usual_run(tmp_path, ("ar", "pld", "goose"), node_budget=32)
    usual_run(tmp_path, ("ar", "pld"), node_budget=64)
    table = grid.speed_up(loaded(tmp_path))
    assert set(table.shown.B[table.shown.model == "tiny"]) == {"32"}


def test_a_refused_run_is_named_below_the_table(tmp_path):
    usual_run(tmp_path, ("ar", "pld", "goose"))
    other = usual_run(tmp_path, ("ar", "tr"), max_new_tokens=96)
    table = grid.speed_up(loaded(tmp_path))
    assert "tr" not in set(table.shown.method)
    refused = [note for note in table.notes if note.startswith("refused: ")]
    assert len(refused) == 1
    assert other.header["run_id"] in refused[0]
    assert "max_new_tokens 96, not 32" in refused[0]


# 3 to 6: trees


def test_heterogeneity_has_methods_of_both_sources_and_their_median(tmp_path):
    for dataset in ("humaneval", "gsm8k"):
        usual_run(tmp_path, METHODS, dataset=dataset)
    table = trees.heterogeneity(loaded(tmp_path))
    assert set(table.shown.method) == {"goose"}
    # Context: 20 of 20; adjacency: 5 of 20 drafted, and all 20 tested.
    shown = {"p_s": "1.000", "p_t": "0.250", "p_s / p_t": "4.0", "p_s tested": "1.000", "p_t tested": "0.250"}
    assert shown.items() <= row(table, dataset="humaneval").items()
    assert shown.items() <= row(table, model="median").items()


def test_acceptance_by_depth_and_rank_pools_the_datasets(tmp_path):
    for dataset in ("humaneval", "gsm8k"):
        usual_run(tmp_path, ("ar", "iso3"), dataset=dataset)
    table = trees.by_depth_and_rank(loaded(tmp_path))
    shown = row(table, method="iso3")
    assert [shown[f"depth {d}"] for d in (1, 2, 3)] == ["0.33", "0.33", ""]
    assert [shown[f"rank {r}"] for r in (0, 1, 2, 3)] == ["0.50", "0.50", "0.00", ""]
    first = table.numbers[(table.numbers.method == "iso3") & (table.numbers["at"] == 1) & (table.numbers.by == "depth")]
    assert first[["drafted", "accepted"]].to_numpy().tolist() == [[2 * 2 * 10 * 3, 2 * 2 * 10]]


def test_topology_compares_at_each_budget_and_refuses_trees_beyond_it(tmp_path):
    usual_run(tmp_path, ("ar", "iso3", "goose"), node_budget=9)
    usual_run(tmp_path, ("ar", "iso3", "goose"), node_budget=8)
    table = trees.topology(loaded(tmp_path))
    assert row(table, B="9", method="goose")["humaneval"] == "6.00, 3.00x"
    assert row(table, B="8", method="goose")["humaneval"] == "over budget"
    assert row(table, B="8", method="iso3")["humaneval"] == "3.00, 1.50x"


def test_ablations_are_changes_against_the_whole_method(tmp_path):
    for dataset in ("humaneval", "gsm8k"):
        usual_run(tmp_path, METHODS, dataset=dataset)
    usual_run(tmp_path, ("ar", "goose_no_bigram"), dataset="mbpp")
    table = trees.ablations(loaded(tmp_path))
    shown = row(table, method="goose_no_bigram")
    assert shown["humaneval"] == shown["mean"] == "-20.0 %, -16.7 %"
    assert shown["mbpp"] == "no goose"
    assert shown["classeval"] == "not run"


def test_synergy_and_whether_it_holds(tmp_path):
    usual_run(tmp_path, METHODS)
    made_run(tmp_path, {"ar": turns("ar"), "pld": turns("pld"), "goose": turns("goose")}, dataset="gsm8k")
    table = trees.synergies(loaded(tmp_path))
    expected = {"goose": "6.00", "pld": "5.00", "tr": "2.00", "synergy": "1.200", "not degraded": "yes"}
    assert expected.items() <= row(table, dataset="humaneval").items()
    assert row(table, dataset="gsm8k")["tr"] == "not run"
    assert row(table, dataset="gsm8k")["synergy"] == "n/a"
    assert "holds in 1 of 1 cells" in table.notes


# 7: OPT-Tree


def test_structures_name_shape_and_draft(tmp_path):
    usual_run(tmp_path, ("ar", "iso3", "opt_tree", "pld"))
    table = opt_tree.structures(loaded(tmp_path))
    assert row(table, method="opt_tree")["humaneval"] == "3.00"
    assert row(table, method="opt_tree")["draft"] == "adjacency table"
    assert row(table, method="pld")["structure"] == "chain"


def test_expectations_stand_beside_what_was_accepted(tmp_path):
    made_run(tmp_path, {"ar": turns("ar"), "opt_tree": expecting(turns("opt_tree"), 3.5)})
    table = opt_tree.expectations(loaded(tmp_path))
    assert list(row(table, method="opt_tree").values())[-4:] == ["3.50", "3.00", "+0.50", "20"]
    assert len(table.shown) == 1


def test_sizes_are_columns_and_a_method_at_one_budget_is_not_a_sweep(tmp_path):
    usual_run(tmp_path, ("ar", "pld", "goose"), node_budget=16)
    usual_run(tmp_path, ("ar", "pld", "tr"), node_budget=32)
    table = opt_tree.sizes(loaded(tmp_path))
    assert table.shown.to_dict("records") == [
        {"model": "tiny", "dataset": "humaneval", "method": "pld", "B = 16": "5.00", "B = 32": "5.00"}
    ]


def test_deltas_of_one_draft_are_a_sweep(tmp_path):
    for delta, seconds in ((0.2, 2.0), (0.8, 3.0)):
        lines = {"ar": turns("ar"), "opt_tree": turns("opt_tree", seconds=seconds), "pld": turns("pld")}
        made_run(tmp_path, lines, drafters={"opt_tree": {"delta": delta}})
    table = opt_tree.deltas(loaded(tmp_path))
    assert [(r["delta"], r["speed-up"], r["MAL"]) for r in table.shown.to_dict("records")] == [
        ("0.2", "1.50x", "3.00"), ("0.8", "1.00x", "3.00"),
    ]  # fmt: skip
    assert set(table.shown.method) == {"opt_tree"}


def test_temperatures_stand_side_by_side(tmp_path):
    usual_run(tmp_path, ("ar", "opt_tree"))
    usual_run(tmp_path, ("ar", "opt_tree"), temperature=1.0)
    usual_run(tmp_path, ("ar", "pld"))
    table = opt_tree.temperatures(loaded(tmp_path))
    assert [(r["method"], r["T = 0"], r["T = 1"]) for r in table.shown.to_dict("records")] == [
        ("opt_tree", "3.00, 1.20x", "3.00, 1.20x")
    ]


# 8, 10


def test_losslessness_lists_every_arm_and_its_first_divergence(tmp_path):
    found = [divergence("Q2", "pld", "tie") | {"margin": 0.0012, "gap_fp32": 0.0005, "spread": 0.002}]
    usual_run(tmp_path, ("ar", "pld", "goose"), divergences=found, dtype="float16")
    table = grid.lossless(loaded(tmp_path))
    assert row(table, method="goose")["outputs"] == "2/2 equal"
    assert row(table, method="pld")["outputs"] == "1/2 equal, 1 ties"
    assert row(table, method="pld")["first divergence"] == "Q2, token 3: margin 0.0012, gap_fp32 0.0005, spread 0.002"


def test_step_times_sum_to_the_step(arms):
    table = times.step_times(arms)
    shown = row(table, method="goose")
    parts = [float(shown[part.removesuffix("_s")]) for part in times.PARTS]
    assert sum(parts) == pytest.approx(1e3 * 1.0 / 5, abs=0.1)
    assert shown["forward"] == "1.00"
    # MAL 6, t(1) = 2 ms of the 200 ms that a step takes.
    assert shown["explained"] == "0.06x"


# 11


def linear_curve() -> CostCurve:
    """t(n, L) = n seconds at any length."""
    points = tuple(Point(TREE, 1, n, float(n), float(n), float(n), None, 1, 1) for n in (1, 64))
    return CostCurve("roofline", "big", "none", "a GPU", "float16", "none", "sdpa", {}, "2026-01-01", points)


def test_projections_are_of_the_recorded_steps_and_say_so(arms):
    table = times.projected(arms, [linear_curve()])
    # pld: 5 tokens for 5 nodes; goose: 6 tokens for 9 nodes; iso3: 3 for 7.
    shown = {r["method"]: r["humaneval"] for r in table.shown.to_dict("records")}
    assert shown == {"pld": "1.00x", "tr": "0.67x", "iso3": "0.43x", "goose": "0.67x", "goose_no_bigram": "1.00x"}
    assert set(table.shown.curve) == {"roofline verify cost of big in float16 on a GPU (no measurement)"}
    assert any(note.startswith("projected, not measured") for note in table.notes)
    assert any("measure_cost.py" in note for note in times.projected(arms, []).notes)


def test_a_file_that_is_no_curve_is_named(tmp_path):
    linear_curve().save(tmp_path)
    (tmp_path / "other.json").write_text("{}")
    curves, problems = times.load_curves(tmp_path)
    assert curves == [linear_curve()]
    assert len(problems) == 1
    assert "other.json" in problems[0]


# Grids


def test_a_cell_of_a_grid_that_failed_before_it_had_a_folder_is_shown_as_failed(tmp_path):
    usual_run(tmp_path / "main", ("ar", "pld", "goose"))
    planned = [["dataset=humaneval"], ["dataset=mbpp"], ["model=llama3", "dataset=gsm8k"], ["dataset=classeval"]]
    begin(tmp_path / "main", planned)
    for number, outcome in enumerate((Outcome(0), Outcome(2, "no such file"), Outcome(2, "out of memory"))):
        record(tmp_path / "main", number, outcome)
    arms = loaded(tmp_path)
    failed = failed_cells([tmp_path], arms)
    assert [(cell.model, cell.dataset) for cell in failed] == [("tiny", "mbpp"), ("llama3", "gsm8k")]
    table = with_failures(grid.speed_up(arms), failed)
    assert row(table, method="pld")["mbpp"] == "failed"
    assert row(table, method="pld")["classeval"] == "not run"  # planned, and nothing became of it
    assert row(table, model="llama3")["gsm8k"] == "failed"
    assert row(table, model="llama3")["mbpp"] == "not run"
    assert any("grid main: cell 3 failed" in note and "out of memory" in note for note in table.notes)
    assert failed_cells([tmp_path / "elsewhere"], arms) == []


# Writing


def test_every_table_is_written_in_three_forms_that_agree(tmp_path, arms):
    written, notices = write_tables(arms, [], [], [], tmp_path / "tables")
    assert notices == []
    tables = all_tables(arms, [], [])
    names = {table.name for table in tables}
    assert {file.name for file in written} == {f"{n}{e}" for n in names for e in (".md", ".tex", ".csv")} | {
        "cells.csv"
    }
    for table in tables:
        text = (tmp_path / "tables" / f"{table.name}.md").read_text()
        grid_rows = [line for line in text.splitlines() if line.startswith("|")]
        assert len(grid_rows) == 2 + len(table.shown)
        assert {line.count(" | ") for line in grid_rows} == {len(table.shown.columns) - 1}
        tex = (tmp_path / "tables" / f"{table.name}.tex").read_text()
        assert all(rule in tex for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}", r"\end{table}"))
        assert tex.count("{") == tex.count("}")
        body = tex[tex.index(r"\midrule") : tex.index(r"\bottomrule")]
        assert sum(line.endswith(r"\\") for line in body.splitlines()) == len(table.shown)
    cells = pd.read_csv(tmp_path / "tables" / "cells.csv")
    assert list(cells.method) == ["ar", "pld", "tr", "iso3", "goose", "goose_no_bigram"]
    assert "mal" in cells.columns


def test_csv_is_unrounded_and_can_be_read_back(tmp_path, arms):
    files(grid.speed_up(arms), tmp_path)
    text = (tmp_path / "table1_speed_up.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert float(next(r for r in rows if r["method"] == "goose_no_bigram")["speed_up"]) == pytest.approx(2.4, abs=1e-12)


def test_tables_with_nothing_to_show_say_what_makes_their_runs(tmp_path):
    made_run(tmp_path, {"ar": turns("ar")})
    for table in all_tables(loaded(tmp_path), [], []):
        assert table.notes, table.name
        assert markdown(table)
        assert latex(table)
        if table.name not in ("table8_lossless", "table9_beside_the_paper", "table10_step_times"):
            assert any("make grid" in note for note in table.notes), table.name
