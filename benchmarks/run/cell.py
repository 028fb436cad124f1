"""One cell from plain settings to a printed table: load, record, measure, judge, summarise.

The settings are the resolved config as a dictionary; this file does not know how it was composed.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.cost.curve import curve_of
from benchmarks.data.items import Item
from benchmarks.data.prompts import load_run_dataset, n_turns, render_turn, template_source
from benchmarks.environment import describe, fingerprint
from benchmarks.errors import UserError
from benchmarks.metrics.lossless import divergences, fp32_judge
from benchmarks.models.generation import generation_notice, stop_ids
from benchmarks.models.load import LoadedModel, load_model, spec_of
from benchmarks.record.grid import (
    INTERRUPTED,
    CellNumber,
    Outcome,
    config_hash,
    find,
    grid_folder,
    locked,
    named_files,
    outcome_of,
)
from benchmarks.record.history import as_recorded
from benchmarks.record.run_folder import RUN, RunFolder
from benchmarks.record.turn import BASELINE
from benchmarks.run.interleave import CellPrompt, Settings, asked_ids, longest_request, run_cell
from benchmarks.run.preparation import prepared
from benchmarks.show.cell_table import CellTable, cell_table, markdown, print_blocks
from goose.engine.lm import ATTENTIONS, ENGINES, TreeLM
from goose.engine.verify import Sampling

# A text of no dataset, so that warming up never sees a measured prompt.
WARM_UP_TEXT = "def area(width, height):\n    return width * height\n\ndef volume(width, height, depth):\n    return "

Makers = Callable[[dict[str, dict]], dict[str, Callable]]


def start(
    settings: dict[str, Any], methods: dict[str, dict], makers: Makers, cell_number: CellNumber | None = None
) -> int:
    """Runs a new cell in a new folder; returns the exit status."""
    if settings["model"].get("weights") == "random":
        raise UserError(
            "model.weights=random: what random weights accept means nothing, so a run needs pretrained ones; leave "
            "weights=pretrained, or time the shape with scripts/measure_cost.py or scripts/replay.py --time-on"
        )
    made = makers(methods)
    settings = resolved(settings)
    loaded, lm, prompts, header = _prepare(settings)
    try:
        ready = prepared(made, lm, loaded.tokenizer)
    except KeyboardInterrupt:
        return _interrupted("before its record was begun; start it again")
    own = {
        "config": header.pop("config"),
        "methods": methods,
        "config_hash": config_hash(settings, methods),
        "files": named_files([settings, methods]),
        "sized_by": ready.sized_by,
        "calibrated_on": ready.calibrated_on,
        "preparation": ready.record,
    }
    runs_dir = Path(settings["runs_dir"], settings["grid"] or "")
    folder = RunFolder.create(runs_dir, f"{loaded.name}-{header['dataset']['name']}", {**own, **header})
    return _run(folder, loaded, lm, prompts, ready.makers, cell_number)


def in_grid(
    settings: dict[str, Any], methods: dict[str, dict], makers: Makers, cell_number: CellNumber | None
) -> Outcome:
    """Starts the cell in its grid's folder, finishes it there, or leaves it as it is when it is complete."""
    settings = resolved(settings)
    folder, key = grid_folder(settings["runs_dir"], settings["grid"]), config_hash(settings, methods)
    with locked(folder, key):  # from the search to the end of the run, so that no two processes measure one cell
        return _in_locked_grid(folder, key, settings, methods, makers, cell_number)


def _in_locked_grid(
    folder: Path,
    key: str,
    settings: dict[str, Any],
    methods: dict[str, dict],
    makers: Makers,
    cell_number: CellNumber | None,
) -> Outcome:
    found = find(folder, key)
    # Opening an interrupted folder repairs it, and what is said of that belongs to resume().
    if found is not None and (found / RUN).exists() and RunFolder.open(found).is_complete:
        print(f"complete, not run again: {found}")
        return outcome_of(found, skipped=True)
    status = start(settings, methods, makers, cell_number) if found is None else resume(str(found), makers, cell_number)
    run = find(folder, key)
    if status == INTERRUPTED:
        return Outcome(INTERRUPTED, "interrupted", run and run.name)
    return outcome_of(run, skipped=False)


def resume(path: str, makers: Makers, cell_number: CellNumber | None = None) -> int:
    """Finishes a killed run with its own settings: finished lines stay, nothing is measured twice."""
    folder = RunFolder.open(path)
    if folder.is_complete:
        raise UserError(f"{path} is complete; there is nothing to resume")
    missing = [key for key in ("config", "methods", "environment") if key not in folder.header]
    if missing:
        raise UserError(f"{path}: cell.json lacks {', '.join(missing)}; it was not written by this harness, start anew")
    methods = folder.header["methods"]
    warm = [name for name, drafter in methods.items() if _is_warm(drafter)]
    if warm:
        raise UserError(f"{', '.join(warm)}: the tables of a killed warm run are lost with it; start a new run")
    made = makers(methods)
    named = named_files([folder.header["config"], methods])
    changed = [file for file, sha256 in folder.header.get("files", {}).items() if named.get(file) != sha256]
    if changed:
        raise UserError(f"{', '.join(changed)}: not what it was when {path} was begun; start anew")
    loaded, lm, prompts, header = _prepare(folder.header["config"])
    for key, now in (("model", as_recorded(header["model"], folder.header["model"])), ("dataset", header["dataset"])):
        if now != folder.header[key]:
            raise UserError(f"{path} was made with another {key}: {folder.header[key]}, now {now}; start anew")
    if header["prompts_sha256"] != folder.header["prompts_sha256"]:
        raise UserError(f"the prompts of {path} are rendered differently now; start anew")
    then, now = fingerprint(folder.header["environment"]), fingerprint(header["environment"])
    differing = {key: (then[key], now[key]) for key in then if then[key] != now[key]}
    if differing:
        raise UserError(f"{path} was measured in another environment {differing}; times would not compare; start anew")
    try:
        ready = prepared(made, lm, loaded.tokenizer)
    except KeyboardInterrupt:
        return _interrupted(f"finish it with resume={path}")
    if (before := folder.header.get("sized_by", {})) != ready.sized_by:
        raise UserError(f"{path}: its trees were sized by {before}, now {ready.sized_by}; start anew")
    return _run(folder, loaded, lm, prompts, ready.makers, cell_number)


def resolved(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with the dataset's own prompt style and limit where the run sets none, as they are recorded."""
    own = {"prompt_style", "max_new_tokens"}
    if absent := own - set(settings["dataset"]):
        raise UserError(f"dataset lacks the key(s) {', '.join(sorted(absent))}; see conf/dataset")
    return settings | {key: settings[key] or settings["dataset"][key] for key in own}


def _prepare(settings: dict[str, Any]) -> tuple[LoadedModel, TreeLM, list[CellPrompt], dict]:
    """The model, its verifier, the prompts, and the record's header with every setting resolved."""
    attention = settings["attention"]
    if attention not in ATTENTIONS:
        raise UserError(f"attention={attention} cannot apply a tree mask; choose one of {', '.join(ATTENTIONS)}")
    engine = settings["engine"]
    if engine not in ("auto", *ENGINES):
        raise UserError(f"engine={engine} is unknown; choose auto, {', '.join(ENGINES)}")
    spec = spec_of(settings["model"])
    dataset = load_run_dataset(settings)
    transformers.utils.logging.disable_progress_bar()  # a bar a checkpoint shard would bury our own
    loaded = load_model(spec, device=settings["device"], dtype=settings["dtype"], cache=settings["cache"])
    try:
        lm = TreeLM(loaded.model, engine=engine, attention=attention)
    except ValueError as error:
        raise UserError(str(error)) from error
    prompts = [_cell_prompt(item, loaded.tokenizer, settings) for item in dataset.items]
    header = {
        "config": settings,
        "model": loaded.identity(),
        "engine": lm.engine,
        "stop_ids": sorted(stop_ids(loaded.model, loaded.tokenizer, settings["stop_rule"])),
        "generation_notice": generation_notice(loaded.model),
        "chat_template": template_source(loaded.tokenizer, settings["prompt_style"]),
        "dataset": {key: getattr(dataset, key) for key in ("name", "source", "version", "sha256")},
        "prompts_sha256": [prompt.text_sha256 for prompt in prompts],
        "environment": describe(loaded.device),
    }
    return loaded, lm, prompts, header


def _cell_prompt(item: Item, tokenizer: Any, settings: dict[str, Any]) -> CellPrompt:
    """A later turn has the answers before it in its text, so it is rendered when they are known."""
    follow_up, n = partial(render_turn, item, tokenizer, settings), n_turns(item, settings)
    first = follow_up([])
    return CellPrompt(item.id, first.ids, first.text_sha256, item.group, n, follow_up if n > 1 else None)


def _run(
    folder: RunFolder,
    loaded: LoadedModel,
    lm: TreeLM,
    prompts: list[CellPrompt],
    made: dict[str, Callable],
    cell_number: CellNumber | None,
) -> int:
    console = Console()
    config = folder.header["config"]
    curve = curve_of(config)  # fail now on an unreadable curve, not after hours of measuring
    if cell_number is not None:
        console.print(f"cell {cell_number.number + 1} of {cell_number.n_cells}", highlight=False)
    console.print(f"record: {folder.path}", markup=False, highlight=False, soft_wrap=True)
    sampling = Sampling(config["temperature"], config["seed"])
    settings = Settings(
        config["node_budget"],
        config["max_new_tokens"],
        frozenset(folder.header["stop_ids"]),
        sampling,
        config["repeats"],
    )
    for notice in filter(None, [folder.header["generation_notice"], *folder.notices]):
        console.print(f"notice: {notice}", markup=False)
    n_jobs = sum(prompt.n_turns for prompt in prompts) * len(made) * settings.repeats
    warm_up_ids = loaded.tokenizer(WARM_UP_TEXT)["input_ids"]
    n_nodes = settings.node_budget + max(make().overdraft for make in made.values())
    interrupted = False
    try:
        lm.prepare(longest_request(prompts, settings.max_new_tokens) + n_nodes, n_nodes)
        with _progress(console, len(folder.done_keys()), n_jobs, cell_number) as on_turn:
            run_cell(folder, lm, prompts, made, settings, warm_up_ids, on_turn)
    except KeyboardInterrupt:
        interrupted = True
    if interrupted:
        folder.close()
        return _interrupted(f"finish it with resume={folder.path}")
    lines = folder.lines()
    found = _divergences(loaded, lm, lines, prompts, sampling, config)
    table = cell_table(folder.header, lines, found, curve)
    folder.finish({"divergences": found, "problems": table.problems})
    return report(folder, table, console)


def _interrupted(what_to_do: str) -> int:
    Console().print(f"interrupted; {what_to_do}", markup=False, soft_wrap=True)
    return INTERRUPTED


@contextmanager
def _progress(
    console: Console, n_done: int, n_jobs: int, cell_number: CellNumber | None
) -> Iterator[Callable[[dict], None]]:
    """Shows how far the cell is, and the grid; yields what is to be called after every line."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Over hours, not rich's last seconds: one turn may take minutes.
    with Progress(*columns, TimeRemainingColumn(), console=console, speed_estimate_period=24 * 3600) as progress:
        task = progress.add_task("measuring", total=n_jobs, completed=n_done)
        grid = None
        if cell_number is not None:  # cells before this one are done; this one counts by its share
            grid = progress.add_task("cells", total=cell_number.n_cells, completed=cell_number.number + n_done / n_jobs)

        def on_turn(line: dict) -> None:
            turn = f"turn {line['turn'] + 1} " if line["turn"] else ""
            progress.update(task, advance=1, description=f"{line['prompt_id']} {turn}{line['method']}")
            if grid is not None:
                progress.update(grid, advance=1 / n_jobs)

        yield on_turn


def report(folder: RunFolder, table: CellTable, console: Console) -> int:
    """Prints the cell's table and keeps it beside the record; 1 when a method is broken or a prompt failed, else 0."""
    try:
        (folder.path / "table.md").write_text(markdown(table), encoding="utf-8")
    except OSError as error:  # the record is complete without it
        console.print(f"notice: table.md could not be written ({error.strerror})", markup=False)
    print_blocks(table, console)
    whole = not console.is_terminal
    console.print(table.conditions, markup=False, highlight=False, soft_wrap=whole)
    for text in table.notices:
        console.print(f"notice: {text}", markup=False, soft_wrap=whole)
    for text in table.problems:
        console.print(f"problem: {text}", markup=False, style="bold red", soft_wrap=whole)
    return 1 if table.problems else 0


def release_memory() -> None:
    """Between two cells of one process: the model of the first must be gone before the second is loaded."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _divergences(loaded, lm, lines, prompts, sampling: Sampling, config: dict) -> list[dict]:
    """Differing outputs; outside fp32 each is judged by an fp32 copy of the model, loaded only when one is needed."""
    ids = asked_ids(prompts, lines)
    found = divergences(lines, BASELINE, ids, judge=None)
    if not found or loaded.dtype == "float32":
        return found
    spec = spec_of(config["model"])
    try:
        exact = load_model(spec, device=loaded.device, dtype="float32", cache=config["cache"]).model
    except UserError:  # no room beside the half-precision model; a few prefixes can be judged on the CPU
        on_cpu = replace(spec, device_map=None)
        exact = load_model(on_cpu, device="cpu", dtype="float32", cache=config["cache"]).model
    return divergences(lines, BASELINE, ids, fp32_judge(lm, TreeLM(exact, attention=config["attention"]), sampling))


def _is_warm(drafter_config: Any) -> bool:
    if not isinstance(drafter_config, dict):
        return False
    return drafter_config.get("state") == "warm" or any(_is_warm(value) for value in drafter_config.values())
