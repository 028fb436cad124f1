"""A verify-cost curve between and beyond its points, as a file, and as Sequoia's cost; each value checkable by eye."""

import dataclasses
import json

import pytest
from curves import curve_of, point
from hypothesis import given
from hypothesis import strategies as st

from baselines.sequoia import SequoiaDrafter
from benchmarks.cost.curve import CHAIN, load_curve
from benchmarks.cost.machine import Machine
from benchmarks.cost.sizing import StepCost
from benchmarks.errors import UserError

# Seconds:   1   4 nodes
#   L = 100  1   4
#   L = 200  2   8
GRID = curve_of(point(100, 1, 1), point(100, 4, 4), point(200, 1, 2), point(200, 4, 8))


@pytest.mark.parametrize(
    ("n_nodes", "context", "seconds"),
    [
        (1, 100, 1), (4, 200, 8),
        (2, 100, 2),  # a third of the way from 1 to 4
        (2, 200, 4), (2, 150, 3),
        (1, 10, 1), (3, 0, 3),  # flat below the first length
        (7, 100, 7), (1, 300, 3), (7, 300, 21),  # 7 at L = 100, 14 at L = 200: 21
    ],
)  # fmt: skip
def test_straight_between_the_points_flat_below_and_straight_on_above(n_nodes, context, seconds):
    assert GRID.seconds(n_nodes, context) == pytest.approx(seconds)


def test_one_point_answers_for_all_sizes():
    assert curve_of(point(100, 8, 3)).seconds(60, 5000) == 3


def test_beyond_the_last_point_the_curve_never_falls_and_between_points_noise_stays():
    noisy = curve_of(point(100, 1, 1), point(100, 16, 5), point(100, 32, 4))
    assert noisy.seconds(24, 100) == pytest.approx(4.5)
    assert noisy.seconds(64, 100) == 4


@given(st.integers(1, 300), st.integers(0, 900))
def test_a_rising_grid_gives_a_rising_curve(n_nodes, context):
    here = GRID.seconds(n_nodes, context)
    assert here <= GRID.seconds(n_nodes + 1, context)
    assert here <= GRID.seconds(n_nodes, context + 1)


def test_chains_have_their_own_points_where_they_were_measured():
    both = curve_of(point(100, 1, 1), point(100, 4, 4), point(100, 1, 1, CHAIN), point(100, 4, 2, CHAIN))
    assert both.seconds(4, 100) == 4
    assert both.seconds(4, 100, True) == 2
    assert GRID.seconds(4, 100, True) == 4


@pytest.mark.parametrize(
    "points",
    [
        [],
        [point(100, 1, 1, CHAIN)],
        [point(100, 1, 1), point(100, 1, 2)],
        [point(100, 1, 1), point(100, 4, 4), point(200, 1, 2)],
    ],
    ids=["none", "no tree", "twice", "hole"],
)
def test_points_that_are_no_full_grid_are_refused(points):
    with pytest.raises(ValueError, match="no full grid"):
        curve_of(*points)


def test_rates_are_derived():
    assert (point(100, 1, 2).bytes_per_s, point(100, 1, 2).flops_per_s) == (300, 600)
    assert (GRID.node_counts, GRID.context_lengths) == ((1, 4), (100, 200))


# Files


def test_a_saved_curve_is_read_back_equal(tmp_path):
    full = dataclasses.replace(GRID, machine=Machine(1e9, 2e9, 3e9, "float32"))
    file = full.save(tmp_path / "cost")
    assert file.name == "m-nvidia-h200-bfloat16-graph.json"
    assert load_curve(file) == full
    assert file.read_text().count("\n") > len(full.points)  # one point a line: a diff can be read
    roofline = curve_of(point(100, 1, 1), kind="roofline", engine="none", weights="none", versions={})
    assert load_curve(roofline.save(tmp_path)) == roofline
    assert roofline.file_name == "m-nvidia-h200-bfloat16-roofline.json"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record | {"schema": 0}, "of schema 2 .its schema is 0."),
        (lambda record: [record], "its schema is None"),
        (lambda record: {key: v for key, v in record.items() if key != "engine"}, "incomplete or foreign"),
        (lambda record: {key: v for key, v in record.items() if key != "points"}, "incomplete or foreign"),
        (lambda record: record | {"points": record["points"][:3]}, "no full grid"),
        (lambda record: record | {"extra": 1}, "incomplete or foreign"),
    ],
    ids=["schema", "list", "field", "points", "hole", "extra"],
)
def test_files_that_are_no_curve_are_refused(tmp_path, change, message):
    file = GRID.save(tmp_path)
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    with pytest.raises(UserError, match=message) as caught:
        load_curve(file)
    assert "write one with scripts/measure_cost.py" in str(caught.value)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), True, None, "1"])
def test_times_that_are_no_seconds_are_refused(tmp_path, seconds):
    file = GRID.save(tmp_path)
    record = json.loads(file.read_text())
    record["points"][1]["seconds"] = seconds
    file.write_text(json.dumps(record))
    with pytest.raises(UserError, match="incomplete or foreign"):
        load_curve(file)


def test_absent_and_torn_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="there is no cost curve at"):
        load_curve(tmp_path / "absent.json")
    (tmp_path / "cut.json").write_text('{"schema": 1, ')
    with pytest.raises(UserError, match="is no cost curve"):
        load_curve(tmp_path / "cut.json")


# As Sequoia's cost


def test_sequoia_takes_a_curve_at_one_context(tmp_path):
    # Eight nodes cost what one does, the ninth doubles the step.
    points = [point(L, n, t) for L in (100, 200) for n, t in ((1, 1.0), (8, 1.0), (9, 2.0), (64, 2.0))]
    file = curve_of(*points).save(tmp_path)
    cost = StepCost(str(file), context=150)
    assert [cost(n) for n in (1, 8, 9, 64)] == [1.0, 1.0, 2.0, 2.0]
    drafter = SequoiaDrafter([0.6, 0.2, 0.1], size="cost", cost=cost)
    assert len(drafter.shape(60).parents) == 8
    with pytest.raises(UserError, match="at least 1, got 0"):
        StepCost(str(file), context=0)
    with pytest.raises(UserError, match="there is no cost curve"):
        StepCost("nowhere.json", context=1)
