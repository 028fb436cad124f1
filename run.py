"""compose -> instantiate -> run -> print the table. No module of the packages sees Hydra.

python run.py model=llama3 method=goose
python run.py compare=[ar,pld,goose] limit=20
python run.py -m +experiment=embedded
"""

import sys

from benchmarks.run import terminal

if __name__ == "__main__":
    terminal.on_ctrl_c(terminal.stop_at_once)  # before the slow imports

import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from itertools import product
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from benchmarks.errors import UserError, first_line
from benchmarks.run.config_types import first_type_error
from benchmarks.run.settings import RunConfig

if TYPE_CHECKING:
    from benchmarks.record import grid

BASELINE = "ar"


statuses: list[int] = []  # one a run: a multirun goes on after a failed cell and exits with the worst


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    from benchmarks.record import grid  # imported late: a typing mistake should not wait for torch
    from benchmarks.run import cell

    job = HydraConfig.get()
    number = None if OmegaConf.is_missing(job.job, "num") else job.job.num  # of the cell in a multirun
    terminal.on_ctrl_c(terminal.stop_in_order)
    try:
        outcome = attempt(cfg, number)
    except KeyboardInterrupt:  # before the first measurement; a run that measures says how it is resumed
        print("interrupted", file=sys.stderr)
        outcome = grid.Outcome(grid.INTERRUPTED, "interrupted")
    except UserError as error:
        outcome = grid.Outcome(grid.FAILED, str(error))
    except Exception as error:  # in a grid the other cells go on, and this one is recorded as failed
        if cfg.get("grid") is None:
            raise
        traceback.print_exc()
        outcome = grid.Outcome(grid.FAILED, f"{type(error).__name__}: {first_line(error)}")
    if outcome.status == grid.FAILED:
        print(f"error: {outcome.reason}", file=sys.stderr)
    statuses.append(outcome.status)
    if number is None:
        return
    if cfg.get("grid") is not None:
        try:
            folder = grid.grid_folder(cfg.runs_dir, cfg.grid)
            grid.record(folder, number, outcome)
            print(grid.progress(folder, time.time()))
        except UserError as error:  # the summary names the cells without an outcome
            print(f"error: {error}", file=sys.stderr)
    if outcome.status == grid.INTERRUPTED:
        sys.exit(grid.INTERRUPTED)  # Ctrl-C means the whole multirun
    cell.release_memory()
    if cfg.get("grid") is None and outcome.status and not job.launcher._target_.endswith(".BasicLauncher"):
        raise RuntimeError(f"the run ended with status {outcome.status}")  # all that reaches Hydra in another process


def attempt(cfg: DictConfig, number: int | None) -> "grid.Outcome":
    """Starts, finishes or (in a grid) skips the run that `cfg` describes."""
    from benchmarks.record import grid
    from benchmarks.run import cell

    config = checked(cfg)
    if config.resume is not None:
        others = [o for o in HydraConfig.get().overrides.task if not o.startswith("resume=")]
        if others:
            raise UserError(f"resume= takes the run's own settings; leave out {', '.join(others)}")
        return grid.Outcome(cell.resume(config.resume, makers))
    methods = selected_methods(cfg, config)
    settings = {f.name: getattr(config, f.name) for f in fields(RunConfig)}
    for key in ("method", "compare", "resume"):
        del settings[key]
    if config.grid is None:
        return grid.Outcome(cell.start(settings, methods, makers))
    at = None if number is None else grid.cell_number(grid.grid_folder(config.runs_dir, config.grid), number)
    return cell.in_grid(settings, methods, makers, at)


class GridCallback(Callback):
    """Hydra calls it before and after a multirun, in the process that launches: a grid's plan and its summary."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        from benchmarks.files import disk_errors

        sweeps = Path(config.hydra.sweep.dir)
        if OmegaConf.select(config, "grid") is None:
            try:
                with disk_errors(sweeps):
                    sweeps.mkdir(parents=True, exist_ok=True)
            except UserError as error:
                print(f"error: {error} Set runs_dir=FOLDER.", file=sys.stderr)
                sys.exit(2)
        if (name := OmegaConf.select(config, "grid")) is not None:
            from benchmarks.record import grid

            try:
                folder = grid.grid_folder(config.runs_dir, name)
                grid.hold(folder)
                grid.begin(folder, planned_cells(config))
            except UserError as error:
                print(f"error: {error}", file=sys.stderr)
                sys.exit(2)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        if (name := OmegaConf.select(config, "grid")) is not None:
            from benchmarks.record import grid

            folder = grid.grid_folder(config.runs_dir, name)
            status, text = grid.summary(folder)
            print(text)
            statuses.append(status)
            grid.release()


def planned_cells(config: DictConfig) -> list[list[str]]:
    """The overrides of every job, in the order of Hydra's basic sweeper: what comes last for a key is what counts."""
    texts = [f"{key}={value}" for key, value in (config.hydra.sweeper.params or {}).items()]
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    axes = {}
    for override in parser.parse_overrides([*texts, *config.hydra.overrides.task]):
        key = override.get_key_element()
        is_sweep = override.is_sweep_override()
        values = override.sweep_string_iterator() if is_sweep else [override.get_value_element_as_str()]
        axes[key] = [f"{key}={value}" for value in values]
    return [list(cell) for cell in product(*axes.values())]


def checked(cfg: DictConfig) -> RunConfig:
    """The composed config as a RunConfig; UserError for keys that nothing reads and values of the wrong kind."""
    known = {f.name for f in fields(RunConfig)}
    unknown = sorted(set(cfg) - known)
    if unknown:
        raise UserError(f"unknown key(s) {', '.join(map(str, unknown))}; the keys are {', '.join(sorted(known))}")
    empty = [group for group in ("model", "dataset", "method") if not isinstance(cfg[group], DictConfig)]
    if empty:
        raise UserError(f"{empty[0]} must name a file of conf/{empty[0]}, got {cfg[empty[0]]!r}")
    try:
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(RunConfig), cfg))
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key}: {str(error).splitlines()[0]}") from error
    for key in ("node_budget", "repeats", "max_new_tokens"):
        value = getattr(config, key)
        if value is not None and value < 1:
            raise UserError(f"{key} must be at least 1, got {value}")
    if config.temperature != 0 and not (isfinite(config.temperature) and config.temperature >= 1e-4):
        raise UserError(f"temperature must be 0 (greedy), or finite and at least 1e-4, got {config.temperature}")
    if config.cost_curve == "":
        raise UserError("cost_curve= is empty; name a file, or null for this machine's own curve")
    if config.resume == "":
        raise UserError("resume= is empty; name the run folder to finish")
    return config


def selected_methods(cfg: DictConfig, config: RunConfig) -> dict[str, dict]:
    """Name -> drafter config, `ar` first. `method=` and its overrides serve their own name in `compare`."""
    chosen = OmegaConf.to_container(cfg.method, resolve=True)
    if set(chosen) != {"name", "drafter"} or not isinstance(chosen["name"], str):
        raise UserError(f"a method has a name (text) and a drafter; got the keys {', '.join(map(str, chosen))}")
    name, drafter = chosen["name"], chosen["drafter"]
    names = list(dict.fromkeys([BASELINE, *(config.compare or [name])]))
    if name not in names and cfg.method != hydra.compose("config").method:
        raise UserError(
            f"compare does not list {name}, so what is set for method would be ignored; list it or leave it"
        )
    methods = {n: drafter if n == name else _method_config(n, cfg) for n in names}
    if name == BASELINE and drafter != _method_config(BASELINE, cfg):
        raise UserError(f"the name {BASELINE} belongs to plain decoding; call the method something else")
    return methods


def _method_config(name: str, cfg: DictConfig) -> dict:
    """The method's file, its references to the run's other settings resolved."""
    try:
        composed = hydra.compose("config", overrides=[f"method={name}"])
    except HydraException as error:
        raise UserError(f"compare: there is no method {name!r}; see conf/method for the names") from error
    for key in ("model", "device", "dtype", "engine", "attention", "cost_curve"):
        composed[key] = cfg[key]
    return OmegaConf.to_container(composed.method, resolve=True)["drafter"]


def makers(methods: dict[str, dict]) -> dict[str, Callable]:
    """Name -> maker of a fresh drafter; each is made once here, so that a bad setting fails before any work."""
    made = {}
    for name, drafter in methods.items():
        if isinstance(drafter, dict) and (wrong := first_type_error(drafter)):
            raise UserError(f"method {name}: {wrong}")
        make = partial(hydra.utils.instantiate, drafter, _convert_="all")
        try:
            one = make()
        except (HydraException, TypeError, ValueError) as error:
            raise UserError(f"method {name}: {first_line(error.__cause__ or error)}") from error
        if not all(hasattr(one, part) for part in ("begin", "draft", "observe", "top_k", "overdraft")):
            raise UserError(f"method {name}: its drafter config makes a {type(one).__name__}; set drafter._target_")
        made[name] = make
    return made


def run() -> int:
    """The exit status of everything that the command line asks for."""
    with terminal.unbreakable_output():
        try:
            main()
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return terminal.INTERRUPTED
        finally:
            from benchmarks.record import grid

            grid.release()  # also after Ctrl-C, when no summary was reached
    return max(statuses, default=0)


if __name__ == "__main__":
    sys.modules["run"] = sys.modules["__main__"]  # conf/config.yaml names run.GridCallback: this module, not a copy
    try:
        status = run()
    finally:
        terminal.on_ctrl_c(signal.default_int_handler)
    sys.exit(status)
