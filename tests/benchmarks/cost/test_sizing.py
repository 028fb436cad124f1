"""Which verify-cost curve sizes a drafter's trees."""

import pytest
from curves import curve_of, point

from benchmarks.cost.sizing import VerifyCost
from benchmarks.environment import describe
from benchmarks.errors import UserError


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.cost.sizing.FOLDER", tmp_path)
    return tmp_path


NAMES = {
    "model": "tiny", "device": "cpu", "dtype": "auto", "cpu_dtype": "float32", "gpu_dtype": "float16", "engine": "auto",
    "attention": "grouped",
}  # fmt: skip
HERE = {key: describe("cpu")[key] for key in ("cpu", "cores", "threads")}


def saved(folder, seconds: float, **fields) -> None:
    known = {"model": "tiny", "device": "cpu", "dtype": "float32", "engine": "fused", "versions": HERE}
    curve_of(point(10, 1, seconds), **{**known, **fields}).save(folder)


def test_a_drafter_finds_the_curve_of_its_model_device_dtype_and_engine(own_folder):
    saved(own_folder, 1.0)
    saved(own_folder, 2.0, engine="eager")
    saved(own_folder, 3.0, engine="eager", attention="sdpa", dtype="bfloat16")
    (own_folder / "another.json").write_text("{}")
    assert VerifyCost(None, **NAMES)(1, 10) == 1.0
    assert VerifyCost(None, **{**NAMES, "engine": "eager"})(1, 10) == 2.0
    assert VerifyCost(None, **{**NAMES, "attention": "sdpa", "dtype": "bfloat16"})(1, 10) == 3.0
    assert "engine fused" in VerifyCost(None, **NAMES).label
    assert "another machine" not in VerifyCost(None, **NAMES).label


def test_a_curve_of_another_machine_is_said_to_be_one(own_folder):
    saved(own_folder, 1.0, versions={"cpu": "a faster one", "cores": 512, "threads": 512})
    assert "measured on another machine (cpu a faster one, cores 512, threads 512)" in VerifyCost(None, **NAMES).label


def test_without_a_curve_the_command_that_measures_one_is_named(own_folder):
    saved(own_folder, 1.0, dtype="bfloat16")
    with pytest.raises(UserError, match=r"dtype float32.*scripts/measure_cost.py model=tiny.*cost_curve=FILE"):
        VerifyCost(None, **NAMES)


def test_a_curve_that_is_named_is_taken_whatever_it_is_of(own_folder):
    file = curve_of(point(10, 1, 3.0), model="other", kind="roofline").save(own_folder)
    assert VerifyCost(str(file), **NAMES)(1, 10) == 3.0


def test_an_unknown_dtype_is_refused(own_folder):
    with pytest.raises(UserError, match="dtype is 'float31'"):
        VerifyCost(None, **{**NAMES, "gpu_dtype": "float31"})
