"""AcceptanceProbabilities: a prior with its provenance, Beta counts on top, and what is refused."""

import json

import numpy as np
import pytest

from goose.drafters.probabilities import (
    EDGES,
    LAYOUT,
    PRIOR_FILE,
    AcceptanceProbabilities,
    face_value,
    features,
    fit_prior,
    prior_of,
    read_prior,
)
from goose.sources.evidence import (
    DEFERRED,
    DRAFT,
    FIRST_MATCHED,
    N_ADJACENCY,
    N_CELLS,
    N_COUNTS,
    SHARE_EDGES,
    TIER,
    TRIGRAM,
)

HALF = np.full(N_CELLS, 0.5)


def test_counts_and_prior_join_as_a_beta_mean():
    probabilities = AcceptanceProbabilities.of_prior(HALF, strength=10.0)
    probabilities.learn([7, 7, 8], [True, True, False])
    assert probabilities.of[7] == pytest.approx((2 + 10 * 0.5) / (2 + 10))
    assert probabilities.of[8] == pytest.approx((0 + 10 * 0.5) / (1 + 10))
    assert probabilities.of[9] == 0.5
    probabilities.reset()
    assert probabilities.of[7] == 0.5


@pytest.mark.parametrize("calibration", ["prior", "none"])
def test_without_counts_nothing_is_learnt(calibration):
    probabilities = AcceptanceProbabilities(calibration)
    before = list(probabilities.of)
    probabilities.learn([7], [True])
    assert probabilities.of == before


def test_face_value_is_the_greater_of_share_and_score():
    values = face_value()
    whole = FIRST_MATCHED + len(SHARE_EDGES) * N_COUNTS  # the shortest match, every occurrence
    assert values[whole * N_ADJACENCY] == pytest.approx(0.995)
    assert values[TRIGRAM * TIER] == pytest.approx(0.001)  # the lowest score level, no match
    assert values[TRIGRAM * TIER + DEFERRED + 14] == pytest.approx(0.995)  # a deferred id's score likewise
    assert np.all((values >= 0) & (values <= 1))


def test_the_fit_finds_the_rates_that_were_seen_and_generalises_by_parts():
    rng = np.random.default_rng(0)
    cells = rng.choice([TRIGRAM * TIER + 3, TRIGRAM * TIER + 14], 4000)
    accepted = rng.random(4000) < np.where(cells == TRIGRAM * TIER + 14, 0.9, 0.1)
    prior = prior_of(fit_prior(cells, accepted))
    assert prior[TRIGRAM * TIER + 14] == pytest.approx(0.9, abs=0.03)
    assert prior[TRIGRAM * TIER + 3] == pytest.approx(0.1, abs=0.03)
    assert prior.shape == (N_CELLS,)
    assert ((prior > 0) & (prior < 1)).all()


def test_a_drafts_row_starts_as_a_trigrams():
    prior = read_prior(str(PRIOR_FILE))
    assert prior[DRAFT * TIER + 9] == prior[TRIGRAM * TIER + 9]


def test_no_two_cells_look_alike():
    assert len(np.unique(features(np.arange(N_CELLS)), axis=0)) == N_CELLS


def test_the_prior_that_comes_along_says_where_it_is_from():
    record = json.loads(PRIOR_FILE.read_text())
    learnt = record["learnt_from"]
    assert set(learnt["items"]) == {"chat", "class", "function", "word_problem", "mbpp", "mbpp_stub"}
    assert learnt["candidates"] > 10_000
    assert learnt["model"]["revision"]
    assert record["held_out"]["fit to the other prompts"]["ece"] < record["held_out"]["face value"]["ece"]


def test_a_prior_that_is_given_needs_no_file(monkeypatch):
    """Or no prior could be learnt once the evidence is laid out otherwise than in the file that comes along."""
    monkeypatch.setattr("goose.drafters.probabilities.PRIOR_FILE", PRIOR_FILE.with_name("absent.json"))
    assert AcceptanceProbabilities.of_prior(HALF).of[0] == 0.5


def test_likelier_scores_have_likelier_probabilities():
    prior = read_prior(str(PRIOR_FILE))
    row = prior[TRIGRAM * TIER : TRIGRAM * TIER + 15]
    assert row[0] < 0.05 < 0.5 < row[14]
    assert np.corrcoef(np.arange(15), row)[0, 1] > 0.8


def test_a_file_is_read_back_and_one_cut_otherwise_is_refused(tmp_path):
    model = fit_prior(np.array([1, 1, 2]), np.array([True, False, True]))
    edges = {name: list(values) for name, values in EDGES.items()}
    file = tmp_path / "prior.json"
    file.write_text(json.dumps({"layout": LAYOUT, "edges": edges, "model": model}))
    np.testing.assert_allclose(AcceptanceProbabilities(prior_file=str(file)).of, prior_of(model))
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"layout": LAYOUT, "edges": {**edges, "count": [2]}, "model": model}))
    with pytest.raises(ValueError, match="learn it anew"):
        AcceptanceProbabilities(prior_file=str(other))
    with pytest.raises(ValueError, match="no prior at"):
        AcceptanceProbabilities(prior_file=str(tmp_path / "absent.json"))
    other.write_text("[1, 2]")
    with pytest.raises(ValueError, match="is no prior"):
        AcceptanceProbabilities(prior_file=str(other))
    for i, damage in enumerate(
        [{}, {"model": None}, {"model": {"bias": 0.0}}, {"model": {**model, "weights": [1, 2]}}]
    ):
        file = tmp_path / f"{i}.json"
        file.write_text(json.dumps({"layout": LAYOUT, "edges": edges, **damage}))
        with pytest.raises(ValueError, match="is a damaged prior"):
            AcceptanceProbabilities(prior_file=str(file))
    other = tmp_path / "nan.json"
    other.write_text(json.dumps({"layout": LAYOUT, "edges": edges, "model": {**model, "bias": float("nan")}}))
    with pytest.raises(ValueError, match="not finite"):
        AcceptanceProbabilities(prior_file=str(other))


@pytest.mark.parametrize(
    "make",
    [
        lambda: AcceptanceProbabilities("sometimes"),
        lambda: AcceptanceProbabilities(strength=0.0),
        lambda: AcceptanceProbabilities(strength=float("nan")),
        lambda: AcceptanceProbabilities(strength=float("inf")),
        lambda: AcceptanceProbabilities.of_prior(np.zeros(3)),
        lambda: AcceptanceProbabilities.of_prior(HALF, "sometimes"),
    ],
)
def test_bad_settings_are_refused(make):
    with pytest.raises(ValueError, match=r"must be|must hold one probability"):
        make()
