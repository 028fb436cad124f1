"""Describes where a measurement was made, and which parts of that must agree before two runs may be compared.

It names hardware and versions only: no host name, no user, no paths. It does not know what was measured.
"""

import importlib.metadata
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import torch

from goose.engine.machine import cpu_model, n_cores

# What changes a time. Left out on purpose: `time`; `platform`, whose kernel patch level differs between equal nodes;
# the git commit and the project version, because comparing two versions of the code is a use, not a mistake.
FINGERPRINT_KEYS = (
    "device", "cpu", "cores", "threads", "driver", "cuda", "python", "torch", "transformers", "numpy",
)  # fmt: skip


def describe(device: str | torch.device | None = None) -> dict:
    """The measuring environment; `device` is the one measured on, by default CUDA where there is one."""
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    on_cuda = device.type == "cuda"
    commit, dirty = _git_state()
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(device) if on_cuda else device.type,
        "driver": _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") if on_cuda else None,
        "cuda": torch.version.cuda or torch.version.hip,  # what torch was built for; None in a CPU build
        "cpu": cpu_model(),
        "cores": n_cores(),
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": _version("transformers"),
        "numpy": _version("numpy"),
        "project": _version("goose-bench"),
        "git_commit": commit,
        "git_dirty": dirty,
    }


def fingerprint(env: dict) -> dict:
    """The part of `describe()` that has to be equal in two runs whose times are compared."""
    return {key: env.get(key) for key in FINGERPRINT_KEYS}


def _git_state() -> tuple[str | None, bool | None]:
    """Commit and dirty flag of the checkout this file is tracked in, or (None, None)."""
    here = Path(__file__).resolve()
    # Installed into an environment that lies inside somebody else's checkout, we must not report that one.
    if _output("git", "ls-files", "--error-unmatch", here.name, cwd=here.parent) is None:
        return None, None
    commit = _output("git", "rev-parse", "HEAD", cwd=here.parent)
    status = _output("git", "status", "--porcelain", cwd=here.parent)
    if not commit or status is None:
        return None, None
    return commit, status != ""


def _output(*command: str, cwd: Path | None = None) -> str | None:
    """First line of a command's output; "" where it printed nothing, None where it failed or is not installed."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().partition("\n")[0]


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
