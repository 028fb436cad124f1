"""What a prior is learnt from, and how its chances are judged."""

import numpy as np
import pytest

from benchmarks.learn.corpus import PromptText
from benchmarks.learn.prior import CandidateLog, expected_calibration_error, learn, log_loss, reliability
from goose.drafters.probabilities import AcceptanceProbabilities
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from scripts.learn_prior import choose
from toy import P0, counter, tiny_model


def test_every_reached_node_says_at_most_one_candidate_was_right():
    log = CandidateLog(AcceptanceProbabilities())
    found = decode(counter(), P0, log, max_new_tokens=90)
    assert len(log.cells) == len(log.said) > 0
    # Each emitted token but the first, and but those of the last step, which no drafter sees, was said at one node.
    assert sum(log.said) <= len(found.output_ids) - 1


def test_learning_gives_a_prior_of_what_was_seen():
    seen = []
    lm = TreeLM(tiny_model())
    model, cells, said = learn(lm, [[5, 6, 7, 8], [9, 10, 11]], lambda *n: seen.append(n), max_new_tokens=30)
    assert [n for n, _ in seen] == [1, 2]
    assert seen[-1][1] == len(cells) == len(said)
    assert set(model) == {"bias", "weights"}
    assert 0 < said.sum() < len(said)


def test_reliability_and_its_error_by_hand():
    chances = np.array([0.1, 0.1, 0.9, 0.9])
    cells, said = np.arange(4), np.array([False, False, True, False])
    bins = reliability(chances, cells, said, n_bins=2)
    assert [(b["n"], b["chance"], b["said"]) for b in bins] == [(2, 0.1, 0.0), (2, 0.9, 0.5)]
    assert expected_calibration_error(bins) == pytest.approx(0.5 * 0.1 + 0.5 * 0.4)
    assert log_loss(np.array([0.5, 0.25]), np.array([0, 1]), np.array([True, False])) == pytest.approx(
        -(np.log(0.5) + np.log(0.75)) / 2
    )


def test_prompts_are_drawn_alike_for_a_seed_and_kinds_take_turns():
    prompts = [PromptText(kind, f"{kind} {i}") for kind in "ab" for i in range(9)]
    drawn = choose(prompts, 3, seed=1)
    assert [p.origin for p in drawn] == ["a", "b"] * 3
    assert drawn == choose(prompts, 3, seed=1) != choose(prompts, 3, seed=2)
