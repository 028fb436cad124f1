"""Which verification cost sizes a drafter's trees."""

import pytest
from curves import curve_of, point

from benchmarks.cost.sizing import VerifyCost
from benchmarks.errors import UserError
from goose.engine import cost as quick
from goose.engine.cost import conditions_of
from goose.engine.lm import TreeLM
from goose.engine.timing import Timed
from toy import tiny_model

LM = TreeLM(tiny_model())
HERE = {key: conditions_of(LM)[key] for key in ("cpu", "cores", "threads", "torch")}
SHAPE = conditions_of(LM)["shape"]


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """results/cost and the user's cache are empty, and a quick measurement says 9 seconds without taking them."""
    monkeypatch.setattr("benchmarks.cost.sizing.FOLDER", tmp_path / "cost")
    monkeypatch.setenv("GOOSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(quick, "measure_quickly", lambda lm, on_progress: Timed((10,), (1, 2), ((9.0, 9.0),), 0.01))
    return tmp_path / "cost"


def saved(folder, seconds: float, **fields) -> None:
    known = {"device": "cpu", "dtype": "float32", "engine": "fused", "versions": HERE, "model_shape": SHAPE}
    curve_of(point(10, 1, seconds), **{**known, **fields}).save(folder)


def prepared(lm=LM, file=None) -> VerifyCost:
    cost = VerifyCost(file)
    cost.prepare(lm)
    return cost


def test_the_full_curve_of_the_models_shape_engine_and_machine_is_found_whatever_the_model_is_called(own_folder):
    saved(own_folder, 1.0, model="some name")
    saved(own_folder, 2.0, engine="eager")
    (own_folder / "another.json").write_text("{}")
    cost = prepared()
    assert cost(1, 10) == 1.0
    assert "of some name in float32 on cpu (random weights, engine fused)" in cost.label
    assert cost.curve.digest in cost.label
    assert cost.origin(LM) == {"how": f"the full curve {own_folder / cost.curve.file_name}"}
    assert prepared(TreeLM(tiny_model(), engine="eager"))(1, 10) == 2.0


@pytest.mark.parametrize(
    "fields",
    [
        {"model_shape": "another"}, {"dtype": "bfloat16"}, {"attention": "sdpa"}, {"kind": "roofline"},
        {"versions": {**HERE, "cpu": "a faster one"}}, {"versions": {**HERE, "torch": "1.0"}},
        {"model_shape": None, "model": "llama3"}, {"model_shape": None, "model": "no such model"},
    ],
    ids=str,
)  # fmt: skip
def test_where_no_full_curve_is_this_models_on_this_machine_the_quick_one_is_taken(own_folder, fields):
    saved(own_folder, 1.0, **fields)
    cost = prepared()
    assert cost(1, 10) == 9.0
    assert cost.origin(LM)["how"] == "measured now"
    again = prepared(TreeLM(tiny_model()))
    assert again.origin(LM) == {"how": "from the cache", "seconds": 0.0, "remark": None}
    assert (again.label, again(2, 99)) == (cost.label, 9.0)


def test_a_file_without_a_shape_is_of_the_configured_model_of_its_name(own_folder):
    saved(own_folder, 1.0, model_shape=None, model="made up")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.cost.sizing.SHAPES_OF_SCHEMA_1", {"made up": SHAPE})
        assert prepared()(1, 10) == 1.0
    assert prepared()(1, 10) == 9.0


def test_a_curve_that_is_named_is_taken_whatever_it_is_of_and_the_record_says_of_what(own_folder):
    file = curve_of(point(10, 1, 3.0), model="other", kind="roofline").save(own_folder)
    cost = VerifyCost(str(file))
    assert cost(1, 10) == 3.0  # before any model is there
    cost.prepare(LM)
    assert cost(1, 10) == 3.0
    assert cost.origin(LM) == {"how": f"read from {file}, which is of another model's shape, other on NVIDIA H200"}
    saved(own_folder, 1.0)
    own = next(own_folder.glob("m-cpu*.json"))
    assert prepared(file=str(own)).origin(LM)["how"].endswith("which is of this model's shape")


def test_an_unsteady_measurement_is_said_to_be_one(own_folder, monkeypatch):
    monkeypatch.setattr(quick, "measure_quickly", lambda lm, on_progress: Timed((10,), (1, 2), ((9.0, 9.0),), 0.2))
    assert prepared().origin(LM)["remark"] == "unsteady, its least certain time within 20%: the machine was busy"


def test_before_it_is_prepared_it_says_what_is_missing():
    with pytest.raises(RuntimeError, match="call prepare"):
        VerifyCost()(1, 10)
    with pytest.raises(UserError, match="there is no cost curve at nowhere"):
        VerifyCost("nowhere")
