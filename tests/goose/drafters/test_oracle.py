"""The oracle knows the answer, never loses to the method it bounds, and knows nothing it may not know."""

import pytest

from goose.drafters.goose_opt import GooseOptDrafter
from goose.drafters.oracle import OracleDrafter
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from toy import P0, counter, tiny_model

PROMPT = [5, 6, 7, 8, 9, 5, 6, 7]


def answer_of(lm) -> list[int]:
    return decode(lm, PROMPT, GooseOptDrafter(size="budget"), max_new_tokens=60).output_ids


@pytest.mark.parametrize("budget", [2, 8, 24])
def test_it_takes_no_more_steps_than_the_method_and_says_the_same(budget):
    lm = TreeLM(tiny_model())
    honest = decode(lm, PROMPT, GooseOptDrafter(size="budget"), max_new_tokens=60, node_budget=budget)
    oracle = OracleDrafter()
    oracle.set_answer(honest.output_ids)
    found = decode(lm, PROMPT, oracle, max_new_tokens=60, node_budget=budget)
    assert found.output_ids == honest.output_ids
    assert len(found.steps) <= len(honest.steps)
    assert all(tree.n_nodes <= budget for tree in found.steps.trees)


def test_a_wrong_answer_costs_speed_alone():
    lm = TreeLM(tiny_model())
    oracle = OracleDrafter()
    oracle.set_answer([1] * 60)
    assert decode(lm, PROMPT, oracle, max_new_tokens=60).output_ids == answer_of(lm)


def test_it_must_know_the_answer_before_every_request():
    oracle = OracleDrafter()
    with pytest.raises(ValueError, match="set_answer"):
        decode(counter(), P0, oracle, max_new_tokens=4)
    oracle.set_answer([12, 13, 14, 15])
    decode(counter(), P0, oracle, max_new_tokens=4)
    with pytest.raises(ValueError, match="set_answer"):
        decode(counter(), P0, oracle, max_new_tokens=4)
