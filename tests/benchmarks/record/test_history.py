"""Records of earlier schema versions (tests/old_records are of version 1): read, found again, resumed."""

import importlib
import inspect
import json
import shutil
from pathlib import Path

import pytest

from benchmarks.metrics import common_turns, mean_acceptance_length
from benchmarks.record.history import MOVED, RENAMED_KEYS, SCHEMA_VERSION, upgraded
from benchmarks.record.run_folder import RunFolder
from benchmarks.run import cell
from benchmarks.run.config_types import first_type_error
from command_line import run_here
from goose.drafters import probabilities
from paths import REPO

OLD = REPO / "tests" / "old_records"
COLUMNS = ("context", "emitted", "path", "tokens", "parents", "sources")


@pytest.fixture
def same_environment(monkeypatch):
    """The old records were measured on another day's machine, and only there may a run be resumed."""
    monkeypatch.setattr(cell, "fingerprint", lambda env: {})


def tear(folder: Path, n_lines: int) -> list[dict]:
    """Kills the run after n_lines and a half; returns all its lines."""
    lines = (folder / "turns.jsonl").read_text().splitlines(keepends=True)
    (folder / "turns.jsonl").write_text("".join(lines[:n_lines]) + lines[n_lines][: len(lines[n_lines]) // 2])
    (folder / "run.json").unlink()
    (folder / "table.md").unlink()
    return [json.loads(line) for line in lines]


def countable(lines: list[dict]) -> list[tuple]:
    """All of a line that no clock has a part in."""
    return [(x["prompt_id"], x["method"], x["place"], x["output_ids"], [x["steps"][c] for c in COLUMNS]) for x in lines]


def test_a_header_of_version_one_is_read_as_todays_and_stays_as_it_is():
    header = {"schema_version": 1, "methods": {"a": {"_target_": "goose.optimal.GooseOptDrafter", "size": "cost"}}}
    kept = json.loads(json.dumps(header))
    new = upgraded(header)
    assert header == kept
    assert new["schema_version"] == SCHEMA_VERSION
    assert new["methods"] == {"a": {"_target_": "goose.GooseOptDrafter", "size": "cost"}}
    assert (new["engine"], new["files"], new["sized_by"]) == ("eager", {}, {})
    assert upgraded(new) is new


def test_renamed_keys_are_read_as_todays_under_their_own_class_alone():
    source = {
        "_target_": "baselines.opt_tree.AdjacencyFiller",
        "table": {"_target_": "goose.AdjacencyTable", "top_k": 10},
    }
    methods = {
        "opt_tree": {"_target_": "baselines.OptTreeDrafter", "fill": source, "delta": 0.5},
        "goose_opt": {
            "_target_": "goose.optimal.GooseOptDrafter", "fill": None, "chances": {"_target_": "goose.chances.Chances"},
        },
    }  # fmt: skip
    new = upgraded({"schema_version": 1, "engine": "fused", "methods": methods})
    assert new["schema_version"] == SCHEMA_VERSION
    assert new["engine"] == "fused"
    assert list(new["methods"]["opt_tree"].items()) == [
        ("_target_", "baselines.OptTreeDrafter"),
        ("candidates", source | {"_target_": "baselines.AdjacencyCandidates"}),
        ("delta", 0.5),
    ]
    assert new["methods"]["goose_opt"] == {
        "_target_": "goose.GooseOptDrafter", "fill": None, "chances": {"_target_": "goose.AcceptanceProbabilities"},
    }  # fmt: skip


@pytest.mark.parametrize("path", sorted(RENAMED_KEYS))
def test_a_renamed_key_is_an_argument_today_and_its_old_name_is_not(path):
    module, _, name = path.rpartition(".")
    arguments = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    assert set(RENAMED_KEYS[path].values()) <= set(arguments)
    assert not set(RENAMED_KEYS[path]) & set(arguments)


def test_arguments_of_version_one_have_todays_names_and_those_that_went_are_dropped():
    evidence = {"_target_": "goose.Evidence", "top_k": 10, "n_alone": 7}
    cost = {"_target_": "benchmarks.targets.VerifyCost", "file": None, "model": "tiny", "engine": "auto"}
    methods = {"a": {"_target_": "goose.GooseOptDrafter", "evidence": evidence, "cost": cost}}
    new = upgraded({"schema_version": 1, "methods": methods})["methods"]["a"]
    assert new["evidence"] == {"_target_": "goose.Evidence", "top_k": 10, "n_single_token_rows": 7}
    assert new["cost"] == {"_target_": "benchmarks.targets.VerifyCost", "file": None}


def test_an_argument_that_came_later_has_the_value_that_held_before():
    sequoia = {"_target_": "baselines.SequoiaDrafter", "acceptance": [0.5]}
    methods = {"old": sequoia, "new": {**sequoia, "acceptance_of": "big"}}
    new = upgraded({"schema_version": 1, "methods": methods})["methods"]
    assert new == {"old": {**sequoia, "acceptance_of": "smollm2"}, "new": methods["new"]}


@pytest.mark.parametrize("path", sorted(set(MOVED.values())))
def test_every_path_that_stays_leads_to_a_class(path):
    module, _, name = path.rpartition(".")
    assert isinstance(getattr(__import__(module, fromlist=[name]), name), type)


def test_an_old_run_is_read_and_gives_the_numbers_it_gave():
    folder = RunFolder.open(OLD / "ten_methods")
    table = (OLD / "ten_methods" / "table.md").read_text()
    assert folder.is_complete
    assert all(first_type_error(drafter) is None for drafter in folder.header["methods"].values())
    for method, turns in common_turns(folder.lines(), list(folder.header["methods"])).items():
        row = next(line for line in table.splitlines() if line.startswith(f"| {method} |"))
        assert f"{mean_acceptance_length(turns):.2f}" == row.split("|")[5].strip()


def test_an_old_run_that_was_killed_is_finished(tmp_path, monkeypatch, capsys, same_environment):
    """Every method's drafter is made from its old settings, and drafts what it drafted."""
    monkeypatch.chdir(REPO)  # its cost curve is named from here
    monkeypatch.setattr(probabilities, "PRIOR_FILE", OLD / "prior.json")  # the one that came with goose then
    run = shutil.copytree(OLD / "ten_methods", tmp_path / "run")
    # A curve's label and digest are those of its file, which may be measured again; trees of 8 nodes stay the same.
    before = tear(run, 11)
    status, _, err = run_here(monkeypatch, capsys, f"resume={run}")
    assert (status, err) == (0, "")
    assert countable(RunFolder.open(run).lines()) == countable(before)


def test_an_old_run_over_another_prior_than_todays_is_not_mixed_with_it(
    tmp_path, monkeypatch, capsys, same_environment
):
    monkeypatch.chdir(REPO)
    run = shutil.copytree(OLD / "ten_methods", tmp_path / "run")
    tear(run, 11)
    status, _, err = run_here(monkeypatch, capsys, f"resume={run}")
    assert status == 2
    assert err.startswith("error: goose/priors/smollm2.json: not what it was when ")


def test_the_cells_of_an_old_grid_are_found_and_an_interrupted_one_is_finished(
    tmp_path, monkeypatch, capsys, same_environment
):
    monkeypatch.chdir(tmp_path)
    grid = shutil.copytree(OLD / "smoke", tmp_path / "results" / "runs" / "smoke")
    status, out, err = run_here(monkeypatch, capsys, "-m", "+experiment=smoke")
    assert (status, err) == (0, "")
    assert out.count("complete, not run again") == 2
    interrupted = min(folder.parent for folder in grid.glob("*/cell.json"))
    before = tear(interrupted, 2)
    status, out, err = run_here(monkeypatch, capsys, "-m", "+experiment=smoke")
    assert (status, err) == (0, "")
    assert out.count("complete, not run again") == 1
    assert len(list(grid.glob("*/cell.json"))) == 2
    assert countable(RunFolder.open(interrupted).lines()) == countable(before)
