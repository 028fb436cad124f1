"""The settings of a run: every key of conf/config.yaml, with its type and its default.

In a module of its own, not in run.py: a launcher that starts other processes takes what run.py defines along by value,
and a dataclass does not survive that.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class RunConfig:
    """Every key of conf/config.yaml. A key that is not here is an error, so none goes unread."""

    model: dict[str, Any]
    dataset: dict[str, Any]
    method: dict[str, Any]
    compare: list[str] = field(default_factory=list)
    limit: int | None = 5
    offset: int = 0
    max_new_tokens: int | None = 128
    node_budget: int = 60
    temperature: float = 0.0
    seed: int = 0
    repeats: int = 1
    prompt_style: str | None = None
    stop_rule: str = "generation_config"
    device: str = "auto"
    dtype: str = "auto"
    engine: str = "auto"
    attention: str = "grouped"
    cost_curve: str | None = None
    cache: bool = True
    data_dir: str | None = None
    runs_dir: str = "results/runs"
    grid: str | None = None
    resume: str | None = None
