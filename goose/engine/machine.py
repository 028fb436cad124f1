"""The machine that a model runs on, as far as seconds depend on it."""

import os
import platform
from pathlib import Path

import torch


def cpu_model() -> str:
    """The processor's name as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def n_cores() -> int | None:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def synchronize(device: torch.device) -> None:
    """Waits for the device's queue; a CPU has none."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
