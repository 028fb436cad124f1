"""The published numbers beside ours: what counts as reproduced, as not, and as not comparable; and the file itself."""

import pytest

from benchmarks.errors import UserError
from benchmarks.paper.claim_metrics import METRICS
from benchmarks.paper.claims import (
    COLUMNS,
    NOT_COMPARABLE,
    NOT_REPRODUCED,
    REPRODUCED,
    Claim,
    beside_the_paper,
    bounds,
    judge,
    load_claims,
)
from benchmarks.paper.compare import side_by_side, told_apart
from benchmarks.paper.runs import load_arms
from paper_runs import made_run, turns, usual_run

METHODS = ("ar", "pld", "tr", "iso3", "goose", "goose_no_bigram")


def claim(method: str, metric: str, value: str, model="tiny", dataset="humaneval", source="a paper") -> Claim:
    return Claim("Table", model, dataset, method, metric, value, source)


def arms_below(tmp_path) -> list:
    return side_by_side(told_apart(load_arms([tmp_path])[0])).arms


@pytest.fixture
def arms(tmp_path) -> list:
    usual_run(tmp_path, METHODS, model="llama3", device="NVIDIA A40")
    return arms_below(tmp_path)


def verdict(arms, *args, **fields) -> tuple[str, str]:
    (judgement,) = judge(claim(*args, **fields), arms)
    return judgement.verdict, judgement.why


# The rule


def test_a_number_within_ten_percent_is_reproduced_and_another_is_not(arms):
    assert verdict(arms, "goose", "mal", "6.5", model="llama3")[0] == REPRODUCED  # ours 6.00
    assert verdict(arms, "goose", "mal", "7.0", model="llama3")[0] == NOT_REPRODUCED
    assert verdict(arms, "goose", "speed_up", "3.2", model="llama3", source="x [A40]")[0] == REPRODUCED
    assert verdict(arms, "goose", "tau", "9.25", model="llama3")[0] == NOT_REPRODUCED


def test_a_number_inside_our_interval_is_reproduced_although_further_off(tmp_path):
    lines = {"ar": turns("ar", ["Q1", "Q2", "Q3"]), "pld": turns("pld", ["Q1", "Q2", "Q3"])}
    for i, x in enumerate(lines["pld"]):
        x["decode_s"] *= 1 + i
    made_run(tmp_path, lines, prompts=("Q1", "Q2", "Q3"))
    (pld,) = [arm for arm in arms_below(tmp_path) if arm.method == "pld"]
    assert pld.numbers["speed_up"] == pytest.approx(1.0)
    assert pld.numbers["speed_up_low"] < 0.85 < 1.15 < pld.numbers["speed_up_high"]
    assert verdict([pld], "pld", "speed_up", "1.15")[0] == REPRODUCED
    assert verdict([pld], "pld", "speed_up", "3.0")[0] == NOT_REPRODUCED


def test_ranges_and_bounds(arms):
    assert verdict(arms, "goose", "speed_up", "1.9..4.3", model="llama3")[0] == REPRODUCED
    assert verdict(arms, "goose", "speed_up", "3.1..4.3", model="llama3")[0] == NOT_REPRODUCED
    assert verdict(arms, "goose", "mal", "<7", model="llama3")[0] == REPRODUCED
    assert bounds("-0.029") == pytest.approx((-0.0319, -0.0261))
    assert bounds("2..18") == (2, 18)
    with pytest.raises(ValueError, match=r"low\.\.high"):
        bounds("about 6")


def test_gains_and_synergy_are_computed_in_the_cell(arms):
    # tau 31/6 against 31/11; MAL 6 against max(5, 2); 2.4x against 3x.
    for metric, ours in (("tau gain over iso3", 11 / 6 - 1), ("synergy gain", 0.2)):
        (judgement,) = judge(claim("goose", metric, "0.5", model="llama3"), arms)
        assert judgement.ours == pytest.approx([ours])
    change = claim("goose_no_bigram", "mean speed_up change against goose", "-0.2", model="llama3")
    (judgement,) = judge(change, arms)
    assert (judgement.verdict, judgement.ours) == (REPRODUCED, pytest.approx([-0.2]))


# What may not be compared


def test_another_model_is_not_comparable_but_a_gain_is_judged_in_kind(arms):
    assert verdict(arms, "goose", "mal", "6") == (NOT_COMPARABLE, "no run of goose on tiny, humaneval")
    found, why = verdict(arms, "goose", "synergy gain", "0.16..0.45")
    assert found == REPRODUCED
    assert why.startswith("in kind, on llama3")


def test_a_speed_up_on_other_hardware_is_not_comparable_and_a_length_is(arms):
    found, why = verdict(arms, "goose", "speed_up", "3.0", model="llama3", source="x [A100]")
    assert (found, why) == (NOT_COMPARABLE, "measured on NVIDIA A40 here, A100 there")
    assert verdict(arms, "goose", "mal", "6", model="llama3", source="x [A100]")[0] == REPRODUCED


def test_settings_that_the_claim_states_have_to_agree(tmp_path):
    usual_run(tmp_path, ("ar", "tr"), drafters={"tr": {"table": {"state": "cold"}}})
    arms = arms_below(tmp_path)
    source = "x [node_budget=81; state=warm; prompt_style=raw]"
    found, why = verdict(arms, "tr", "mal", "2.0", source=source)
    assert found == NOT_COMPARABLE
    assert why == "node_budget 60 here, 81 there; state cold here, warm there"
    assert verdict(arms, "tr", "mal", "2.0", source="x [node_budget=60; state=cold]")[0] == REPRODUCED


def test_a_method_or_a_measure_that_we_have_not_is_not_comparable(arms):
    assert verdict(arms, "eagle2", "mal", "4.3", model="llama3")[0] == NOT_COMPARABLE
    assert verdict(arms, "goose", "table bytes", "<7000000", model="llama3") == (
        NOT_COMPARABLE, "not measured by this harness",
    )  # fmt: skip


def test_greedy_claims_are_not_judged_on_sampled_runs(tmp_path):
    usual_run(tmp_path, ("ar", "pld"), temperature=1.0)
    arms = arms_below(tmp_path)
    assert verdict(arms, "pld", "mal", "5")[0] == NOT_COMPARABLE
    assert verdict(arms, "pld", "mal", "5", source="x [temperature=1.0]")[0] == REPRODUCED


# Claims over several cells


def test_all_cells_of_the_paper_are_taken_together(tmp_path):
    for dataset in ("humaneval", "gsm8k"):
        usual_run(tmp_path, METHODS, model="qwen3", dataset=dataset)
    usual_run(tmp_path, METHODS, model="qwen3", dataset="own_set")
    arms = arms_below(tmp_path)
    (judgement,) = judge(claim("goose", "median p_t", "0.25", model="paper", dataset="all"), arms)
    assert (judgement.verdict, judgement.ours, judgement.why) == (REPRODUCED, [0.25], "2 cell(s)")
    (judgement,) = judge(claim("goose", "p_s / p_t", "2..18", model="paper", dataset="all"), arms)
    assert (judgement.verdict, judgement.ours) == (REPRODUCED, [4.0, 4.0])


def test_both_variants_of_goose_are_judged(tmp_path):
    lines = {
        "ar": turns("ar"),
        "goose": turns("goose"),
        "goose_elastic": turns("goose", name="goose_elastic", seconds=2.0),
    }
    made_run(tmp_path, lines)
    judgements = judge(claim("goose", "speed_up", "3.0"), arms_below(tmp_path))
    assert [(j.method, j.verdict) for j in judgements] == [("goose", REPRODUCED), ("goose_elastic", NOT_REPRODUCED)]


def test_sweeps_growth_delta_and_temperature(tmp_path):
    for budget, method in ((128, "iso3"), (512, "goose")):  # MAL 3, then 6, under one name
        made_run(
            tmp_path, {"ar": turns("ar"), "sequoia_draft": turns(method, name="sequoia_draft")}, node_budget=budget
        )
    for delta, seconds in ((0.2, 2.0), (0.8, 3.0)):
        own = turns("opt_tree", name="opt_tree_draft", seconds=seconds)
        made_run(tmp_path, {"ar": turns("ar"), "opt_tree_draft": own}, {"opt_tree_draft": {"delta": delta}})
    usual_run(tmp_path, ("ar", "pld"))
    usual_run(tmp_path, ("ar", "pld"), temperature=1.0)
    arms = arms_below(tmp_path)
    (growth,) = judge(claim("sequoia_draft", "mal growth past 150 nodes", "1"), arms)
    assert (growth.verdict, growth.ours) == (NOT_REPRODUCED, [2.0])
    (delta,) = judge(claim("opt_tree_draft", "best delta", "0.2"), arms)
    assert (delta.verdict, delta.ours) == (REPRODUCED, [0.2])
    (warm,) = judge(claim("pld", "mal at T = 1 over T = 0", "<1"), arms)
    assert (warm.verdict, warm.ours) == (NOT_REPRODUCED, [1.0])


# The file and the table


def test_the_published_numbers_can_be_read_and_judged(arms):
    claims = load_claims()
    assert len(claims) > 40
    known = {c.quantity for c in claims} & METRICS.keys()
    assert {c.quantity for c in claims} - known == {"table bytes"}
    assert all(c.source and c.method and c.table for c in claims)
    table = beside_the_paper(arms, claims)
    assert list(table.shown.columns) == [
        "table", "model", "dataset", "method", "metric", "published", "ours", "verdict", "why",
    ]  # fmt: skip
    assert len(table.shown) >= len(claims)
    assert set(table.shown.verdict) <= {REPRODUCED, NOT_REPRODUCED, NOT_COMPARABLE}
    assert all(row["why"] for row in table.shown.to_dict("records"))
    assert any("95 % interval" in note for note in table.notes)


def test_protocol_numbers_are_in_the_file():
    values = {(c.model, c.dataset, c.method, c.metric): c.value for c in load_claims()}
    assert values["llama3", "gsm8k", "goose", "tau"] == "9.25"
    assert values["paper", "all", "goose", "mean tau gain over iso3"] == "0.254"
    assert values["vicuna33b", "spec_bench", "tr", "mal"] == "2.62"
    assert values["vicuna13b", "spec_bench", "pld", "speed_up"] == "1.56"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("table,model\nx,y\n", "expected the columns"),
        (",".join(COLUMNS) + "\nT,m,d,pld,mal,about 6,s\n", "line 2: a value is a number"),
    ],
)
def test_a_wrong_file_is_refused_with_the_line(tmp_path, text, message):
    (tmp_path / "claims.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        load_claims(tmp_path / "claims.csv")
    with pytest.raises(UserError, match="could not be read"):
        load_claims(tmp_path / "absent.csv")
