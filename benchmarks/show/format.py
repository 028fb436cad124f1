"""How numbers, shares and the conditions of a measurement are written, alike in every table."""

from collections.abc import Mapping
from typing import Any

NOT_AVAILABLE = "n/a"
FEW_PROMPTS = 20  # below it a 95 % interval covers 92 to 93 % (tests/benchmarks/metrics/test_intervals.py)


def number(value: float | None, digits: int, unit: str = "", sign: bool = False) -> str:
    return NOT_AVAILABLE if value is None else f"{value:{'+' if sign else ''}.{digits}f}{unit}"


def percent(value: float | None, digits: int = 0, unit: str = "%", sign: bool = False) -> str:
    """A share of 1 as percent."""
    return number(None if value is None else 100 * value, digits, unit, sign)


def without_step(n_prompts: int) -> str:
    """What follows a number of prompts when so many of them ended without a step (metrics.n_stepping)."""
    return f" ({n_prompts} ended with the first token: no step)" if n_prompts else ""


def model_text(model: Mapping[str, Any], **engine: str) -> str:
    """NAME (weights, dtype), with what else decides the numbers: engine="graph", attention="grouped"."""
    facts = [model["weights"], model["dtype"], *(f"{key} {value}" for key, value in engine.items())]
    return f"{model['name']} ({', '.join(facts)})"


def machine_text(environment: Mapping[str, Any]) -> str:
    """Device, CPU, threads and versions, of benchmarks.environment.describe."""
    env = environment
    return (
        f"{env['device']} ({env['cpu']}, {env['threads']} threads), torch {env['torch']}, "
        f"transformers {env['transformers']}"
    )


def header_text(header: Mapping[str, Any]) -> str:
    """Model, engine, attention and machine of a run."""
    model = model_text(header["model"], engine=header["engine"], attention=header["config"]["attention"])
    return f"{model} on {machine_text(header['environment'])}"


def prompt_text(config: Mapping[str, Any]) -> str:
    """How a run asks: prompt style and length limit."""
    return f"{config['prompt_style']} prompts, at most {config['max_new_tokens']} new tokens"


def settings_text(config: Mapping[str, Any]) -> str:
    """Sampling, stop rule and repeats of a run."""
    sampling = f"temperature {config['temperature']}, seed {config['seed']}" if config["temperature"] else "greedy"
    return f"{sampling}, stop ids by {config['stop_rule']}, {config['repeats']} repeat(s)"
