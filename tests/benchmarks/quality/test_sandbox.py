"""Whatever tested code does is a labelled failure, and neither the harness nor its folder notices.

Each attack starts with a check that it is confined, so that a broken sandbox fails these tests and not the machine.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.errors import UserError
from benchmarks.quality.sandbox import runner
from benchmarks.quality.sandbox.runner import Limits, Outcome, Program, run
from confined import needs_sandbox
from paths import REPO

ROOT = REPO
QUICK = Limits(cpu_s=1, wall_s=2.0)
ROOMY = Limits(cpu_s=5, wall_s=20.0)  # for what ends by itself
RIGHT = "def f(x):\n    return x + 1\n"
TESTS = "assert f(1) == 2\nassert f(-1) == 0\n"
CONFINED = "import os, sys\nif os.getpid() != 2: raise SystemExit('not confined, so nothing was tried')\n"
UNIT = "import unittest\nclass T(unittest.TestCase):\n    def test_f(self):\n        self.assertEqual(f(1), 2)\n"


def attack(code: str, limits: Limits = ROOMY, tests: str = TESTS) -> Outcome:
    outcome = run(Program(CONFINED + code, tests), limits)
    assert "not confined" not in outcome.detail
    return outcome


# What passes, and what fails like any program


@needs_sandbox
@pytest.mark.parametrize(
    ("solution", "label"),
    [
        (RIGHT, "passed"),
        ("def f(x):\r\n    return x + 1\r\n", "passed"),
        ("def f(x):\n    return x\n", "assertion failed"),
        ("def g(x):\n    return x\n", "raised NameError"),
        ("def f(x):\n    return x + '1'\n", "raised TypeError"),
        ("def f(x):\n    return f(x)\n", "raised RecursionError"),
        ("def f(x):\nreturn x + 1\n", "does not compile"),
        ("def f(x):\n    return int(input()) + x\n", "raised EOFError"),
        (
            "import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: 'int'\ndef f(x):\n    return A(x).x + 1\n",
            "passed",
        ),
        ("if __name__ == '__main__':\n    raise ValueError\n" + RIGHT, "passed"),
        ("", "raised NameError"),
    ],
)
def test_programs_pass_or_fail_by_their_tests(solution, label):
    assert run(Program(solution, TESTS), ROOMY).label == label


@needs_sandbox
@pytest.mark.parametrize(
    ("solution", "tests", "label"),
    [
        (RIGHT, UNIT, "passed"),
        ("def f(x):\n    return 3\n", UNIT, "assertion failed"),
        ("def f(x):\n    raise KeyError\n", UNIT, "raised KeyError"),
        ("def f(x):\n    raise SystemExit\n", UNIT, "exited early"),
        ("import unittest\ndef f(x):\n    raise unittest.SkipTest\n", UNIT, "assertion failed"),
        (RIGHT, "import unittest\nclass T(unittest.TestCase):\n    pass\n", "assertion failed"),
        (RIGHT, UNIT + "        with self.subTest():\n            self.assertEqual(f(2), 2)\n", "assertion failed"),
        ("import unittest\nunittest.TestCase.assertEqual = lambda *_: None\ndef f(x):\n    return 3\n", UNIT,
         "changed builtins"),
    ],
)  # fmt: skip
def test_unittest_classes(solution, tests, label):
    assert run(Program(solution, tests, "T"), ROOMY).label == label


# Attacks


@needs_sandbox
@pytest.mark.parametrize(
    ("code", "label"),
    [
        ("while True: pass", "timed out"),
        ("import time; time.sleep(60)", "timed out"),
        ("import signal\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\nwhile True: pass",
         "timed out"),
        ("while True:\n try: os.fork()\n except OSError: pass", "timed out"),
        ("import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(60)", "timed out"),
    ],
)  # fmt: skip
def test_what_does_not_end_is_ended(code, label):
    assert attack(code, QUICK).label == label


@needs_sandbox
@pytest.mark.parametrize(
    ("code", "label"),
    [
        ("os._exit(0)", "exited early"),
        ("def f(x): os._exit(0)", "exited early"),
        ("sys.exit(0)", "exited early"),
        ("def f(x): sys.exit()", "exited early"),
        ("quit()", "exited early"),
        ("os.execv(sys.executable, [sys.executable, '-c', ''])", "exited early"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("os.kill(0, 9)", "killed by SIGKILL"),  # its own process group only
        ("os.abort()", "killed by SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", "killed by SIGSEGV"),
        ("import signal; signal.setitimer(signal.ITIMER_REAL, 0.01)\nwhile True: pass", "killed by SIGALRM"),
    ],
)
def test_an_early_end_is_no_success(code, label):
    if "execv" in code:  # the executable may lie where the tested process sees only its target
        assert not attack(code).passed
    else:
        assert attack(code).label == label


@needs_sandbox
@pytest.mark.parametrize(
    ("code", "label"),
    [
        ("while True: os.fork()", "too many processes"),
        ("import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(9,)).start()",
         "too many processes"),
        ("x = bytearray(1 << 40)", "memory"),
        ("x = []\nwhile True: x.append(bytes(1 << 20))", "memory"),
        ("print('x' * 50_000_000)", "output limit"),
        ("while True: print('x', file=sys.stderr)", "output limit"),
        ("os.write(3, b'x' * 50_000_000)", "output limit"),  # the report is output, too
        ("with open('big', 'wb') as big:\n    while True: big.write(bytes(1 << 20))", "file limit"),
        ("for i in range(10_000): open(str(i), 'w').close()", "file limit"),
        ("many = [open('one', 'w') for i in range(10_000)]", "file limit"),
    ],
)  # fmt: skip
def test_limits_on_processes_memory_output_and_files(code, label):
    assert attack(code).label == label


@needs_sandbox
@pytest.mark.parametrize(
    "code",
    [
        "print('passed')",
        "os.write(3, b'passed\\n')",
        "os.write(3, b'ready 00\\n00 passed\\n'); os._exit(0)",
        "if os.fork(): os._exit(0)\ndef f(x): return x + 1",  # the child passes, but it is not the one that counts
        "os._exit = lambda code: None\nos.write = lambda *_: 0\ndef f(x): return 0",
        "class Same:\n    def __eq__(self, other): os._exit(0)\ndef f(x): return Same()",
        "import benchmarks.quality.sandbox.tested",
        "import __main__\n__main__.tested_outcome = __main__.label = lambda *_: 'passed'\ndef f(x): return 0",
        "import atexit\natexit.register(os.write, 3, b'passed')\ndef f(x): return 0",
    ],
)
def test_success_cannot_be_claimed(code):
    outcome = attack(code)
    assert outcome.label in ("exited early", "assertion failed", "raised NameError", "raised ModuleNotFoundError")


@needs_sandbox
@pytest.mark.parametrize(
    "code",
    [
        "import builtins\nbuiltins.abs = lambda x: 0\ndef f(x): return 5",
        "import builtins\nbuiltins.exec = lambda *_: None\ndef f(x): return 5",
        "import builtins\ndel builtins.len\ndef f(x): return x + 1",
        "import builtins\ndef f(x):\n    builtins.abs = lambda x: 0\n    return 5",
    ],
)
def test_replaced_builtins_are_noticed(code):
    assert attack(code, tests="y = f(1)\nassert abs(y - 2) < 1e-6\n").label == "changed builtins"
    own = "def abs(x): return x if x > 0 else -x\n" + RIGHT  # a name of its own is its own business
    assert run(Program(own, TESTS), ROOMY).passed


@needs_sandbox
def test_no_network():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        outcome = attack(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=1)")
        assert outcome.label in ("raised OSError", "raised ConnectionRefusedError")
        with pytest.raises(TimeoutError):
            server.accept()
    outside = attack("import socket\nsocket.create_connection(('1.1.1.1', 53), timeout=1)")
    assert outside.label == "raised OSError"
    names = attack("import socket\nsocket.getaddrinfo('example.org', 80)")
    assert names.label == "raised gaierror"


@needs_sandbox
def test_files_of_the_host_are_neither_seen_nor_changed(tmp_path, monkeypatch):
    (tmp_path / "mine.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", "token")
    for path in (tmp_path / "mine.txt", ROOT / "run.py", Path.home() / ".bashrc", Path("/etc/passwd"), Path("/proc/1")):
        assert attack(f"if os.path.exists({str(path)!r}): sys.exit()\n{RIGHT}").passed, path
    prefix = sys.prefix
    for code in (f"open({prefix + '/new'!r}, 'w')", "open('/new', 'w')", f"os.rename({prefix!r}, '/sandbox/x')"):
        assert attack(code).label == "raised OSError"
    assert attack(f"import shutil\nshutil.rmtree({prefix!r}, ignore_errors=True)\n{RIGHT}").passed
    assert attack("import shutil\nopen('a', 'w').close()\nshutil.rmtree(os.getcwd())").label == "raised OSError"
    assert attack(f"for name in os.environ:\n    if name == 'SECRET': sys.exit()\n{RIGHT}").passed
    assert attack(f"if os.listdir() or os.getcwd() != os.environ['HOME']: sys.exit()\n{RIGHT}").passed  # empty again
    assert Path(prefix).is_dir()
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    assert (Path.cwd(), (tmp_path / "mine.txt").read_text()) == (tmp_path, "mine")


@needs_sandbox
def test_no_privilege_is_left_and_none_can_be_won():
    for code in (
        "import ctypes\nlibc = ctypes.CDLL(None)\nif libc.unshare(0x10000000) == 0: sys.exit()\n",  # a user namespace
        "import ctypes\nlibc = ctypes.CDLL(None)\nif libc.mount(b'none', b'/', None, 32, b'') == 0: sys.exit()\n",
        "try: os.chroot('.'); sys.exit()\nexcept PermissionError: pass\n",
        "from resource import *\ntry: setrlimit(RLIMIT_NPROC, (99, 99)); sys.exit()\nexcept ValueError: pass\n",
        "try: os.kill(-1, 9)\nexcept OSError: pass\n",  # everything it may signal, which is nothing
    ):
        assert attack(code + RIGHT).passed, code


@needs_sandbox
def test_nothing_is_left_running():
    name = f"left{os.getpid()}"
    code = (
        f"import ctypes, time\nctypes.CDLL(None).prctl(15, {name.encode()!r})\n"
        "if not os.fork():\n    os.setsid()\n    if not os.fork(): time.sleep(600)\n    os._exit(0)\n"
        "time.sleep(0.2)\n"
    )
    assert attack(code + RIGHT).passed

    def names() -> list[str]:
        found = []
        for status in Path("/proc").glob("[0-9]*/comm"):
            try:
                found.append(status.read_text().strip())
            except OSError:  # ended in between
                continue
        return found

    assert name not in names()
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    assert not children.exists() or children.read_text().split() == []  # no zombie either


@needs_sandbox
@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user already")
def test_an_ordinary_user_has_the_same_sandbox():
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    here = f"import sys; sys.path[:0] = [{str(ROOT)!r}]; from benchmarks.quality.sandbox.runner import *; "
    command = [python or "", "-B", "-c", here + "print(run(Program(*sys.argv[1:])).label)"]

    def label(*program: str) -> str:
        done = subprocess.run([*command, *program], user=65534, group=65534, extra_groups=[], cwd="/",
                              capture_output=True, text=True, timeout=60)  # fmt: skip
        if done.returncode:
            pytest.skip(f"no Python 3.11 that another user can start here: {done.stderr[-200:]}")
        return done.stdout.strip()

    if python is None:
        pytest.skip("no Python outside of a home folder")
    assert label(RIGHT, TESTS) == "passed"
    assert label(CONFINED + "while True: os.fork()", "") == "too many processes"
    assert label(CONFINED + "os.kill(1, 9)\nos.chroot('.')", "") == "raised PermissionError"
    assert label(CONFINED + "open('/usr/new', 'w')", "") in ("raised OSError", "raised PermissionError")


# Where it cannot be had


def test_a_refused_confinement_runs_nothing_and_says_what_to_do(monkeypatch):
    monkeypatch.setattr(runner, "_KEEPER", 'print(\'{"refused": "unshare: Operation not permitted"}\')')
    with pytest.raises(UserError, match=r"not permit the sandbox \(unshare: .*nothing was run.*Linux machine"):
        run(Program(RIGHT, TESTS))
    monkeypatch.setattr(runner, "_KEEPER", "raise SystemExit('no libc')")
    with pytest.raises(UserError, match=r"did not answer \(status 1: no libc\)"):
        run(Program(RIGHT, TESTS))
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UserError, match="this is darwin"):
        run(Program(RIGHT, TESTS))


@needs_sandbox
def test_one_failing_step_of_the_confinement_is_a_refusal():
    for limits in (Limits(folder_bytes=-1), Limits(memory_bytes=-5)):
        with pytest.raises(UserError, match="nothing was run"):
            run(Program(RIGHT, TESTS), limits)


def test_a_keeper_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(runner, "_KEEPER", "import time; time.sleep(600)")
    monkeypatch.setattr(runner, "_GRACE_S", 0.1)
    with pytest.raises(UserError, match=r"did not answer \(status -9: no answer within 0.2 s\)"):
        run(Program(RIGHT, TESTS), Limits(wall_s=0.1))
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    assert not children.exists() or children.read_text().split() == []


@needs_sandbox
@pytest.mark.skipif(not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="/proc lists no children here")
def test_a_suspended_harness_takes_no_time_from_the_program():
    """A whole session stopped for longer than the limits allow, as a shell's Ctrl-Z or a cluster's scheduler does."""
    here = f"import sys; sys.path[:0] = [{str(ROOT)!r}]\nfrom benchmarks.quality.sandbox import runner\n"
    here += "runner._GRACE_S = 1.0\n"
    ask = "print(runner.run(runner.Program('import time; time.sleep(0.5)', ''), runner.Limits(wall_s=3.0)).label)"
    harness = subprocess.Popen([sys.executable, "-c", here + ask], stdout=subprocess.PIPE, text=True)

    def children(pid: int) -> list[int]:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    keeper: list[int] = []
    while not keeper or len(children(keeper[0])) < 2:  # the holder and the tested process
        keeper = children(harness.pid)
        time.sleep(0.01)
    everyone = [harness.pid, *keeper, *children(keeper[0])]
    for signal_ in (signal.SIGSTOP, signal.SIGCONT):
        for pid in everyone:
            os.kill(pid, signal_)
        time.sleep(4.2 if signal_ == signal.SIGSTOP else 0)
    assert harness.communicate(timeout=60)[0].strip() == "passed"
