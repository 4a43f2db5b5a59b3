"""A headless Chromium over its debugging pipe: no driver, no server and no package is needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60


def browser_path() -> str | None:
    """Return the path of an installed browser, None without one."""
    return os.environ.get("RLM_BROWSER") or next((path for name in NAMES if (path := shutil.which(name))), None)


class HeadlessBrowser:
    """One tab of a browser.

    Attributes:
        events: What the browser reported: requests, exceptions, log entries.
    """

    def __init__(self, path: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars")

        def connect() -> None:
            first, second = os.dup(to_read), os.dup(to_write)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._process = subprocess.Popen(
            [path, *options, f"--user-data-dir={self._folder.name}", "about:blank"],
            preexec_fn=connect,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._number, self._rest, self._session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> HeadlessBrowser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._folder.name, ignore_errors=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            for answer in self._messages(deadline - time.monotonic()):
                if answer.get("id") == self._number:
                    assert "error" not in answer, answer
                    return dict(answer["result"])
                self.events.append(answer)
        raise TimeoutError(f"{method} has no answer after {SECONDS} s")

    def _messages(self, seconds: float) -> list[dict[str, Any]]:
        poll = select.poll()  # select() refuses descriptors above 1023
        poll.register(self._read, select.POLLIN)
        ready = poll.poll(1000 * max(0.0, seconds))
        if not ready:
            return []
        *complete, self._rest = (self._rest + os.read(self._read, 1 << 20)).split(b"\0")
        return [json.loads(text) for text in complete]

    def open(self, page: Path, hash_: str = "", *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Open a file and wait until its script has drawn it."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=page.resolve().as_uri() + (f"#{hash_}" if hash_ else ""))
        deadline = time.monotonic() + SECONDS
        while not self.evaluate("document.body && document.body.dataset.ready || ''"):
            assert time.monotonic() < deadline, "the page was not drawn"

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def in_frame(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the only frame of the page."""
        page, deadline = self._session, time.monotonic() + SECONDS
        self._session = ""
        while not (frames := [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "iframe"]):
            assert time.monotonic() < deadline, "the page has no frame of its own process"
        self._session = self.call("Target.attachToTarget", targetId=frames[0]["targetId"], flatten=True)["sessionId"]
        try:
            while not self.evaluate("document.body && document.body.dataset.ready || ''"):
                assert time.monotonic() < deadline, "the frame was not drawn"
            return self.evaluate(expression)
        finally:
            self._session = page

    def press(self, key: str) -> None:
        """Press a key."""
        codes = {"ArrowRight": 39, "ArrowLeft": 37, "Tab": 9, "Enter": 13}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def screenshot(self, file: Path) -> None:
        """Write a picture of the tab."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def problems(self) -> list[str]:
        """Return errors of the page, refused resources, and requests for anything but a file."""
        found = []
        for event in self.events:
            params, method = event.get("params", {}), event.get("method")
            if method == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"])[:500])
            if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
            url = params.get("request", {}).get("url", "file:") if method == "Network.requestWillBeSent" else "file:"
            if not url.startswith(("file:", "about:", "data:")):
                found.append(f"request of {url}")
        return found
