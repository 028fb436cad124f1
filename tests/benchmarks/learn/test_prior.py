"""What a prior is learnt from, and how its probabilities are judged."""

import json
import re

import numpy as np
import pytest

from benchmarks.learn.corpus import PromptText
from benchmarks.learn.prior import (
    CandidateLog,
    Recipe,
    draw_of_each,
    expected_calibration_error,
    learn,
    learnt_prior,
    log_loss,
    prior_prompts,
    reliability,
)
from benchmarks.learn.word_problems import word_problems
from benchmarks.models.load import ModelSpec, load_model
from goose.drafters.probabilities import PRIOR_FILE, AcceptanceProbabilities, read_prior
from goose.engine.decode import decode
from goose.engine.lm import TreeLM
from paths import SHARED
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
    drawn = draw_of_each(prompts, 3, seed=1)
    assert [p.origin for p in drawn] == ["a", "b"] * 3
    assert drawn == draw_of_each(prompts, 3, seed=1) != draw_of_each(prompts, 3, seed=2)


def test_word_problems_are_the_same_for_a_seed_and_none_asks_twice_the_same():
    texts = word_problems(60, seed=3)
    assert texts == word_problems(60, seed=3) != word_problems(60, seed=4)
    assert len(set(texts)) == 60
    assert all(text.endswith("?") and not re.search(r"[{}]", text) for text in texts)


def words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason="no ../shared/data beside the checkout")
def test_no_prompt_is_of_a_measured_set():
    data = SHARED / "data"
    prompts = prior_prompts(data, Recipe(prompts=25))
    assert sorted({p.origin for p in prompts}) == ["chat", "class", "function", "mbpp", "mbpp_stub", "word_problem"]
    asked = [words(prompt.text) for prompt in prompts]
    measured = []
    for file, key in (
        ("gsm8k/test.jsonl", "question"),
        ("mt_bench/question.jsonl", "turns"),
        ("mbpp/mbpp.jsonl", "text"),
    ):
        rows = [json.loads(line) for line in (data / file).read_text(encoding="utf-8").splitlines() if line.strip()]
        rows = [row for row in rows if key != "text" or 11 <= row["task_id"] <= 510]  # MBPP's test split
        measured += [words(text) for row in rows for text in ([row[key]] if isinstance(row[key], str) else row[key])]
    assert len(measured) > 1800
    assert not [text for text in measured if len(text) > 30 and any(text in prompt for prompt in asked)]


def test_the_record_says_which_prompts_it_was_learnt_from_and_reads_as_a_prior(tmp_path):
    loaded = load_model(ModelSpec("tiny", "tiny"), device="cpu")
    prompts = [PromptText(kind, f"{kind} {i}", item=f"{kind}/{i}") for i in range(4) for kind in "ab"]
    recipe = Recipe(prompts=4, new_tokens=12, budget=8, single_token_rows=0)
    record, candidates = learnt_prior(loaded, prompts, recipe, lambda text: None)
    assert record["learnt_from"]["items"] == {kind: [f"{kind}/{i}" for i in range(4)] for kind in "ab"}
    assert record["learnt_from"]["candidates"] == len(candidates.cells) == len(candidates.said)
    file = tmp_path / "prior.json"
    file.write_text(json.dumps(record))
    assert ((read_prior(str(file)) > 0) & (read_prior(str(file)) < 1)).all()


def test_the_prior_that_comes_with_goose_names_its_prompts_and_none_is_of_gsm8k():
    learnt_from = json.loads(PRIOR_FILE.read_text())["learnt_from"]
    assert len(learnt_from["texts_sha256"]) == 64
    assert not [kind for kind in learnt_from["items"] if "gsm8k" in kind]
    assert all(set(range(11, 511)).isdisjoint({int(item.split("/")[1])}) for item in learnt_from["items"]["mbpp"])
