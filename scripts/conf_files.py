"""What conf/ says, for scripts: composed by Hydra, as run.py has it."""

from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import MissingConfigException
from omegaconf import DictConfig, OmegaConf

from benchmarks.errors import UserError
from benchmarks.models.load import ModelSpec, spec_of

CONF = Path(__file__).resolve().parents[1] / "conf"


def model_spec(name: str, **changes: Any) -> ModelSpec:
    """conf/model/NAME.yaml with `changes` to its keys."""
    return spec_of(OmegaConf.to_container(_composed("model", name), resolve=True) | changes)


def drafter_config(name: str) -> dict[str, Any]:
    """The drafter of conf/method/NAME.yaml, with the run's settings as conf/config.yaml has them."""
    return OmegaConf.to_container(_composed("method", name).drafter, resolve=True)


def _composed(group: str, name: str) -> DictConfig:
    names = sorted(file.stem for file in (CONF / group).glob("*.yaml"))
    if name not in names:
        raise UserError(f"there is no {group} {name!r}; conf/{group} has {', '.join(names)}")
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return compose("config", overrides=[f"{group}={name}"])[group]
    except MissingConfigException as error:
        raise UserError(f"conf/{group}/{name}.yaml: {error}") from error
