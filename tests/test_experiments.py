"""Experiments and launcher presets: every file composes, every cell of it makes a run, and the sums add up."""

import dataclasses
import runpy
from itertools import product

import hydra
import pytest
from omegaconf import OmegaConf

from paths import REPO

CONF = REPO / "conf"
RUN = runpy.run_path(str(REPO / "run.py"))
EXPERIMENTS = sorted(file.stem for file in (CONF / "experiment").glob("*.yaml"))
LAUNCHERS = sorted(file.stem for file in (CONF / "hydra" / "launcher").glob("*.yaml"))
DATASETS = {"humaneval", "mbpp", "classeval", "gsm8k", "mtbench"}


def composed(*overrides: str):
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose("config", overrides=list(overrides))


def hydras_part(*overrides: str):
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose("config", overrides=list(overrides), return_hydra_config=True).hydra


def axes(name: str) -> dict[str, list[str]]:
    params = OmegaConf.to_container(hydras_part(f"+experiment={name}").sweeper.params)
    return {key: str(values).split(",") for key, values in params.items()}


def cells(name: str) -> list[list[str]]:
    found = axes(name)
    return [[f"{k}={v}" for k, v in zip(found, values, strict=True)] for values in product(*found.values())]


def test_the_experiments_are_those_that_are_promised():
    assert EXPERIMENTS == ["ablation", "embedded", "main", "opt_tree", "scaling", "smoke", "topology"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_a_multirun_into_a_folder_of_its_name(name):
    assert hydras_part(f"+experiment={name}").mode.name == "MULTIRUN"
    assert RUN["checked"](composed(f"+experiment={name}")).grid == name


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_cell_of_an_experiment_composes_into_a_run(name):
    planned = cells(name)
    for overrides in planned:
        config = RUN["checked"](composed(f"+experiment={name}", *overrides))
        assert config.grid == name
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = hydra.compose("config", overrides=[f"+experiment={name}", *planned[-1]])
        methods = RUN["selected_methods"](cfg, RUN["checked"](cfg))
    assert list(methods) == list(dict.fromkeys(["ar", *cfg.compare]))
    assert len(methods) == len(set(methods)) >= 3
    if not any("_draft" in method for method in methods):
        assert set(RUN["makers"](methods)) == set(methods)


def test_the_grids_are_the_papers():
    assert {key: len(values) for key, values in axes("main").items()} == {"model": 5, "dataset": 5}
    for name in ("main", "embedded", "topology", "ablation"):
        assert set(axes(name)["dataset"]) == DATASETS
    assert axes("topology")["node_budget"] == ["16", "32", "60"]
    topology = composed("+experiment=topology").compare
    assert {"goose", "iso3", "iso5", "iso_mixed", "sequoia", "opt_tree"} <= set(topology)
    assert {"goose_elastic"}.isdisjoint(topology)  # a strict budget for all
    assert axes("opt_tree")["node_budget"][-1] == "512"
    assert axes("opt_tree")["temperature"] == ["0.0", "1.0"]
    assert len(axes("opt_tree")["method.drafter.delta"]) >= 3


def test_the_embedded_grid_takes_about_an_hour_at_31_tokens_a_second():
    cfg = composed("+experiment=embedded")
    n_tokens = len(cells("embedded")) * cfg.limit * len(cfg.compare) * cfg.max_new_tokens
    assert cfg.limit >= 8
    assert n_tokens == 92_160
    assert 40 <= n_tokens / 31 / 60 <= 60


def test_the_plan_is_what_hydras_sweeper_will_run(monkeypatch):
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser

    task = [
        "+experiment=smoke",
        "node_budget=4,8",
        "model=tiny",
        "seed=range(0,3)",
        "limit=choice(1,2)",
        "model=smollm2",
    ]
    config = OmegaConf.create(
        {
            "hydra": {
                "sweeper": {"params": {"node_budget": "8,16", "dataset": "humaneval,mbpp"}},
                "overrides": {"task": task},
            }
        }
    )
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        planned = RUN["planned_cells"](config)
    texts = ["node_budget=8,16", "dataset=humaneval,mbpp", *task]
    (expected,) = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(texts), None)
    assert planned == expected
    assert len(planned) == 2 * 2 * 3 * 2
    assert planned[0] == [
        "node_budget=4",
        "dataset=humaneval",
        "+experiment=smoke",
        "model=smollm2",
        "seed=0",
        "limit=1",
    ]


# Launchers


def test_a_preset_for_each_launcher():
    assert LAUNCHERS == ["processes", "ray_cluster", "slurm", "slurm_local"]


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_preset_composes_with_an_experiment_whatever_is_installed(name):
    launcher = hydras_part("+experiment=embedded", f"hydra/launcher={name}").launcher
    assert launcher._target_.startswith("hydra_plugins.hydra_")


@pytest.mark.parametrize(
    ("name", "config"), [("processes", "joblib_launcher.config"), ("slurm", "submitit_launcher.config"),
                         ("slurm_local", "submitit_launcher.config"), ("ray_cluster", "ray_launcher._config")]
)  # fmt: skip
def test_a_preset_holds_only_what_its_launcher_takes(name, config):
    module = pytest.importorskip(f"hydra_plugins.hydra_{config}", reason=f"the launcher of {name} is not installed")
    preset = OmegaConf.to_container(hydras_part(f"hydra/launcher={name}").launcher, resolve=False)
    own = [c for c in vars(module).values() if dataclasses.is_dataclass(c)]
    (conf,) = [c for c in own if getattr(c, "_target_", None) == preset["_target_"]]
    assert set(preset) <= {f.name for f in dataclasses.fields(conf)}
    OmegaConf.merge(OmegaConf.structured(conf), preset)


def test_the_extras_are_named_in_the_presets():
    project = (REPO / "pyproject.toml").read_text()
    for name, extra in (("processes", "joblib"), ("slurm", "slurm"), ("ray_cluster", "ray")):
        assert f"goose-bench[{extra}]" in (CONF / "hydra" / "launcher" / f"{name}.yaml").read_text()
        assert f"\n{extra} = [" in project
