"""Server with the part of the OpenAI API that a teacher needs, over any function from token ids to log-probs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Score = Callable[[list[int]], list[float]]


class Server(ThreadingHTTPServer):
    """Answers `/models` and `/completions`; after `fails_at` requests of the second kind it answers 503.

    After `cut_at` requests it closes the connection in the middle of its answer.

    Args:
        score: Returns the log-prob of every token but the first.
    """

    def __init__(self, score: Score) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.score, self.requests, self.fails_at, self.cut_at = score, 0, 10**9, 10**9
        self.change: Callable[[dict[str, Any]], None] = lambda answer: None


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self._send({"data": [{"id": "teacher"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["echo"]
        assert body["model"] == "teacher"
        self.server.requests += 1
        if self.server.requests > self.server.fails_at:
            self._send({"error": "overloaded"}, 503)
            return
        choices = []
        for index, ids in enumerate(body["prompt"]):
            logp = [None, *self.server.score(ids), -1.0]
            logprobs = {"tokens": [f"token_id:{i}" for i in [*ids, 0]], "token_logprobs": logp}
            choices.append({"index": index, "logprobs": logprobs})
        answer = {"choices": choices[::-1]}
        self.server.change(answer)
        self._send(answer)

    def _send(self, answer: Any, status: int = 200) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data if self.server.requests <= self.server.cut_at else data[: len(data) // 2])

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def serving(score: Score) -> Iterator[Server]:
    """Run a server in a thread; its address is ``http://127.0.0.1:{server_port}/v1``."""
    with Server(score) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
