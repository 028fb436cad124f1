"""`make perf` works on a tiny model. No time is asserted: whether it is fast is for its reader."""

import pytest

from benchmarks.check import peers
from goose import TreeLM
from toy import P0, TREE7, TREE7_PROMPT, tiny_model

STOP = frozenset({63})


@pytest.fixture(scope="module")
def lm() -> TreeLM:
    return TreeLM(tiny_model())


def test_ours_and_generate_give_the_same_tokens_and_every_request_is_timed(lm):
    prompts = [P0, TREE7_PROMPT]
    results = peers.race(peers.peers(lm.model, lm, STOP), prompts, n_new=12, repeats=2)
    assert list(results) == ["ours plain", "generate greedy", "ours pld", "generate lookup"]
    expected = results["generate greedy"].outputs
    assert all(1 <= len(output) <= 12 for output in expected)
    for one in results.values():
        # The order rotates by contestant, not by prompt, so the outputs stand in the prompts' order.
        assert one.outputs == expected
        assert len(one.seconds) == 4
        assert min(one.seconds) > 0


def test_our_methods_give_the_same_tokens(lm):
    results = peers.race(peers.methods(lm, STOP), [TREE7_PROMPT], n_new=12, repeats=1)
    assert len({tuple(one.outputs[0]) for one in results.values()}) == 1


def test_the_stock_forward_scores_the_same_tree(lm):
    score = peers.stock_scorer(lm.model, TREE7_PROMPT)
    lm.prefill(TREE7_PROMPT, 20)
    for _ in range(2):  # its cache is as long as before
        assert (score(TREE7) - lm.score(TREE7)).abs().max() < 1e-4


def test_verify_cost_is_given_by_nodes_and_way(lm):
    ms = peers.verify_ms(lm.model, lm, TREE7_PROMPT, sizes=(1, 5), repeats=2)
    assert list(ms) == [1, 5]
    assert all(set(row) == {"stock", "eager", "ours"} and min(row.values()) > 0 for row in ms.values())
