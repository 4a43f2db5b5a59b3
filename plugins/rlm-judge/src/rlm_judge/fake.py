"""A server that judges sums, for recipes and tests without a network: ``python -m rlm_judge.fake -- COMMAND``.

It speaks OpenAI's chat completions on loopback and reads the questions of this package: it finds the fenced task and
answer, does the sum itself, and says its verdict in the form it was asked for. It is a judge that knows and not a
language model; what a recipe learns from it shows that the way from a verdict to the weights is sound.
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

Opinion = Callable[[str, str], float]
"""Task, answer → how good it is, from 0 to 1."""
Say = Callable[[str, str], str]
"""The system's and the user's words → what the judge answers."""


def arithmetic(task: str, answer: str) -> float:
    """1 for the right sum; else half the share of its digits that are right, counted from the right.

    >>> arithmetic("347+285=?", "<answer>632</answer>"), arithmetic("347+285=?", "622"), arithmetic("347+285=?", "?")
    (1.0, 0.3333333333333333, 0.0)
    """
    asked, found = _SUM.search(task), _WHOLE.findall(answer)
    if not asked or not found:
        return 0.0
    right, said = str(int(asked[1]) + int(asked[2])), found[-1]
    same = sum(a == b for a, b in zip(reversed(right), reversed(said), strict=False))
    return 1.0 if right == said else 0.5 * same / max(len(right), len(said))


def verdict(user: str, opinion: Opinion = arithmetic) -> str:
    """What it says to a question of this package, its verdict in the form that was asked for."""
    texts = {kind: text for kind, _, text in _FENCE.findall(user)}
    mark = next((mark for _, mark, _ in _FENCE.findall(user)), "")
    form = user.rpartition(f"Verdict-{mark}: ")[2]
    return f"Let me see.\nVerdict-{mark}: {_formed(texts, form, opinion)}"


def _formed(texts: Mapping[str, str], form: str, opinion: Opinion) -> str:
    task = texts.get("task", "")
    if form.startswith("A, B"):
        first, second = opinion(task, texts["first"]), opinion(task, texts["second"])
        return "TIE" if first == second else "A" if first > second else "B"
    good = opinion(task, texts["answer"])
    if form.startswith("CORRECT"):
        return "CORRECT" if texts["answer"].strip().endswith(texts["reference"].strip()) else "INCORRECT"
    if form.startswith("{"):
        return json.dumps(dict.fromkeys(re.findall(r'"(\d+)"', form), good == 1.0))
    return str(1 + round(9 * good))


class Fake(ThreadingHTTPServer):
    """The server, on a thread of its own between ``with Fake() as fake:`` and the end of the block.

    Args:
        say: What it answers.
        port: Where it listens on loopback; 0: wherever there is room.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, say: Say = lambda system, user: verdict(user), port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Desk)
        self.say = say
        self.heard: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        """What a recipe writes."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def start(self) -> Fake:
        """Listens from now on."""
        threading.Thread(target=self.serve_forever, daemon=True, kwargs={"poll_interval": 0.05}).start()
        return self

    def __enter__(self) -> Fake:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()


class _Desk(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together, or every answer would wait for an acknowledgement
    server: Fake

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.heard.append(asked)
        spoken = {message["role"]: message["content"] for message in asked["messages"]}
        text = self.server.say(spoken.get("system", ""), spoken["user"])
        usage = {"prompt_tokens": len(spoken["user"].split()), "completion_tokens": len(text.split())}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        body = json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def main(arguments: list[str]) -> int:
    """Judges while a command runs, or until it is interrupted."""
    command = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # then the command is ended, too
    with Fake(port=PORT) as fake:
        print(f"judging sums at {fake.url}", file=sys.stderr)
        try:
            return subprocess.call(command) if command else threading.Event().wait()
        except KeyboardInterrupt:
            return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
