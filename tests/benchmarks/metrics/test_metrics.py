"""Every metric on lines made by hand, against values worked on paper; the counting also against a slow recount."""

import math
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import metrics
from benchmarks.metrics import Losslessness, NodeCounts
from goose.engine.tree import ADJACENCY, CONTEXT, DRAFT_MODEL, ROOT, SOURCE_NAMES
from handmade import chain_step, divergence, failed, line, plain, tree_step

# Q1 100 tokens 10 s -> 2 s, Q2 10 tokens 1 s -> 1 s.
AR = [plain("Q1", 100, 10.0), plain("Q2", 10, 1.0)]
FAST = [line("Q1", "fast", [chain_step(4, 4)] * 20, 2.0), line("Q2", "fast", [chain_step(4, 4)] * 2, 1.0)]
# Drafted [5, 0, 5, 5], accepted [3, 0, 5, 2].
MIXED = line("Q1", "m", [chain_step(5, 3), chain_step(0, 0), chain_step(5, 5), chain_step(5, 2)], 2.0)
NO_STEPS = line("Q1", "m", [], 0.25)  # the prefill's token was a stop id


# Speed


def test_speed_up_is_the_ratio_of_totals_and_the_mean_of_ratios_stands_beside_it():
    assert metrics.tokens_per_second(AR) == pytest.approx(110 / 11)
    assert metrics.tokens_per_second(FAST) == pytest.approx(110 / 3)
    assert metrics.speed_up(FAST, AR) == pytest.approx(11 / 3)
    assert metrics.mean_of_ratios(FAST, AR) == pytest.approx(3.0)
    assert metrics.speed_up(AR, AR) == 1.0


def test_decoding_speed_leaves_the_prefill_out_and_end_to_end_counts_it():
    one = line("Q1", "m", [chain_step(4, 4)] * 2, decode_s=2.0, prefill_s=3.0)  # 10 tokens, and the prefill's
    assert metrics.tokens_per_second([one]) == pytest.approx(10 / 2)
    assert metrics.end_to_end_tokens_per_second([one]) == pytest.approx(11 / 5)


def test_a_speed_that_has_nothing_to_divide_is_none_not_zero():
    assert metrics.tokens_per_second([]) is None
    assert metrics.end_to_end_tokens_per_second([]) is None
    assert metrics.speed_up([], []) is None
    assert metrics.speed_up(FAST, [NO_STEPS]) is None
    assert metrics.mean_of_ratios([NO_STEPS], [NO_STEPS]) is None


def test_ratios_pair_by_prompt_whatever_the_order_and_sum_the_repeats():
    assert metrics.mean_of_ratios(FAST[::-1], AR) == pytest.approx(3.0)
    twice = [*FAST, *(x | {"repeat": 1} for x in FAST)]
    plain_twice = [*AR, *(x | {"repeat": 1} for x in AR)]
    assert metrics.mean_of_ratios(twice, plain_twice) == pytest.approx(3.0)
    assert metrics.speed_up(twice, plain_twice) == pytest.approx(11 / 3)


def test_a_prompt_without_steps_takes_no_part_in_the_mean_of_ratios():
    short = [*FAST, line("Q3", "fast", [], 0.1)], [*AR, line("Q3", "ar", [], 0.1)]
    assert metrics.mean_of_ratios(*short) == pytest.approx(3.0)


def test_the_interval_contains_the_ratio_of_totals_and_is_the_same_every_time():
    seconds = [2.0, 2.2, 1.9, 2.4, 2.1, 2.6, 1.8, 2.0, 2.3, 2.05]
    baseline = [plain(f"Q{i}", 40, 4.0 + 0.1 * i) for i in range(len(seconds))]
    own = [line(f"Q{i}", "m", [chain_step(3, 3)] * 10, s) for i, s in enumerate(seconds)]
    low, high = metrics.speed_up_interval(own, baseline)
    assert low < metrics.speed_up(own, baseline) < high
    assert min(4.0 + 0.1 * i for i in range(10)) / max(seconds) < low
    assert high < max(4.0 + 0.1 * i for i in range(10)) / min(seconds)
    assert metrics.speed_up_interval(own, baseline) == (low, high)
    assert metrics.speed_up_interval(own[::-1], baseline) == (low, high)


def test_more_of_the_same_repeats_do_not_narrow_the_interval():
    baseline = [plain(f"Q{i}", 40, 4.0 + 0.2 * i) for i in range(6)]
    own = [line(f"Q{i}", "m", [chain_step(3, 3)] * 10, 2.0 + 0.1 * (i % 3)) for i in range(6)]
    repeated = [[x | {"repeat": r} for r in range(3) for x in arm] for arm in (own, baseline)]
    # Not to the last digit: sums of seconds round differently, and equal resamples then count as smaller or larger.
    assert metrics.speed_up_interval(*repeated) == pytest.approx(metrics.speed_up_interval(own, baseline), rel=0.01)


def test_one_prompt_or_no_step_has_no_interval():
    assert metrics.speed_up_interval(FAST[:1], AR[:1]) is None
    assert metrics.speed_up_interval([], []) is None
    nothing = [line(q, "m", [], 0.1) for q in ("Q1", "Q2")]
    assert metrics.speed_up_interval(nothing, nothing) is None


def test_equal_arms_give_no_interval_or_one_that_is_the_point_and_no_noise_on_the_terminal():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        interval = metrics.speed_up_interval(AR, AR)
    assert interval is None or interval == pytest.approx((1.0, 1.0))


def test_a_prompt_without_steps_takes_no_interval_away_from_the_others_and_makes_no_noise():
    baseline = [plain("Q1", 40, 4.0), plain("Q2", 40, 4.4), line("Q3", "ar", [], 0.01)]
    own = [line(q, "m", [chain_step(3, 3)] * 10, s) for q, s in (("Q1", 2.0), ("Q2", 1.9))]
    own.append(line("Q3", "m", [], 0.01))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        interval = metrics.speed_up_interval(own, baseline)
    assert interval is not None
    assert interval[0] < metrics.speed_up(own[:2], baseline[:2]) < interval[1]


def test_repeats_spread_is_of_tokens_per_second_over_the_repeats():
    repeats = [plain("Q1", 100, s, repeat=r) for r, s in enumerate((10.0, 10.4, 11.0))]
    assert metrics.repeat_spread(repeats) == pytest.approx(0.10)
    assert metrics.repeat_spread(repeats[:2]) == pytest.approx(0.04)
    assert metrics.repeat_spread(repeats[:1]) is None
    assert metrics.repeat_spread([]) is None
    assert metrics.repeat_spread([line(repeat=r) for r in range(2)]) is None  # no steps, no speed


# Which turns count


def test_a_prompt_that_one_method_failed_counts_for_none():
    lines = [plain("Q1", 3, 1.0), plain("Q2", 3, 1.0), plain("Q1", 3, 1.0, method="m"), failed("Q2", "m")]
    turns = metrics.common_turns(lines, ["ar", "m"])
    assert {m: [t["prompt_id"] for t in ts] for m, ts in turns.items()} == {"ar": ["Q1"], "m": ["Q1"]}


def test_a_prompt_that_one_method_has_not_reached_counts_for_none_and_so_does_a_failed_repeat():
    lines = [plain("Q1", 3, 1.0, method=m, repeat=r) for m in ("ar", "m") for r in (0, 1)]
    assert all(len(ts) == 2 for ts in metrics.common_turns(lines, ["ar", "m"]).values())
    lines[-1] = failed("Q1", "m", repeat=1)
    assert {m: [t["repeat"] for t in ts] for m, ts in metrics.common_turns(lines, ["ar", "m"]).items()} == {
        "ar": [0], "m": [0],
    }  # fmt: skip
    assert metrics.common_turns(lines, ["ar", "m", "absent"]) == {"ar": [], "m": [], "absent": []}
    assert metrics.common_turns([], []) == {}


def test_common_turns_stand_side_by_side_in_every_method():
    lines = [plain("Q2", 3, 1.0), plain("Q1", 3, 1.0, method="m"), plain("Q1", 3, 1.0), plain("Q2", 3, 1.0, method="m")]
    turns = metrics.common_turns(lines, ["ar", "m"])
    assert [t["prompt_id"] for t in turns["ar"]] == [t["prompt_id"] for t in turns["m"]] == ["Q1", "Q2"]


# Acceptance


def test_mean_acceptance_length_counts_the_bonus_and_empty_drafts_and_averages_over_all_steps():
    assert metrics.mean_acceptance_length([MIXED]) == 14 / 4
    assert metrics.mean_acceptance_length([MIXED, line("Q2", "m", [chain_step(0, 0)])]) == 15 / 5
    assert metrics.draft_acceptance([MIXED]) == 10 / 15
    assert metrics.mean_acceptance_length(AR) == 1.0


def test_mean_acceptance_length_counts_what_was_emitted_not_what_was_cut():
    assert metrics.mean_acceptance_length([line("Q1", "m", [chain_step(5, 5), chain_step(5, 5, emitted=3)])]) == 9 / 2


def test_tau_counts_prefill_as_a_forward_and_its_token_as_generated():
    assert metrics.tau([MIXED]) == 15 / 5
    assert metrics.tau([MIXED, MIXED]) == 30 / 10
    assert metrics.tau(AR) == 1.0
    assert metrics.tau([NO_STEPS]) == 1.0
    assert metrics.tau([]) is None


def test_nodes_include_the_root_and_empty_drafts_are_roots_alone():
    assert metrics.nodes_per_step([MIXED]) == ((6 + 1 + 6 + 6) / 4, 6)
    assert metrics.empty_draft_share([MIXED]) == 1 / 4
    assert metrics.empty_draft_share(AR) == 1.0


def test_zero_steps_give_none_everywhere():
    for turns in ([], [NO_STEPS]):
        assert metrics.mean_acceptance_length(turns) is None
        assert metrics.draft_acceptance(turns) is None
        assert metrics.nodes_per_step(turns) == (None, 0)
        assert metrics.empty_draft_share(turns) is None
        assert metrics.step_milliseconds(turns) == {}
    assert metrics.draft_overhead([]) is None


def test_tested_nodes_have_an_accepted_parent_and_every_node_has_one_source():
    # root 0 -> 1 (context), 2, 3 (adjacency); 1 -> 4 (context), 5 (adjacency); 2 -> 6; 4 -> 7; path 0, 1, 4.
    c, a = CONTEXT, ADJACENCY
    step = tree_step([-1, 0, 0, 0, 1, 1, 2, 4], [ROOT, c, a, a, c, a, a, c], [0, 1, 4])
    counts = metrics.acceptance_by_source([line("Q1", "m", [step])])
    assert counts == {
        "context": NodeCounts(drafted=3, tested=3, accepted=2),
        "adjacency": NodeCounts(drafted=4, tested=3, accepted=0),
        "draft_model": NodeCounts(),
    }
    assert counts["context"].acceptance == counts["context"].conditional_acceptance == 2 / 3
    assert (counts["adjacency"].acceptance, counts["adjacency"].conditional_acceptance) == (0.0, 0.0)
    assert (counts["draft_model"].acceptance, counts["draft_model"].conditional_acceptance) == (None, None)


def test_acceptance_does_not_count_nodes_behind_a_stop_id_or_the_limit():
    # D1, d2, EOS, d4, d5 all equal the target's tokens; three are emitted, so d4 and d5 were never accepted.
    counts = metrics.acceptance_by_source([line("Q1", "m", [chain_step(5, 5, emitted=3)])])["context"]
    assert (counts.drafted, counts.accepted) == (5, 3)


@st.composite
def steps_with_trees(draw) -> dict:
    n = draw(st.integers(1, 12))
    parents = [-1, *(draw(st.integers(0, i - 1)) for i in range(1, n))]
    sources = [ROOT, *(draw(st.sampled_from([CONTEXT, ADJACENCY, DRAFT_MODEL])) for _ in range(1, n))]
    path = [0]
    while (children := [i for i in range(n) if parents[i] == path[-1]]) and draw(st.booleans()):
        path.append(draw(st.sampled_from(children)))
    return tree_step(parents, sources, path)


def recount(steps: list[dict]) -> dict[str, list[int]]:
    """Node by node: drafted, tested, accepted."""
    counts = {name: [0, 0, 0] for name in SOURCE_NAMES if name != "root"}
    for step in steps:
        for node in range(1, len(step["parents"])):
            own = counts[SOURCE_NAMES[step["sources"][node]]]
            own[0] += 1
            own[1] += step["parents"][node] in step["path"]
            own[2] += node in step["path"]
    return counts


@given(st.lists(st.lists(steps_with_trees(), max_size=4), max_size=3))
def test_acceptance_by_source_equals_a_recount_node_by_node(steps_of_turns):
    turns = [line(f"Q{i}", "m", steps) for i, steps in enumerate(steps_of_turns)]
    fast = metrics.acceptance_by_source(turns)
    slow = recount([step for steps in steps_of_turns for step in steps])
    assert {name: [c.drafted, c.tested, c.accepted] for name, c in fast.items()} == slow
    drafted, accepted = (sum(row[i] for row in slow.values()) for i in (0, 2))
    assert metrics.draft_acceptance(turns) == (accepted / drafted if drafted else None)
    assert all(c.accepted <= c.tested <= c.drafted for c in fast.values())


# Where the time goes


def test_draft_overhead_is_everything_the_drafter_did_as_a_share_of_decoding():
    parts = {"draft_s": 0.01, "observe_s": 0.02}
    one = line("Q1", "m", [chain_step(1, 1)] * 3, decode_s=1.0, begin_s=0.11, parts=parts)
    assert metrics.draft_overhead([one]) == pytest.approx(0.03 + 0.06 + 0.11)


def test_step_milliseconds_are_medians_over_all_steps():
    turns = [line("Q1", "m", [chain_step(1, 1)], parts={"forward_s": s}) for s in (0.001, 0.002, 0.9)]
    shown = metrics.step_milliseconds(turns)
    assert list(shown) == list(metrics.STEP_PARTS)
    assert shown["forward_s"] == pytest.approx(2.0)
    assert all(math.isclose(ms, 1.0) for part, ms in shown.items() if part != "forward_s")


def stepped(*trees: tuple[list[int], int, int]) -> dict:
    """A turn of steps given as (parents, context, emitted), half a second in each part of each step."""
    parents, context, emitted = map(list, zip(*trees, strict=True))
    seconds = {part: [0.5] * len(trees) for part in metrics.STEP_PARTS}
    return {"steps": {"parents": parents, "context": context, "emitted": emitted, **seconds}}


def test_a_projection_by_hand():
    # Emitted 3 and 1 with 4 nodes and 1: plain decoding makes four steps at contexts 10 to 13, the method two.
    turn = stepped(([-1, 0, 0, 1], 10, 3), ([-1], 13, 1))
    assert metrics.projected_speed_up([turn], lambda n, L, is_chain: {1: 1.0, 4: 1.5}[n]) == pytest.approx(4 / 2.5)
    # t = n + L / 10: plain 2.0 + 2.1 + 2.2 + 2.3, the method 5.0 + 2.3; with the host's 3 parts x 2 steps x 0.5 s.
    grows = lambda n, L, is_chain: n + L / 10  # noqa: E731
    assert metrics.projected_speed_up([turn], grows) == pytest.approx(8.6 / 7.3)
    assert metrics.projected_speed_up([turn], grows, host=True) == pytest.approx(8.6 / 10.3)
    assert metrics.projected_speed_up([turn, turn], grows) == pytest.approx(8.6 / 7.3)


def test_a_projection_knows_chains_from_trees_and_plain_decoding_is_one():
    chains = stepped(([-1, 0, 1], 5, 2), ([-1], 7, 1))
    cost = lambda n, L, is_chain: 1.0 if is_chain else 100.0  # noqa: E731
    assert metrics.projected_speed_up([chains], cost) == pytest.approx(3 / 2)
    assert metrics.projected_speed_up([stepped(([-1, 0, 0], 5, 2))], cost) == pytest.approx(2 / 100)
    plain_steps = stepped(*[([-1], context, 1) for context in range(5, 9)])
    assert metrics.projected_speed_up([plain_steps], lambda n, L, is_chain: n * L) == 1.0
    assert metrics.projected_speed_up([], cost) is None


# Losslessness


def test_losslessness_counts_outputs_a_prompt_and_repeat():
    turns = [plain(q, 2, 1.0, method="m", repeat=r) for q in ("Q1", "Q2") for r in (0, 1)]
    assert metrics.losslessness(turns, "m", []) == Losslessness(4, 4, 0)
    found = [divergence("Q1", "m", "tie"), divergence("Q2", "m", "broken", repeat=1), divergence("Q2", "n", "broken")]
    verdict = metrics.losslessness(turns, "m", found)
    assert verdict == Losslessness(4, 2, 1)
    assert verdict.broken
    assert str(verdict) == "2/4 equal, 1 ties, 1 BROKEN"


def test_ties_alone_do_not_break_a_method_and_nothing_is_not_called_equal():
    tied = metrics.losslessness([plain("Q1", 2, 1.0, method="m")], "m", [divergence("Q1", "m", "tie")])
    assert (tied.broken, str(tied)) == (False, "0/1 equal, 1 ties")
    nothing = metrics.losslessness([], "m", [])
    assert (nothing.broken, str(nothing)) == (False, "n/a")


def test_a_divergence_on_a_prompt_that_another_method_failed_still_breaks_the_method():
    lines = [plain(q, 2, 1.0, method=m) for q in ("Q1", "Q2") for m in ("ar", "m")]
    lines += [plain("Q1", 2, 1.0, method="n"), failed("Q2", "n")]
    turns = metrics.common_turns(lines, ["ar", "m", "n"])
    assert metrics.losslessness(turns["m"], "m", [divergence("Q2", "m", "broken")]).broken
