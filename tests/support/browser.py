"""Headless Chromium, driven by the DevTools protocol over two pipes. Each JSON message ends with a zero byte."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# `--no-sandbox`: Chromium's own sandbox does not work for root, and CI runs as root.
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
)
PATIENCE_S = 120.0


class Browser:
    """A tab, for one page after another.

    Attributes:
        heard: name and parameters of each event since the last `open`.
    """

    def __init__(self, writing: int, reading: int) -> None:
        self._writing, self._reading = writing, reading
        self._buffer = b""
        self._asked = 0
        self._session = ""
        self.heard: list[tuple[str, dict[str, Any]]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime", "Debugger"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a command. Events that arrive meanwhile are added to `heard`."""
        self._asked += 1
        message = {"id": self._asked, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._asked:
                assert "error" not in told, (method, told["error"])
                answer: dict[str, Any] = told["result"]
                return answer

    def open(self, url: str, width: int, dark: bool = False, medium: str = "screen") -> None:
        """Load a page in a window of that width, or for paper, and wait until the page has loaded completely."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=medium, features=[scheme])
        self.heard.clear()
        assert "errorText" not in self.ask("Page.navigate", url=url)
        while not any(name == "Page.loadEventFired" for name, _ in self.heard):
            self._next()

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page, outside the page's own policy."""
        told = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def screenshot(self, path: Path) -> None:
        picture = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(picture))

    def _next(self) -> dict[str, Any]:
        ends = time.monotonic() + PATIENCE_S
        while b"\0" not in self._buffer:
            assert select.select([self._reading], [], [], max(0.0, ends - time.monotonic()))[0], "the browser is silent"
            read = os.read(self._reading, 1 << 20)
            assert read, "the browser has ended"
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        told: dict[str, Any] = json.loads(text)
        if "method" in told:
            self.heard.append((told["method"], told["params"]))
        return told


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own."""
    assert CHROMIUM is not None
    to_browser, from_us = os.pipe()
    from_browser, to_us = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The browser reads from file 3 and writes to file 4; only a shell can put pipes there.
        script = f'exec "$@" 3<&{to_browser} 4>&{to_us}'
        command = ["bash", "-c", script, "bash", CHROMIUM, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            command, pass_fds=(to_browser, to_us), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(to_us)
        try:
            yield Browser(from_us, from_browser)
        finally:
            os.close(from_us)  # the end of its commands ends the browser
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(from_browser)
