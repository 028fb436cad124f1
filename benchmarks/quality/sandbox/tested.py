"""The tested process of the sandbox: gives up every privilege, runs a solution and its tests, reports once.

It runs inside what keeper.py built, already without network, other processes and the host's files. It knows nothing of
datasets, and nothing that it loads may be trusted once tested code has run: what the report needs is bound before.
"""

import builtins
import ctypes
import errno
import os
import resource
import signal
import struct
import sys
import types

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, CAPABILITY_VERSION_3 = 1, 38, 0x20080522
REPORT = 3  # the file descriptor of the report
TESTED_PID = 2  # process 1 of the namespace is the holder
SPARE_BYTES = 64 << 20  # memory that may be taken once the tests are over, to say that they ran out of it


def run_tested(request: dict, output: int, report: int, stranger: int) -> None:
    """Confines this process for good, runs the program and reports; never returns when all goes well."""
    try:
        confine(request["limits"], output, report, stranger)
    except (OSError, ValueError) as error:
        os.write(report, f"refused {error}\n".encode())
        return
    # The nonce that makes a report count waits on the evaluation stack while tested code runs: it is in no variable, no
    # module and no file. Code that digs through the interpreter can still find it; exiting early or printing cannot.
    conclude(announce(), tested_outcome(**request["program"]))


def confine(limits: dict, output: int, report: int, stranger: int) -> None:
    os.setsid()  # so that a signal to "my process group" stays here
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(report, REPORT)
    os.closerange(REPORT + 1, 1 << 16)
    memory, n_processes = limits["memory_bytes"], limits["processes"] + 2  # holder and keeper may count too
    for name, soft, hard in (
        (resource.RLIMIT_CPU, limits["cpu_s"], limits["cpu_s"]),
        (resource.RLIMIT_AS, memory, memory + SPARE_BYTES),
        (resource.RLIMIT_NPROC, n_processes, n_processes),
        (resource.RLIMIT_FSIZE, limits["folder_bytes"], limits["folder_bytes"]),
        (resource.RLIMIT_NOFILE, 64, 64),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        resource.setrlimit(name, (soft, hard))
    if os.geteuid() == 0:  # root is exempt from the limit on processes
        os.setgroups([])
        os.setgid(stranger)
        os.setuid(stranger)
    libc = ctypes.CDLL(None, use_errno=True)
    none, zero = bytes(24), ctypes.c_long(0)
    for failed in (
        libc.capset(struct.pack("Ii", CAPABILITY_VERSION_3, 0), none),
        libc.prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_long(1), zero, zero, zero),
        libc.prctl(PR_SET_PDEATHSIG, ctypes.c_long(signal.SIGKILL), zero, zero, zero),
    ):
        if failed:
            raise OSError(ctypes.get_errno(), "capset or prctl failed")


def announce() -> str:
    nonce = os.urandom(16).hex()
    os.write(REPORT, f"ready {nonce}\n".encode())
    return nonce


def conclude(nonce, what, own=os.getpid, write=os.write, leave=os._exit) -> None:  # bound now: code may replace them
    if own() == TESTED_PID:  # the tested process itself, not a copy that tested code forked
        write(REPORT, f"{nonce} {what}\n".encode(errors="replace"))
    leave(0)


def tested_outcome(solution: str, tests: str, test_class: str | None) -> str:
    """Runs the solution, then its tests, in one module: "passed", or why not with the detail after a tab."""
    for name in [name for name in sys.modules if name.startswith("benchmarks")]:
        del sys.modules[name]  # so that importing this file is no way to change what it says
    module = types.ModuleType("solution")
    module.__file__ = os.path.abspath("solution.py")  # there is none; tests put their files beside it
    sys.modules["solution"] = sys.modules["__main__"] = module
    space = vars(module)
    try:
        compiled = compile(solution, "solution", "exec", dont_inherit=True)
    except Exception as error:
        return f"does not compile\t{shown(error)}"
    guarded = originals(with_unittest=test_class is not None)
    try:
        exec(compiled, space)
        if replaced(guarded):
            return "changed builtins"
        exec(compile(tests, "tests", "exec", dont_inherit=True), space)
        if test_class is not None:
            run_test_class(space[test_class])
    except BaseException as error:  # SystemExit is one of them
        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        return f"{label(error)}\t{shown(error)}"
    return "changed builtins" if replaced(guarded) else "passed"


def originals(with_unittest: bool) -> list[tuple]:
    """(names as they are at any time, names as they are now) of what tests rely on."""
    live = [vars(builtins)]
    if with_unittest:
        import unittest

        live += [vars(unittest.TestCase), vars(unittest.TestResult), vars(unittest.TestSuite)]
    return [(names, dict(names)) for names in live]


def replaced(guarded: list[tuple]) -> bool:
    """Whether tested code put something of its own in place; uses no builtin, since those may be its own."""
    for live, before in guarded:
        for name, value in before.items():
            if live.get(name) is not value:
                return True
    return False


def run_test_class(test_class: type) -> None:
    """Raises the first error of a unittest class, and AssertionError where no test ran or one was skipped."""
    import unittest

    class FirstError(unittest.TestResult):
        first: BaseException | None = None

        def addError(self, test, error):
            self.first = self.first or error[1]

        def addSubTest(self, test, subtest, error):
            self.first = self.first or (error and error[1])

        addFailure = addError

    result = FirstError()
    unittest.defaultTestLoader.loadTestsFromTestCase(test_class).run(result)
    if result.first is not None:
        raise result.first
    if not result.testsRun or result.skipped or result.expectedFailures or result.unexpectedSuccesses:
        raise AssertionError("a test was skipped, or there was none")


def label(error: BaseException) -> str:
    if isinstance(error, AssertionError):
        return "assertion failed"
    if isinstance(error, SystemExit):
        return "exited early"
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, BlockingIOError) or "can't start new thread" in str(error):
        return "too many processes"
    if isinstance(error, OSError) and error.errno in (errno.EFBIG, errno.ENOSPC, errno.EMFILE):
        return "file limit"
    return f"raised {type(error).__name__}"


def shown(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
