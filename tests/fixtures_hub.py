"""A local substitute for the Hugging Face hub, which the real client connects to."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Return what a local stand-in for the hub has received: repositories, and files by path."""
    received: dict[str, Any] = {"created": [], "files": {}}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer: dict[str, Any] = {}
            if self.path.endswith("/repos/create"):
                received["created"].append(json.loads(body)["name"])
                answer = {"url": f"{endpoint}/me/model", "id": "me/model"}
            elif "/preupload/" in self.path:
                files = [file["path"] for file in json.loads(body)["files"]]
                answer = {"files": [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in files]}
            elif "/commit/" in self.path:
                lines = [json.loads(line) for line in body.splitlines()]
                files = [line["value"] for line in lines if line["key"] == "file"]
                received["files"] |= {file["path"]: base64.b64decode(file["content"]) for file in files}
                answer = {"commitUrl": f"{endpoint}/me/model/commit/1", "commitOid": "1", "success": True}
            self._answer(answer)

        def do_GET(self) -> None:
            self._answer({"id": "me/model", "siblings": []})

        def _answer(self, answer: dict[str, Any]) -> None:
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr("transformers.utils.hub._hf_api", None)  # its client of earlier tests
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_local")
    yield received
    server.shutdown()
