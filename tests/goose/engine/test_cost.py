"""The quick verification-cost curve: what is measured, kept, found again and refused. No time is asserted."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goose.engine import cost, timing
from goose.engine.cost import MeasuredCost, QuickCurve, conditions_of, quick_curve
from goose.engine.lm import TreeLM
from goose.engine.timing import Timed, measure_quickly
from toy import tiny_model

TIMED = Timed((8, 24), (1, 2, 4), ((1.0, 1.5, 2.0), (2.0, 2.5, 3.0)), 0.01)


@pytest.fixture
def measured(tmp_path, monkeypatch) -> list:
    """An empty cache folder, and a measurement that takes no time; each one is appended."""
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cost, "_unkept", {})
    calls = []
    monkeypatch.setattr(cost, "measure_quickly", lambda lm, on_progress: calls.append(lm) or TIMED)
    return calls


def curve(engine: str = "fused", timed: Timed = TIMED) -> QuickCurve:
    return QuickCurve({"engine": engine}, timed.contexts, timed.sizes, timed.seconds, timed.error, 1.0, "2026-01-01")


def test_between_its_points_it_is_straight_and_beyond_them_it_goes_on():
    t = curve()
    assert [t(n, 8) for n in (1, 2, 3, 4, 6)] == [1.0, 1.5, 1.75, 2.0, 2.5]
    assert [t(1, context) for context in (1, 8, 16, 24, 40)] == [1.0, 1.0, 1.5, 2.0, 3.0]


def test_a_recorded_graph_costs_what_its_size_costs():
    t = curve("graph")
    assert [t(n, 8) for n in (1, 2, 3, 4)] == [1.0, 1.5, 2.0, 2.0]
    assert t(6, 8) == 2.5  # larger than every graph


@given(st.integers(1, 200), st.integers(1, 5000))
def test_it_never_falls_beyond_the_largest_size_and_length(n, context):
    falling = curve(timed=Timed((8, 24), (1, 2, 4), ((3.0, 2.0, 1.0), (2.0, 1.5, 0.5)), 0.0))
    assert falling(n, context) >= 0.5


def test_every_size_and_length_is_timed_and_the_sequence_in_flight_is_short_of_no_position(monkeypatch):
    monkeypatch.setattr(timing, "MAX_VISITS", 1)
    lm, told = TreeLM(tiny_model(max_positions=100)), []
    timed = measure_quickly(lm, on_progress=told.append)
    assert timed.sizes == tuple(n for n in timing.FINE if n <= 50)
    assert max(timed.contexts) + max(timed.sizes) <= 100
    assert np.shape(timed.seconds) == (len(timed.contexts), len(timed.sizes))
    assert all(0 < s < 60 for row in timed.seconds for s in row)
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_engine_graph_is_timed_at_the_sizes_that_are_recorded(monkeypatch):
    monkeypatch.setattr(timing, "MAX_VISITS", 1)
    timed = measure_quickly(TreeLM(tiny_model(), engine="graph"))
    assert timed.sizes == (1, 2, 4, 8, 16, 32, 48, 64)


def test_with_hardly_any_time_each_size_is_still_timed_once(monkeypatch):
    timed = measure_quickly(TreeLM(tiny_model()), limit_s=1e-9)
    assert (len(timed.contexts), timed.sizes) == (1, timing.COARSE)


def test_it_is_measured_once_for_a_shape_and_found_for_every_checkpoint_of_it(measured, tmp_path):
    first = quick_curve(TreeLM(tiny_model()))
    assert (first.is_new, first.not_kept, len(measured)) == (True, None, 1)
    again = quick_curve(TreeLM(tiny_model(max_positions=64)))
    assert (again.is_new, again.label, len(measured)) == (False, first.label, 1)
    assert again.seconds == TIMED.seconds
    quick_curve(TreeLM(tiny_model(num_hidden_layers=1)))
    quick_curve(TreeLM(tiny_model(), engine="eager"))
    assert len(measured) == 3
    assert len(list((tmp_path / "cache" / "cost").iterdir())) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:100],
        lambda text: "[]",
        lambda text: text.replace('"schema": 1', '"schema": 0'),
        lambda text: text.replace('"cores"', '"coers"'),
        lambda text: text.replace("[1.0, 1.5, 2.0]", "[1.0, 1.5]"),
        lambda text: text.replace("[1.0, 1.5, 2.0]", "[1.0, 1.5, -2.0]"),
        lambda text: text.replace("[1.0, 1.5, 2.0]", "[1.0, 1.5, NaN]"),
        lambda text: text.replace("[1, 2, 4]", "[1, 4, 2]"),
        lambda text: json.dumps({**json.loads(text), "more": 1}),
    ],
)
def test_an_interrupted_or_foreign_file_is_measured_anew(measured, tmp_path, change):
    quick_curve(TreeLM(tiny_model()))
    (file,) = (tmp_path / "cache" / "cost").iterdir()
    whole = file.read_text()
    file.write_text(change(whole))
    assert file.read_text() != whole
    assert quick_curve(TreeLM(tiny_model())).is_new
    assert len(measured) == 2
    assert json.loads(file.read_text())["seconds"] == json.loads(whole)["seconds"]


def test_a_cache_that_cannot_be_written_is_done_without_and_said(measured, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path / "file"))
    model_cost = MeasuredCost()
    with pytest.warns(UserWarning, match="was not kept"):
        model_cost.prepare(TreeLM(tiny_model()))
    assert model_cost(1, 8) == 1.0
    model_cost.prepare(TreeLM(tiny_model()))  # in this process it is known now
    assert len(measured) == 1


def test_before_it_is_prepared_it_says_what_is_missing():
    with pytest.raises(RuntimeError, match="prepare"):
        MeasuredCost()(1, 8)


def test_what_the_seconds_depend_on_is_named():
    lm = TreeLM(tiny_model())
    assert {"shape", "dtype", "device", "engine", "attention", "cpu", "cores", "threads", "torch"} <= set(
        conditions_of(lm)
    )
