"""Where outputs first differ, and who is to blame: rounding (`tie`) or the method (`broken`)."""

from functools import cache

import numpy as np
import pytest
import torch

from baselines.autoregressive import AutoregressiveDrafter
from benchmarks.metrics.lossless import divergences, first_difference, fp32_judge
from goose import Sampling, TreeLM, decode
from goose.engine.verify import choice_scores
from handmade import failed, line
from toy import TREE7_PROMPT, ScriptedDrafter, random_tree, tiny_model

GREEDY = Sampling()
PROMPTS = {("Q1", 0): [1, 2, 3], ("Q2", 0): [4, 5], ("Q1", 1): [1, 2, 3, 9]}


def output(ids: list[int], prompt_id: str = "Q1", method: str = "m", repeat: int = 0) -> dict:
    return line(prompt_id, method, output_ids=ids, repeat=repeat)


def found(lines: list[dict], judge=None) -> list[tuple]:
    keys = ("prompt_id", "method", "repeat", "index", "baseline_token", "method_token", "verdict")
    return [tuple(d[key] for key in keys) for d in divergences(lines, "ar", PROMPTS, judge)]


@pytest.mark.parametrize(
    ("baseline", "other", "index"),
    [
        ([], [], None),
        ([1, 2, 3], [1, 2, 3], None),
        ([1, 2, 3], [9, 2, 3], 0),
        ([1, 2, 3], [1, 2, 4], 2),
        ([1, 2, 3], [1, 2], 2),
        ([1, 2], [1, 2, 3], 2),
        ([], [1], 0),
        ([1, 5, 3], [1, 2], 1),
    ],
)
def test_first_difference(baseline, other, index):
    assert first_difference(baseline, other) == index


def test_equal_outputs_are_no_divergence():
    assert found([output([7, 8], method="ar"), output([7, 8])]) == []


def test_every_differing_output_is_found_once_with_both_tokens():
    lines = [output([7, 8, 9], method="ar"), output([7, 1, 9]), output([7, 8, 9], method="n")]
    assert found(lines) == [("Q1", "m", 0, 1, 8, 1, "broken")]


def test_unequal_lengths_are_flagged_with_no_token_where_one_output_had_ended():
    # An arm that was stopped differently.
    lines = [output([7, 8, 9], method="ar"), output([7, 8]), output([7, 8, 9, 10], method="n")]
    assert found(lines) == [("Q1", "m", 0, 2, 9, None, "broken"), ("Q1", "n", 0, 3, None, 10, "broken")]
    # No two tokens to weigh: a judge is not asked, and the shorter output is never explained away.
    assert [row[-1] for row in found(lines, judge=lambda *_: pytest.fail("asked"))] == ["broken", "broken"]


def test_every_repeat_is_compared_with_the_first_of_the_baseline_and_so_are_the_baselines_own():
    lines = [output([7, 8], method=m, repeat=r) for r in (0, 1) for m in ("ar", "m")]
    lines[2] = output([7, 5], method="ar", repeat=1)
    lines[3] = output([6, 8], repeat=1)
    assert found(lines) == [("Q1", "ar", 1, 1, 8, 5, "broken"), ("Q1", "m", 1, 0, 7, 6, "broken")]


def test_prompts_are_compared_one_by_one_and_failed_lines_are_left_out():
    plain = [output([7], method="ar"), output([8], "Q2", method="ar")]
    lines = [*plain, output([7]), output([7], "Q2"), failed("Q2", "n")]
    assert found(lines) == [("Q2", "m", 0, 0, 8, 7, "broken")]
    assert found([failed("Q1", "ar"), output([7])]) == []  # nothing to compare with; the failure itself is reported


def test_turns_are_compared_one_by_one_and_judged_on_their_own_prompt():
    asked = []

    def judge(prefix, a, b):
        asked.append(prefix)
        return {"margin": 0.0, "gap_fp32": 0.0, "spread": 0.0}

    lines = [output([7, 8], method=m) | {"turn": t} for m in ("ar", "m") for t in (0, 1)]
    lines[1]["output_ids"] = [5, 6]
    lines[3]["output_ids"] = [5, 4]
    (one,) = divergences(lines, "ar", PROMPTS, judge)
    assert (one["prompt_id"], one["turn"], one["index"], one["baseline_token"]) == ("Q1", 1, 1, 6)
    assert asked == [[1, 2, 3, 9, 5]]


@pytest.mark.parametrize(("gap", "spread", "verdict"), [(0.0, 0.0, "tie"), (0.2, 0.1, "tie"), (0.21, 0.1, "broken")])
def test_a_tie_lies_within_twice_the_numeric_spread(gap, spread, verdict):
    asked = []

    def judge(prefix, a, b):
        asked.append((prefix, a, b))
        return {"margin": 0.5, "gap_fp32": gap, "spread": spread}

    (one,) = divergences([output([7, 8, 9], method="ar"), output([7, 6, 9])], "ar", PROMPTS, judge)
    assert asked == [([1, 2, 3, 7], 8, 6)]  # the prompt and what both arms emitted
    assert (one["verdict"], one["margin"], one["gap_fp32"], one["spread"]) == (verdict, 0.5, gap, spread)


# The judge, on TINY in bfloat16


@cache
def lms() -> tuple[TreeLM, TreeLM]:
    """(bfloat16, float32): the weights of both are bfloat16's, so only the arithmetic differs."""
    rounded = tiny_model().to(torch.bfloat16)
    return TreeLM(rounded), TreeLM(tiny_model().to(torch.bfloat16).float())


def rows(prefix: list[int], sampling: Sampling = GREEDY) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(choice_scores(lm.prefill(prefix, reserve=0), len(prefix), sampling)[0] for lm in lms())


def test_the_judge_measures_margin_gap_and_spread_at_the_prefix():
    prefix = TREE7_PROMPT
    own, exact = rows(prefix)
    best, worst = int(exact.argmax()), int(exact.argmin())
    facts = fp32_judge(*lms(), GREEDY)(prefix, best, worst)
    assert facts["gap_fp32"] == pytest.approx(float(exact[best] - exact[worst]))
    assert facts["spread"] == pytest.approx(float((own - exact).abs().max()))
    first, second = own.sort(descending=True).values[:2]
    assert facts["margin"] == pytest.approx(float(first - second))
    assert facts["spread"] > 0
    assert fp32_judge(*lms(), GREEDY)(prefix, worst, best) == facts  # who said which token does not matter


def nearest_tie() -> tuple[list[int], int, int]:
    """A prompt of TINY where bfloat16 cannot tell the best token from another."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        prompt = torch.randint(0, 64, (9,), generator=generator).tolist()
        own, exact = rows(prompt)
        a, b = exact.topk(2).indices.tolist()
        if exact[a] - exact[b] <= (own - exact).abs().max():
            return prompt, a, b
    raise AssertionError("no prompt is near a tie")


def test_bfloat16_arms_that_take_different_tokens_of_a_tie_are_explained():
    prompt, a, b = nearest_tie()
    lines = [output([a], method="ar"), output([b])]
    (one,) = divergences(lines, "ar", {("Q1", 0): prompt}, fp32_judge(*lms(), GREEDY))
    assert one["verdict"] == "tie"
    assert one["gap_fp32"] <= 2 * one["spread"]


def test_one_deliberately_wrong_token_is_judged_broken():
    bf16, _ = lms()
    right = decode(bf16, TREE7_PROMPT, AutoregressiveDrafter(), max_new_tokens=8).output_ids
    worst = int(rows([*TREE7_PROMPT, *right[:4]])[1].argmin())
    lines = [output(right, method="ar"), output([*right[:4], worst, *right[5:]])]
    (one,) = divergences(lines, "ar", {("Q1", 0): TREE7_PROMPT}, fp32_judge(*lms(), GREEDY))
    assert (one["index"], one["method_token"], one["verdict"]) == (4, worst, "broken")


def test_divergences_of_real_trees_in_bfloat16_are_all_ties():
    bf16, _ = lms()
    generator = torch.Generator().manual_seed(1)
    judge, judged = fp32_judge(*lms(), GREEDY), []
    for _ in range(60):
        prompt, rng = torch.randint(0, 63, (9,), generator=generator).tolist(), np.random.default_rng(2)
        # The shape of a forward changes how bfloat16 sums are rounded.
        wide = ScriptedDrafter(lambda context, budget, rng=rng: random_tree(rng, context[-1], 40, 64))
        outputs = [decode(bf16, prompt, d, max_new_tokens=24).output_ids for d in (AutoregressiveDrafter(), wide)]
        lines = [output(outputs[0], method="ar"), output(outputs[1])]
        judged += divergences(lines, "ar", {("Q1", 0): prompt}, judge)
        if len(judged) == 2:
            break
    assert {d["verdict"] for d in judged} == {"tie"}


def test_sampled_choices_are_judged_with_the_noise_of_their_position():
    sampling = Sampling(temperature=0.8, seed=3)
    _, exact = rows(TREE7_PROMPT, sampling)
    drawn = int(exact.argmax())
    greedy = int(rows(TREE7_PROMPT)[1].argmin())
    facts = fp32_judge(*lms(), sampling)(TREE7_PROMPT, drawn, greedy)
    assert facts["gap_fp32"] == pytest.approx(float(exact[drawn] - exact[greedy]))
