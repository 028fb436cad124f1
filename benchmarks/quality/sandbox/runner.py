"""Runs a program somebody else wrote, a model say, together with its tests, where neither can reach anything.

It knows processes and limits, not datasets. The confinement itself is in keeper.py, which runs as a process of
its own. What holds, on Linux with namespaces (5.12 or newer), and where one part fails nothing is run:

    time        seconds of processor time and of the clock; memory of a process; number of processes and threads
    files       one empty folder in memory, of limited size and number of files; everything else that can be seen is
                Python, its packages and the system's libraries, read-only. No home, no dataset, no repository, no /proc
    network     a network namespace without an interface; no socket of the host is in the file system either
    others      a process namespace: no other process can be seen or signalled, and with it ends what was started in it
    environment only what ENVIRONMENT says and the folder, stdin is empty, output is counted and thrown away
    success     counts only with a nonce that the keeper's child made, written after the last test by the process that
                ran them, with the builtins as they were

What does not hold: code and tests share one interpreter, so an answer written to deceive its own tests can; and the
kernel is the host's. The number of processes does not count against other programs of the user from Linux 5.14 on;
before, they may leave the tested code no process to start.
"""

import contextlib
import json
import math
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.errors import UserError

ISOLATION = "namespaces of mounts, processes, network and IPC; no privileges; limits on resources"
PASSED = "passed"
_ROOT = str(Path(__file__).resolve().parents[3])
_KEEPER = f"import sys; sys.path[:0] = [{_ROOT!r}]; from benchmarks.quality.sandbox import keeper; keeper.main()"
_GRACE_S = 20.0  # for the keeper to start and to tidy up, before it is taken for dead
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # so that an answer which depends on the order of a set fails or passes every time
    "PYTHONIOENCODING": "utf-8:replace",
    "OMP_NUM_THREADS": "1",  # a numerical library's thread pool would count against the processes
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Program:
    """Python source: a solution, and tests that are run after it in the same module."""

    solution: str
    tests: str
    test_class: str | None = None  # a unittest class that the tests define, to be run; None: executing them is the test


@dataclass(frozen=True)
class Limits:
    cpu_s: int = 10
    wall_s: float = 30.0  # longer than cpu_s, so that a busy machine fails nothing that would pass on an idle one
    memory_bytes: int = 1 << 30  # of each process
    processes: int = 8  # threads count
    files: int = 256
    folder_bytes: int = 32 << 20  # all files together
    output_bytes: int = 1 << 20

    def __str__(self) -> str:
        return (
            f"at most {self.cpu_s} s, {self.memory_bytes >> 20} MiB, {self.processes} processes, {self.files} files, "
            f"{self.folder_bytes >> 20} MiB in files, {self.output_bytes >> 10} KiB of output"
        )


@dataclass(frozen=True)
class Outcome:
    """label: "passed", or why not: "timed out", "memory", "too many processes", "file limit", "output limit",
    "exited early", "changed builtins", "does not compile", "assertion failed", "raised NAME", "killed by SIGNAL"."""

    label: str
    detail: str = ""

    @property
    def passed(self) -> bool:
        return self.label == PASSED


def run(program: Program, limits: Limits = Limits()) -> Outcome:
    """Raises UserError where this machine does not permit the confinement; then nothing was run."""
    if sys.platform != "linux":
        raise UserError(f"generated code is run in Linux namespaces only, and this is {sys.platform}. {_ADVICE}")
    request = json.dumps({"program": asdict(program), "limits": asdict(limits)}).encode()
    status, answer, complaint = _keeper_answer(request, limits.wall_s + _GRACE_S)
    try:
        reply = json.loads(answer)
    except ValueError as error:
        said = complaint.strip().rpartition("\n")[2] or "no message"
        raise UserError(f"the sandbox did not answer (status {status}: {said}). {_ADVICE}") from error
    if "refused" in reply:
        raise UserError(f"this machine does not permit the sandbox ({reply['refused']}), so nothing was run. {_ADVICE}")
    return Outcome(**reply)


def _keeper_answer(request: bytes, patience_s: float) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of one keeper, which is ended when it outlives its own clock."""
    keeper = subprocess.Popen(
        [sys.executable, "-s", "-P", "-B", "-c", _KEEPER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        cwd="/",
        start_new_session=True,  # Ctrl-C goes to the harness, whose end is the keeper's end
    )
    with keeper:
        try:
            for tick in range(
                math.ceil(patience_s)
            ):  # in ticks: one deadline would pass while the harness is suspended
                with contextlib.suppress(subprocess.TimeoutExpired):
                    said = keeper.communicate(None if tick else request, timeout=1.0)
                    return keeper.returncode, *(text.decode(errors="replace") for text in said)
        finally:
            keeper.kill()  # without effect when it has ended
    return keeper.returncode, "", f"no answer within {patience_s:g} s"


_ADVICE = (
    "Scoring needs the run folder, the data and the tokenizer only: it can be done on any Linux machine where "
    "`unshare -rmpn --fork true` works (dataset.path=FILE, model.path=FOLDER). In a container add "
    "--cap-add=SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined; on Ubuntu 24.04 or "
    "newer run as root, or set kernel.apparmor_restrict_unprivileged_userns=0."
)
