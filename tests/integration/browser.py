"""Headless Chromium, driven over a pipe: a page as a person sees and uses it."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

QUIET = "--disable-quic --no-first-run --disable-background-networking --disable-component-update"
KEYS = {"Tab": 9, "Enter": 13, "ArrowDown": 40}


class Page:
    """A page that is open in the browser."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, os.fdopen(from_browser, "rb")
        self._number, self._session = 0, ""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command and wait for its answer; events are left out."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _next(self) -> bytes:
        text = bytearray()
        while (byte := self._from.read(1)) != b"\0":
            assert byte, "the browser has ended"
            text += byte
        return bytes(text)

    def open(self, address: str, *, width: int = 1200, scheme: str = "light") -> None:
        """Open an address in a window of a width, with a colour scheme."""
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        colors = {"name": "prefers-color-scheme", "value": scheme}
        self.ask("Emulation.setEmulatedMedia", features=[colors])
        self.ask("Page.navigate", url=address)
        self.value("new Promise(r => document.readyState == 'complete' ? r() : onload = r)")

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page; of a promise what it gives."""
        given = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.ask("Runtime.evaluate", **given)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key, where the focus is."""
        about = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **about)

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """Write a picture of the whole page, or of what the window shows."""
        answer = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(answer["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A browser with a page; its profile is in `folder`."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium on PATH")
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", *QUIET.split()]
    options += ["--remote-debugging-pipe", f"--user-data-dir={folder}"]
    # The browser reads commands from 3 and writes answers to 4.
    script = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    process = subprocess.Popen(
        ["bash", "-c", script, program, *options],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Page(ours_out, ours_in)
    finally:
        os.close(ours_out)
        process.terminate()
        process.wait(30)
