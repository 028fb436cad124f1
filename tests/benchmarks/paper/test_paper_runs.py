"""Reading run folders, complete and interrupted, into arms; and who may stand beside whom."""

import pytest

from benchmarks.errors import UserError
from benchmarks.paper.compare import differing, interrupted_and_failed, side_by_side, told_apart
from benchmarks.paper.runs import load_arms, read_run
from benchmarks.record import grid
from benchmarks.record.run_folder import TURNS
from handmade import divergence, failed
from paper_runs import made_run, turns, usual_run


def arms_of(folder) -> dict:
    return {arm.method: arm for arm in read_run(folder.path)}


# Reading


def test_the_numbers_of_a_run_are_those_worked_out_by_hand(tmp_path):
    arms = arms_of(usual_run(tmp_path))
    assert {m: arm.numbers["speed_up"] for m, arm in arms.items()} == pytest.approx(
        {"ar": 1.0, "pld": 2.0, "tr": 1.5, "iso3": 1.5, "goose": 3.0}
    )
    assert {m: arm.numbers["mal"] for m, arm in arms.items()} == {"ar": 1, "pld": 5, "tr": 2, "iso3": 3, "goose": 6}
    assert arms["goose"].numbers["tau"] == pytest.approx(31 / 6)
    assert (arms["goose"].numbers["p_s"], arms["goose"].numbers["p_t"], arms["goose"].numbers["p_ratio"]) == (
        1,
        0.25,
        4,
    )
    assert (arms["goose"].numbers["mean_nodes"], arms["goose"].numbers["max_nodes"]) == (9, 9)
    assert {arm.state for arm in arms.values()} == {"measured"}
    assert {arm.n_prompts for arm in arms.values()} == {2}
    assert arms["goose"].losslessness.n_equal == 2


def test_a_torn_run_counts_the_prompts_that_every_method_finished(tmp_path):
    lines = {"ar": turns("ar"), "pld": turns("pld", ["Q1"])}
    folder = made_run(tmp_path, lines, finish=False)
    with open(folder.path / TURNS, "ab") as file:
        file.write(b'{"prompt_id": "Q2", "turn": 0, "meth')
    arms = arms_of(folder)
    assert {arm.n_prompts for arm in arms.values()} == {1}
    assert not arms["pld"].run.is_complete
    assert any("not finished (3 lines)" in note and "resume=" in note for note in interrupted_and_failed(arms.values()))


def test_a_torn_run_judges_its_own_outputs_in_fp32_and_leaves_half_precision_open(tmp_path):
    wrong = [x | {"output_ids": [9, *x["output_ids"][1:]]} for x in turns("pld")]
    exact = arms_of(made_run(tmp_path, {"ar": turns("ar"), "pld": wrong}, finish=False))
    assert exact["pld"].losslessness.broken
    assert not exact["pld"].is_trusted
    assert exact["pld"].numbers["speed_up"] is None
    assert exact["ar"].is_trusted
    half = arms_of(made_run(tmp_path, {"ar": turns("ar"), "pld": wrong}, finish=False, dtype="float16"))
    assert not half["pld"].is_judged
    assert half["pld"].numbers["speed_up"] is None


def test_a_method_that_failed_everywhere_takes_nothing_from_the_others(tmp_path):
    lines = {"ar": turns("ar"), "pld": turns("pld"), "goose": [failed(q, "goose") for q in ("Q1", "Q2")]}
    arms = arms_of(made_run(tmp_path, lines))
    assert (arms["goose"].state, arms["goose"].n_failed) == ("failed", 2)
    assert arms["goose"].numbers == {}
    assert arms["pld"].numbers["speed_up"] == pytest.approx(2.0)
    assert any(
        "goose" in note and "2 failed" in note and "NonFinite" in note for note in interrupted_and_failed(arms.values())
    )


def test_a_method_that_failed_once_leaves_that_prompt_out_for_all(tmp_path):
    lines = {"ar": turns("ar"), "pld": turns("pld"), "goose": [*turns("goose", ["Q1"]), failed("Q2", "goose")]}
    arms = arms_of(made_run(tmp_path, lines))
    assert {arm.n_prompts for arm in arms.values()} == {1}
    assert arms["goose"].n_failed == 1


def test_a_method_that_the_torn_run_never_reached_is_unfinished(tmp_path):
    arms = arms_of(made_run(tmp_path, {"ar": turns("ar"), "pld": []}, finish=False))
    assert arms["pld"].state == "unfinished"
    assert arms["ar"].numbers["tokens_per_second"] == pytest.approx(10)


def test_without_plain_decoding_there_is_no_speed_up(tmp_path):
    lines = {"ar": [failed(q, "ar") for q in ("Q1", "Q2")], "pld": turns("pld")}
    arms = arms_of(made_run(tmp_path, lines))
    assert not arms["pld"].is_trusted
    assert arms["pld"].numbers["speed_up"] is None
    assert arms["pld"].numbers["mal"] == 5


def test_a_broken_method_has_counts_and_no_speed_up(tmp_path):
    arms = arms_of(usual_run(tmp_path, ("ar", "pld", "tr"), divergences=[divergence("Q1", "pld", "broken")]))
    assert arms["pld"].numbers["speed_up"] is arms["pld"].numbers["mean_of_ratios"] is None
    assert arms["pld"].numbers["decomposed_speed_up"] is None
    assert arms["pld"].numbers["mal"] == 5
    assert arms["tr"].numbers["speed_up"] == pytest.approx(1.5)


def test_repeats_that_differ_make_an_arm_unstable(tmp_path):
    slow = [x | {"decode_s": x["decode_s"] * (1 + 0.1 * x["repeat"])} for x in turns("pld", repeats=2)]
    arms = arms_of(made_run(tmp_path, {"ar": turns("ar", repeats=2), "pld": slow}, repeats=2))
    assert arms["pld"].is_unstable
    assert not arms["ar"].is_unstable


def test_runs_are_found_below_any_folder_and_a_damaged_one_is_named(tmp_path):
    usual_run(tmp_path / "a" / "b", ("ar", "pld"))
    usual_run(tmp_path / "a", ("ar", "tr"))
    damaged = usual_run(tmp_path / "c", ("ar", "goose"))
    (damaged.path / TURNS).write_text("{}\n{}\n")
    arms, problems = load_arms([tmp_path])
    assert sorted(arm.method for arm in arms) == ["ar", "ar", "pld", "tr"]
    assert len(problems) == 1
    assert str(damaged.path) in problems[0]


def test_a_line_that_this_harness_did_not_write_is_named(tmp_path):
    lines = {"ar": turns("ar"), "pld": [{k: v for k, v in turns("pld")[0].items() if k != "steps"}]}
    made_run(tmp_path, lines)
    arms, problems = load_arms([tmp_path])
    assert arms == []
    assert "Q1, pld" in problems[0]
    assert "steps" in problems[0]


def test_no_run_says_what_makes_some(tmp_path):
    for root in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UserError, match=r"holds no run.*make grid EXP=embedded"):
            load_arms([root])
    grid.begin(tmp_path, [["dataset=mbpp"]])
    grid.record(tmp_path, 0, grid.Outcome(2, "no such file"))
    with pytest.raises(UserError, match=r"holds no run\. cell 1 failed .*no such file\. Make some"):
        load_arms([tmp_path])
    usual_run(tmp_path / "runs", ("ar", "pld"))
    with pytest.raises(UserError, match="elsewhere is not a folder"):
        load_arms([tmp_path / "runs", tmp_path / "elsewhere"])


# Comparing


def loaded(tmp_path) -> list:
    return told_apart(load_arms([tmp_path])[0])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("device", "NVIDIA A40"), ("torch", "1.13"), ("dtype", "bfloat16"), ("max_new_tokens", 96),
        ("attention", "sdpa"), ("prompt_style", "chat"), ("stop_rule", "tokenizer"), ("seed", 7),
        ("prompts", ("Q1", "Q3")),
    ],
)  # fmt: skip
def test_a_run_under_other_conditions_is_refused_with_the_key_that_differs(tmp_path, key, value):
    usual_run(tmp_path, ("ar", "pld", "tr"))
    other = made_run(tmp_path, {"ar": turns("ar"), "goose": turns("goose")}, **{key: value})
    comparison = side_by_side(loaded(tmp_path))
    assert sorted(arm.method for arm in comparison.arms) == ["ar", "pld", "tr"]
    assert len(comparison.refused) == 1
    assert other.header["run_id"] in comparison.refused[0]
    assert f"{key} " in comparison.refused[0]


def test_budget_temperature_dataset_and_model_are_axes_and_refuse_nobody(tmp_path):
    for fields in ({}, {"node_budget": 16}, {"temperature": 1.0}, {"dataset": "gsm8k"}, {"model": "llama3"}):
        usual_run(tmp_path, ("ar", "pld"), **fields)
    comparison = side_by_side(loaded(tmp_path))
    assert (comparison.refused, comparison.superseded) == ([], [])
    assert len(comparison.arms) == 10


def test_runs_of_other_models_may_lie_on_other_machines(tmp_path):
    usual_run(tmp_path, ("ar", "pld"))
    usual_run(tmp_path, ("ar", "pld"), model="vicuna33b", device="NVIDIA A100", dtype="float16")
    assert side_by_side(loaded(tmp_path)).refused == []


def test_methods_of_several_runs_under_equal_conditions_stand_side_by_side(tmp_path):
    usual_run(tmp_path, ("ar", "pld"))
    usual_run(tmp_path, ("ar", "tr", "goose"))
    comparison = side_by_side(loaded(tmp_path))
    assert sorted(arm.method for arm in comparison.arms) == ["ar", "goose", "pld", "tr"]


def test_of_two_runs_of_one_arm_the_complete_one_is_shown(tmp_path):
    whole = usual_run(tmp_path, ("ar", "pld"))
    usual_run(tmp_path, ("ar", "pld"), finish=False)
    comparison = side_by_side(loaded(tmp_path))
    assert {arm.run.id for arm in comparison.arms} == {whole.header["run_id"]}
    assert comparison.superseded == ["pld (tiny, humaneval, B = 60)"]


def test_one_name_with_other_settings_is_another_arm_and_the_most_measured_keeps_the_name(tmp_path):
    for dataset in ("humaneval", "gsm8k"):
        usual_run(
            tmp_path, ("ar", "opt_tree"), drafters={"opt_tree": {"fill": {"top_k": 10}, "delta": 0.5}}, dataset=dataset
        )
    usual_run(tmp_path, ("ar", "opt_tree"), drafters={"opt_tree": {"fill": {"top_k": 10}, "delta": 0.2}})
    comparison = side_by_side(loaded(tmp_path))
    assert sorted((a.method, a.run.dataset) for a in comparison.arms if a.method != "ar") == [
        ("opt_tree", "gsm8k"), ("opt_tree", "humaneval"), ("opt_tree[delta=0.2]", "humaneval"),
    ]  # fmt: skip
    assert comparison.superseded == []


def test_differing_names_every_key(tmp_path):
    a = read_run(usual_run(tmp_path, ("ar", "pld")).path)[0].run
    b = read_run(usual_run(tmp_path, ("ar", "pld"), dtype="float16", device="cuda").path)[0].run
    assert differing(a, b) == {"device": ("cpu", "cuda"), "dtype": ("float32", "float16")}
    assert differing(a, a) == {}


def test_an_arm_that_draws_more_than_the_budget_says_so(tmp_path):
    assert arms_of(usual_run(tmp_path, ("ar", "goose"), node_budget=8))["goose"].overdraws
    assert not arms_of(usual_run(tmp_path, ("ar", "goose"), node_budget=9))["goose"].overdraws


def test_two_weights_under_one_name_are_two_models(tmp_path):
    for digest in ("0123456789abcdef", "fedcba9876543210"):
        usual_run(tmp_path, ("ar", "pld"), weights_digest=digest, source=f"/models/{digest}")
    arms, problems = load_arms([tmp_path])
    comparison = side_by_side(arms)
    assert (problems, comparison.refused, comparison.superseded) == ([], [], [])
    assert {arm.run.model for arm in comparison.arms} == {"tiny (01234567)", "tiny (fedcba98)"}
    assert len(comparison.arms) == 4


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"weights_digest": "0123456789abcdef"}, {"weights_digest": "0123456789abcdef", "source": "/elsewhere"}),
        ({}, {"weights_digest": "0123456789abcdef"}),  # a record from before there were digests
    ],
    ids=["two places", "an older record"],
)
def test_the_same_weights_are_one_model(tmp_path, first, second):
    usual_run(tmp_path, ("ar", "pld"), **first)
    usual_run(tmp_path, ("ar", "tr"), **second)
    comparison = side_by_side(load_arms([tmp_path])[0])
    assert comparison.refused == []
    assert {(arm.run.model, arm.method) for arm in comparison.arms} == {("tiny", m) for m in ("ar", "pld", "tr")}
