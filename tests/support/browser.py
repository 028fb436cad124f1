"""A headless Chromium spoken to over its debugging pipe: what the page's tests need of it and no more.

Not a test file. Machines without a browser skip the tests that ask for one (`find_browser` is None there).
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update",
    "--disable-background-networking", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
DEADLINE_S = 300


def find_browser() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of one browser. `problems`: console errors, exceptions and log entries since the page was opened."""

    def __init__(self, binary: str, profile: Path):
        from_browser, to_us = os.pipe()
        from_us, to_browser = os.pipe()
        # The browser reads from 3 and writes to 4; above 10 the shell's redirections cannot step on each other.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (from_us, to_us)]
        redirect = f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}'
        command = [binary, *QUIET, f"--user-data-dir={profile}", "about:blank"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(["bash", "-c", redirect, "bash", *command], pass_fds=ends, **quiet)
        for end in (from_us, to_us, *ends):
            os.close(end)
        self._in, self._out, self._buffer, self._n_sent = from_browser, to_browser, b"", 0
        self._session: str | None = None
        self.problems: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params) -> dict:
        """One command of the DevTools protocol and its result."""
        self._n_sent += 1
        message = {"id": self._n_sent, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._n_sent:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._note(answer)

    def _receive(self) -> dict:
        deadline = time.monotonic() + DEADLINE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            received = os.read(self._in, 1 << 20)
            assert received, "the browser ended"
            self._buffer += received
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict) -> None:
        if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.problems.append(json.dumps(event["params"])[:500])
        if event.get("method") == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning"):
            self.problems.append(json.dumps(event["params"]["args"])[:500])

    def open(self, file: Path, width: int = 1400, height: int = 1000, scheme: str = "light") -> None:
        self.problems.clear()
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.send("Page.navigate", url=file.resolve().as_uri())
        deadline = time.monotonic() + DEADLINE_S
        while not self.js(f"document.readyState === 'complete' && location.href === {file.resolve().as_uri()!r}"):
            assert time.monotonic() < deadline, "the page does not load"
            time.sleep(0.02)

    def js(self, expression: str):
        """The value of an expression in the page; fails with what it throws."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """A key of the keyboard, by its DOM name and its Windows key code."""
        for kind in ("rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def mouse(self, selector: str, *, click: bool = False) -> None:
        """Moves the mouse over the middle of an element, and clicks there."""
        box = f"document.querySelector({selector!r}).getBoundingClientRect()"
        self.js(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
        x, y = self.js(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({box})")
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        if click:
            for kind in ("mousePressed", "mouseReleased"):
                self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        os.close(self._out)  # the browser ends with its pipe
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
