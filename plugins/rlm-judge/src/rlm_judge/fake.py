"""A fake judge server for recipes and tests without a network: ``python -m rlm_judge.fake -- COMMAND``.

It serves OpenAI's chat completions on loopback and parses the prompts of this package. It finds the fenced task and
answer, computes the sum, and returns a verdict in the requested form. It is exact and not a language model; recipes
that train with it test the path from a verdict to the weights.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = 8765
_FENCE = re.compile(r"<(\w+)-([0-9a-f]{6})>\n(.*?)\n</\1-\2>", re.DOTALL)
_SUM = re.compile(r"(\d+)\+(\d+)=")
_WHOLE = re.compile(r"\d+")

ScoreFunction = Callable[[str, str], float]
"""(task, answer) → its score, from 0 to 1."""
Respond = Callable[[str, str], str]
"""(system message, user message) → the judge's answer."""


def arithmetic(task: str, answer: str) -> float:
    """Return 1 for the correct sum, else half the share of its digits that are correct, from the right.

    >>> arithmetic("347+285=?", "<answer>632</answer>"), arithmetic("347+285=?", "622"), arithmetic("347+285=?", "?")
    (1.0, 0.3333333333333333, 0.0)
    """
    sum_match, numbers = _SUM.search(task), _WHOLE.findall(answer)
    if not sum_match or not numbers:
        return 0.0
    expected, given = str(int(sum_match[1]) + int(sum_match[2])), numbers[-1]
    matching = sum(a == b for a, b in zip(reversed(expected), reversed(given), strict=False))
    return 1.0 if expected == given else 0.5 * matching / max(len(expected), len(given))


def verdict(user: str, score_of: ScoreFunction = arithmetic) -> str:
    """Return the answer to a prompt of this package, with the verdict in the requested form."""
    texts = {kind: text for kind, _, text in _FENCE.findall(user)}
    mark = next((mark for _, mark, _ in _FENCE.findall(user)), "")
    form = user.rpartition(f"Verdict-{mark}: ")[2]
    return f"Let me see.\nVerdict-{mark}: {_format_verdict(texts, form, score_of)}"


def _format_verdict(texts: Mapping[str, str], form: str, score_of: ScoreFunction) -> str:
    task = texts.get("task", "")
    if form.startswith("A, B"):
        first, second = score_of(task, texts["first"]), score_of(task, texts["second"])
        if first == second:
            return "TIE"
        return "A" if first > second else "B"
    score = score_of(task, texts["answer"])
    if form.startswith("CORRECT"):
        return "CORRECT" if texts["answer"].strip().endswith(texts["reference"].strip()) else "INCORRECT"
    if form.startswith("{"):
        return json.dumps(dict.fromkeys(re.findall(r'"(\d+)"', form), score == 1.0))
    return str(1 + round(9 * score))


class Fake(ThreadingHTTPServer):
    """The server, on a thread of its own inside ``with Fake() as fake:``."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, respond: Respond = lambda system, user: verdict(user), port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.respond = respond
        self.requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def start(self) -> Fake:
        threading.Thread(target=self.serve_forever, daemon=True, kwargs={"poll_interval": 0.05}).start()
        return self

    def __enter__(self) -> Fake:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet, or every answer would wait for an acknowledgement
    server: Fake

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request)
        messages = {message["role"]: message["content"] for message in request["messages"]}
        text = self.server.respond(messages.get("system", ""), messages["user"])
        usage = {"prompt_tokens": len(messages["user"].split()), "completion_tokens": len(text.split())}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        body = json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Suppress the request log."""


def main(arguments: list[str]) -> int:
    """Serve while a command runs, or until interrupted."""
    command = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exits through `with`, and ends the command, too
    with Fake(port=PORT) as fake:
        print(f"judging sums at {fake.url}", file=sys.stderr)
        try:
            return subprocess.call(command) if command else threading.Event().wait()
        except KeyboardInterrupt:
            return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
