"""A server that misbehaves, for tests of whoever talks to one: it reads a request and does what its script says."""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

Reaction = Callable[[socket.socket], None]


def http(status: int, body: bytes, *headers: str) -> Reaction:
    """A reply that is sound as HTTP."""
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return lambda line: line.sendall("\r\n".join([*head, "", ""]).encode() + body)


def completion(text: Any, **choice: Any) -> bytes:
    """A chat completion."""
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return json.dumps({"choices": [{"message": message, "finish_reason": "stop", **choice}], "usage": usage}).encode()


class Rude(socketserver.ThreadingTCPServer):
    """Reacts to its nth request as `script` says; to those after the last as to the last.

    Args:
        script: What it does.

    Attributes:
        requests: The bodies it was sent, as JSON.
        heads: Their headers.
        times: When they came, on the monotonic clock.
        most_busy: How many it served at once, at most.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, *script: Reaction) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self.times: list[float] = []
        self.busy = self.most_busy = 0
        self.lock = threading.Lock()

    def __enter__(self) -> Rude:
        threading.Thread(target=self.serve_forever, daemon=True, kwargs={"poll_interval": 0.02}).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        """What a recipe writes."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The other side has hung up: expected."""


class _Conversation(socketserver.StreamRequestHandler):
    """One request; then the line is closed."""

    server: Rude

    def handle(self) -> None:
        head = b""
        while line := self.rfile.readline():
            head += line
            if line == b"\r\n":
                break
        length = next(int(x.split(b":")[1]) for x in head.splitlines() if x.lower().startswith(b"content-length"))
        body = json.loads(self.rfile.read(length))
        with self.server.lock:
            self.server.times.append(time.monotonic())
            self.server.requests.append(body)
            self.server.heads.append(head.decode())
            reaction = self.server.script[min(len(self.server.requests), len(self.server.script)) - 1]
            self.server.busy += 1
            self.server.most_busy = max(self.server.most_busy, self.server.busy)
        try:
            reaction(self.connection)
        finally:
            with self.server.lock:
                self.server.busy -= 1


def reset(line: socket.socket) -> None:
    """Ends the connection as a crashed machine does."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


def dripping(body: bytes, pause: float = 0.05) -> Reaction:
    """One byte at a time, each within any patience."""

    def drip(line: socket.socket) -> None:
        line.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        for byte in body:
            time.sleep(pause)
            line.sendall(bytes([byte]))

    return drip


def endless(line: socket.socket) -> None:
    """A body that does not end."""
    line.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        line.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
