"""The inside of the sandbox, in a process of its own that runner.py starts: leaves the host, then keeps watch.

Three processes. The keeper reads one request (JSON) from stdin, leaves the host's namespaces and file system, watches
the clock and the output of the tested process, and prints one outcome (JSON). The holder is process 1 of a process
namespace and does nothing: when the keeper ends it, the kernel ends whatever the tested process left behind. The tested
process has no privilege, no network and no file system but Python's own, read-only, and a small empty folder.

It knows nothing of datasets. It fails closed: where one step of the confinement fails, nothing is run.
"""

import ctypes
import json
import os
import selectors
import signal
import struct
import sys
import time

from benchmarks.quality.sandbox.tested import run_tested

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 1 << 5, 1 << 12, 1 << 14, 1 << 18
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, ATTR_RDONLY, ATTR_NOSUID = 442, -100, 0x8000, 1, 2
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 1 << 17, 1 << 27, 1 << 28, 1 << 29, 1 << 30
PR_SET_PDEATHSIG = 1
TICK_S = 0.5

NEW_ROOT = "/proc"  # any folder does that never holds a Python; so nothing is made, or left, on the host's disks
FOLDER = "/sandbox"  # the tested process's own, inside the new root

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    request = json.load(sys.stdin.buffer)
    try:
        leave_namespaces()
        build_root(request["limits"])
    except OSError as error:
        reply = {"refused": error.strerror}
    else:
        reply = keep(request)
    print(json.dumps(reply))


def call(function: str, *arguments) -> None:
    """A C function that answers -1 when it fails; raises OSError with its name."""
    if getattr(libc, function)(*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)) == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{function}: {os.strerror(code)}")


# --- leaving the host ------------------------------------------------------------------------------------------------


def leave_namespaces() -> None:
    """Own network (none), mounts, processes and IPC from here on; an ordinary user needs a user namespace for that."""
    uid, gid = os.geteuid(), os.getegid()
    new = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    call("unshare", new if uid == 0 else new | CLONE_NEWUSER)
    if uid != 0:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{uid} {uid} 1")
        write("/proc/self/gid_map", f"{gid} {gid} 1")
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def write(file: str, text: str) -> None:
    try:
        with open(file, "w") as handle:
            handle.write(text)
    except OSError as error:
        raise OSError(error.errno, f"{file}: {error.strerror}") from error


def build_root(limits: dict) -> None:
    """A root with what Python needs, read-only, and an empty folder in memory: all that is left of the file system."""
    os.umask(0o022)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", NEW_ROOT, "tmpfs", MS_NOSUID, "size=1m,mode=755")
    read_only = ctypes.create_string_buffer(struct.pack("4Q", ATTR_RDONLY | ATTR_NOSUID, 0, 0, 0))
    for path in readable():
        target = NEW_ROOT + path
        if os.path.isdir(path):
            os.makedirs(target)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            write(target, "")
        mount(path, target, None, MS_BIND | MS_REC)
        call("syscall", SYS_MOUNT_SETATTR, AT_FDCWD, target.encode(), AT_RECURSIVE, read_only, 32)
    os.mkdir(NEW_ROOT + FOLDER)
    own = f"size={limits['folder_bytes']},nr_inodes={limits['files']},mode=1777"
    mount("tmpfs", NEW_ROOT + FOLDER, "tmpfs", MS_NOSUID | MS_NODEV, own)
    mount("none", NEW_ROOT, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID)
    os.chroot(NEW_ROOT)
    os.chdir(FOLDER)
    os.environ["HOME"] = os.environ["TMPDIR"] = FOLDER


def readable() -> list[str]:
    """What the tested process may read of the host, none inside another: Python, its packages, system libraries."""
    python = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    system = {"/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"}
    devices = {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"}
    paths = sorted(path for path in python | system | devices if os.path.exists(path))
    return [path for path in paths if not any(path.startswith(other + "/") for other in paths)]


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    try:
        call("mount", source.encode(), target.encode(), kind and kind.encode(), flags, options.encode())
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} ({source} on {target})") from error


# --- keeping watch ---------------------------------------------------------------------------------------------------


def keep(request: dict) -> dict:
    """Runs the program in a child; returns {"label", "detail"}, or {"refused"} when it could not be confined."""
    limits = request["limits"]
    # The order matters: the first child is process 1 of the new namespace. It must not hold the pipes.
    holder = fork_into(hold_namespace)
    (output, output_end), (report, report_end) = os.pipe(), os.pipe()
    stranger = 60_000 + os.getpid() % 5_000  # an id that owns nothing in there, another one for each keeper at work
    tested = fork_into(lambda: run_tested(request, output_end, report_end, stranger))
    os.close(output_end)
    os.close(report_end)
    said = {output: b"", report: b""}
    stopped = watch(tested, said, limits)
    os.kill(tested, signal.SIGKILL)  # without effect when it has ended
    _, status, usage = os.wait4(tested, 0)
    os.kill(holder, signal.SIGKILL)  # and with it everything else in the namespace, before the next line returns
    os.waitpid(holder, 0)
    for pipe in said:
        while chunk := os.read(pipe, 1 << 16):
            said[pipe] += chunk
    if len(said[output]) > limits["output_bytes"]:
        stopped = stopped or "output limit"
    return outcome(stopped, said[report], status, usage.ru_utime + usage.ru_stime, limits)


def fork_into(work) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    finally:
        os._exit(1)


def hold_namespace() -> None:
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans come to process 1; the kernel reaps them
    while True:
        signal.pause()


def watch(tested: int, said: dict[int, bytes], limits: dict) -> str | None:
    """Reads the pipes into `said` until the tested process ends (None) or has to be stopped (the label)."""
    ended = os.pidfd_open(tested)
    left_s = limits["wall_s"]
    with selectors.DefaultSelector() as selector:
        for descriptor in (ended, *said):
            selector.register(descriptor, selectors.EVENT_READ)
        while left_s > 0:
            started = time.monotonic()
            ready = [key.fd for key, _ in selector.select(min(left_s, TICK_S))]
            left_s -= min(time.monotonic() - started, 2 * TICK_S)  # a longer one, and both processes were suspended
            for pipe in said.keys() & set(ready):
                chunk = os.read(pipe, 1 << 16)
                said[pipe] += chunk
                if not chunk:
                    selector.unregister(pipe)
            if max(map(len, said.values())) > limits["output_bytes"]:
                return "output limit"
            if ended in ready:
                return None
    return "timed out"


def outcome(stopped: str | None, report: bytes, status: int, cpu_s: float, limits: dict) -> dict:
    """What happened: why it was stopped, else what it reported after its nonce, else how it ended without a report."""
    lines = report.decode(errors="replace").rstrip("\n").split("\n")
    first, last = lines[0], lines[-1]
    if not first.startswith("ready "):
        return {"refused": first.removeprefix("refused ") or f"the tested process never began (status {status})"}
    label, detail = "exited early", ""
    reported = first.removeprefix("ready ") + " "
    if stopped:
        label = stopped
    elif last.startswith(reported):
        label, _, detail = last.removeprefix(reported).partition("\t")
    elif os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        # The kernel's end of a process that has used up its processor time is a SIGKILL, as the out-of-memory killer's.
        label = "timed out" if name == "SIGKILL" and cpu_s > limits["cpu_s"] - 0.5 else f"killed by {name}"
    return {"label": label, "detail": detail}
