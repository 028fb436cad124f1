"""`make perf` works on a tiny model. No time is asserted: whether it is fast is for its reader."""

import pytest

from benchmarks.check import perf
from goose import TreeLM
from toy import P0, TREE7, TREE7_PROMPT, tiny_model

STOP = frozenset({63})


@pytest.fixture(scope="module")
def lm() -> TreeLM:
    return TreeLM(tiny_model())


def test_ours_and_generate_give_the_same_tokens_and_every_request_is_timed(lm):
    prompts = [P0, TREE7_PROMPT]
    arms = perf.race(perf.peer_arms(lm.model, lm, STOP), prompts, n_new=12, repeats=2)
    assert list(arms) == ["ours plain", "generate greedy", "ours pld", "generate lookup"]
    expected = arms["generate greedy"].outputs
    assert all(1 <= len(output) <= 12 for output in expected)
    for arm in arms.values():
        # The order rotates by arm, not by prompt, so the outputs stand in the prompts' order.
        assert arm.outputs == expected
        assert len(arm.seconds) == 4
        assert min(arm.seconds) > 0


def test_our_methods_give_the_same_tokens(lm):
    arms = perf.race(perf.method_arms(lm, STOP), [TREE7_PROMPT], n_new=12, repeats=1)
    assert len({tuple(arm.outputs[0]) for arm in arms.values()}) == 1


def test_host_work_is_given_by_part(lm):
    work = perf.host_work_ms(lm, [P0], n_new=12, node_budget=20)
    assert set(work) == {"draft", "walk", "observe", "mask", "sum"}
    assert min(work.values()) > 0
    assert max(work.values()) == work["sum"]


def test_commit_is_timed_on_the_models_own_shape(lm):
    assert perf.commit_us(lm, context=100, n_path=5, repeats=3) > 0
    assert lm.n_committed < 100  # on a cache of its own


def test_the_stock_forward_scores_the_same_tree(lm):
    score = perf.stock_scorer(lm.model, TREE7_PROMPT)
    lm.prefill(TREE7_PROMPT, 20)
    for _ in range(2):  # its cache is as long as before
        assert (score(TREE7) - lm.score(TREE7)).abs().max() < 1e-4


def test_verify_cost_is_given_by_nodes_and_way(lm):
    ms = perf.verify_ms(lm.model, lm, TREE7_PROMPT, sizes=(1, 5), repeats=2)
    assert list(ms) == [1, 5]
    assert all(set(row) == {"stock", "eager", "ours"} and min(row.values()) > 0 for row in ms.values())
