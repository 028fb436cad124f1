"""Whether this machine permits the sandbox: tests that run code in it skip with its own reason where it does not."""

import pytest

from benchmarks.errors import UserError
from benchmarks.quality.sandbox.runner import Program, run


def refusal() -> str | None:
    try:
        return None if run(Program("", "")).passed else "the sandbox does not run an empty program"
    except UserError as error:
        return str(error)


REFUSAL = refusal()
needs_sandbox = pytest.mark.skipif(REFUSAL is not None, reason=str(REFUSAL))
