"""A misbehaving server for tests of HTTP clients: it reads requests and replies according to a script."""

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
    """Return a reaction that sends a valid HTTP reply."""
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return lambda line: line.sendall("\r\n".join([*head, "", ""]).encode() + body)


def completion(text: Any, **choice: Any) -> bytes:
    """Return the body of a chat completion."""
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return json.dumps({"choices": [{"message": message, "finish_reason": "stop", **choice}], "usage": usage}).encode()


class FaultyServer(socketserver.ThreadingTCPServer):
    """A server that handles its nth request with the nth reaction of `script`, later ones with the last.

    Args:
        script: Its reactions.

    Attributes:
        requests: The bodies it received, as JSON.
        heads: Their headers.
        times: Their times, on the monotonic clock.
        max_concurrent: The largest number of requests handled at once.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, *script: Reaction) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self.times: list[float] = []
        self.busy = self.max_concurrent = 0
        self.lock = threading.Lock()

    def __enter__(self) -> FaultyServer:
        threading.Thread(target=self.serve_forever, daemon=True, kwargs={"poll_interval": 0.02}).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        """Return the address of the server, for a recipe."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients are expected to disconnect


class _Handler(socketserver.StreamRequestHandler):
    """One request per connection."""

    server: FaultyServer

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
            self.server.max_concurrent = max(self.server.max_concurrent, self.server.busy)
        try:
            reaction(self.connection)
        finally:
            with self.server.lock:
                self.server.busy -= 1


def reset(connection: socket.socket) -> None:
    """Reset the connection, as a crashed machine does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def slow_bytes(body: bytes, pause: float = 0.05) -> Reaction:
    """Return a reaction that sends one byte at a time, each within any timeout per read."""

    def drip(connection: socket.socket) -> None:
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        for byte in body:
            time.sleep(pause)
            connection.sendall(bytes([byte]))

    return drip


def endless(connection: socket.socket) -> None:
    """Send a body without an end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
