"""The HTTP client against a faulty server on loopback, and the cache of verdicts."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import socket
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from faulty_server import FaultyServer, Reaction, completion, endless, http, reset, slow_bytes
from rlm_judge import reply_parsing
from rlm_judge.server import Cache, Server
from rlm_judge.spec import Answer, Query, ServerSpec, Usage

from rlm_plugins.errors import PartError

KEY = "sk-very-secret-0123456789"
FINE = http(200, completion("I think so.\n7"), "Content-Type: application/json")
QUOTA = json.dumps({"error": {"code": "insufficient_quota", "message": "pay"}}).encode()


def last_line(text: str) -> float | None:
    return reply_parsing.number(text.splitlines()[-1], 1, 10)


def asked(count: int = 1) -> list[Query]:
    return [Query("", f"question {number}", last_line) for number in range(count)]


def server(url: str, **settings: Any) -> Server:
    return Server(ServerSpec(url=url, model="m", **{"backoff": 0.01, "retries": 2, "timeout": 5.0, **settings}))


def ask(judge: Server, queries: list[Query], usage: Usage | None = None) -> list[Answer]:
    return asyncio.run(judge.ask(queries, usage or Usage()))


def silence(line: socket.socket) -> None:
    time.sleep(2)


TRANSIENT_STATUSES: list[tuple[str, Reaction]] = [
    ("status 500", http(500, b"oops")),
    ("status 429", http(429, b"{}", "Retry-After: 0")),
    ("status 429", http(429, b"{}", "Retry-After: " + formatdate(usegmt=True))),
    ("no JSON", http(200, b"<!doctype html><title>Sign in</title>", "Content-Type: text/html")),
    ("no JSON", http(200, b'{"choices": [{"mess')),
    ("wrong schema", http(200, b"null")),
    ("wrong schema", http(200, b'{"choices": [{"message": "7"}]}')),
    ("no choices", http(200, b'{"choices": []}')),
    ("empty answer", http(200, completion(None))),
    ("empty answer", http(200, completion(["7"]))),
    ("error in the reply", http(200, b'{"error": {"message": "overloaded"}}')),
    ("ReadError", reset),
    ("RemoteProtocolError", lambda line: line.close()),
    ("DecodingError", http(200, b"no gzip", "Content-Encoding: gzip")),
]
LASTING: list[tuple[str, Reaction]] = [
    ("status 302", http(302, b"", "Location: /v1/chat/completions")),
    ("status 400", http(400, b'{"error": {"message": "too many tokens"}}')),
    ("status 429", http(429, b"{}", "Retry-After: 3600")),
    ("status 429", http(429, QUOTA)),
    ("cut off", http(200, completion("Verdict: 1", finish_reason="length"))),
    ("refused", http(200, completion("7", finish_reason="content_filter"))),
    ("unreadable", http(200, completion("I would rather not say."))),
    ("reply too long", endless),
    ("reply too long", http(200, gzip.compress(b" " * 2**26), "Content-Encoding: gzip")),
]


@pytest.mark.parametrize(("why", "reaction"), TRANSIENT_STATUSES)
def test_transient_failures_are_retried(why: str, reaction: Reaction) -> None:
    with FaultyServer(reaction, FINE) as faulty:
        usage = Usage()
        assert ask(server(faulty.url), asked(), usage) == [Answer(7.0)]
        assert (len(faulty.requests), usage.retries) == (2, 1)
    with FaultyServer(reaction) as faulty:
        assert ask(server(faulty.url), asked()) == [Answer(None, why)]
        assert len(faulty.requests) == 3


@pytest.mark.parametrize(("why", "reaction"), LASTING)
def test_permanent_failures_are_not_retried(why: str, reaction: Reaction) -> None:
    with FaultyServer(reaction) as faulty:
        assert ask(server(faulty.url), asked()) == [Answer(None, why)]
        assert len(faulty.requests) == 1


@pytest.mark.parametrize("reaction", [silence, slow_bytes(completion("7"))])
def test_timeout_limits_the_whole_attempt(reaction: Reaction) -> None:
    """The timeout covers the whole reply, so it also applies to a server that sends slowly."""
    with FaultyServer(reaction) as faulty:
        assert ask(server(faulty.url, timeout=0.3, retries=1), asked()) == [Answer(None, "timeout")]
        assert len(faulty.requests) == 2


def test_equal_queries_are_sent_once() -> None:
    with FaultyServer(FINE) as faulty:
        assert ask(server(faulty.url), asked(2) * 3) == [Answer(7.0)] * 6
        assert len(faulty.requests) == 2


def test_retry_after_pauses_all_requests() -> None:
    with FaultyServer(http(429, b"{}", "Retry-After: 0.4"), FINE) as faulty:
        judge = server(faulty.url, concurrency=1)
        assert ask(judge, asked(3)) == [Answer(7.0)] * 3
        first, *others = faulty.times
        assert min(others) - first >= 0.4


def test_concurrency_limit() -> None:
    def slowly(line: socket.socket) -> None:
        time.sleep(0.05)
        FINE(line)

    with FaultyServer(slowly) as faulty:
        assert ask(server(faulty.url, concurrency=4), asked(12)) == [Answer(7.0)] * 12
        assert faulty.max_concurrent == 4


def test_requests_per_minute_limit() -> None:
    with FaultyServer(FINE) as faulty:
        ask(server(faulty.url, requests_per_minute=600.0), asked(6))  # ten a second
        assert max(faulty.times) - min(faulty.times) >= 0.45  # five gaps, less what a thread may be late


def test_tokens_per_minute_limit() -> None:
    """Each answer uses 110 of its estimated 10,000 tokens; the correction shortens the next wait."""
    with FaultyServer(FINE) as faulty:
        ask(server(faulty.url, tokens_per_minute=110.0 * 300, max_tokens=10_000, concurrency=1), asked(4))
        assert 0.55 <= max(faulty.times) - min(faulty.times) < 10


def test_tokens_and_cost_are_counted() -> None:
    cut = http(200, completion("Verd", finish_reason="length"))
    with FaultyServer(http(200, completion("?")), cut, FINE) as faulty:
        usage = Usage()
        ask(server(faulty.url, price_in=1000.0, price_out=10_000.0), asked(3), usage)
        assert (usage.tokens_in, usage.tokens_out) == (300, 30)  # what is no verdict is paid for, too
        assert usage.cost == pytest.approx(300 * 1e-3 + 30 * 1e-2)


def test_request_body_matches_the_recipe() -> None:
    with FaultyServer(FINE) as faulty:
        judge = server(faulty.url, max_tokens=9, extra={"chat_template_kwargs": {"enable_thinking": False}})
        ask(judge, [Query("be just", "how good?", last_line, vote=2)])
        (request,) = faulty.requests
        assert faulty.heads[0].startswith("POST /v1/chat/completions ")
        assert request == {
            "model": "m",
            "messages": [{"role": "system", "content": "be just"}, {"role": "user", "content": "how good?"}],
            "max_tokens": 9,
            "temperature": 0.0,
            "seed": 2,
            "chat_template_kwargs": {"enable_thinking": False},
        }
        assert "authorization" not in faulty.heads[0].lower()


def test_key_is_sent_only_to_the_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SOME_KEY", KEY)
    quoting = http(400, json.dumps({"error": {"message": f"{'who' * 60} is {KEY}?"}}).encode())
    echo = http(200, completion(f"{KEY}\n7"))
    denied = http(401, json.dumps({"error": {"message": f"wrong key {KEY}"}}).encode())
    moved = http(302, b"", "Location: http://127.0.0.1:9/v1")
    with FaultyServer(FINE, quoting, moved, echo, denied) as faulty:
        judge = server(faulty.url, api_key_env="SOME_KEY", cache=str(tmp_path), concurrency=1)
        ask(judge, asked(4))
        with pytest.raises(PartError, match=r"rejects every request: status 401.*•••") as denial:
            ask(judge, [Query("", "another", last_line)])
        assert all(f"Bearer {KEY}" in head for head in faulty.heads)
        assert len(faulty.heads) == 5
    written = "".join(file.read_text() for file in tmp_path.rglob("*") if file.is_file())
    assert "7" in written
    assert KEY[:9] not in caplog.text + written + str(denial.value) + repr(judge.spec) + judge.spec.model_dump_json()


def test_unavailable_judge_ends_the_run() -> None:
    with FaultyServer(http(500, b""), FINE, http(500, b"on fire")) as faulty:
        judge = server(faulty.url, retries=0, give_up=2)
        assert ask(judge, asked()) == [Answer(None, "status 500")]
        assert ask(judge, asked()) == [Answer(7.0)]  # the count starts again
        assert ask(judge, asked()) == [Answer(None, "status 500")]
        with pytest.raises(PartError, match=r"no verdict in 2 batches in a row: status 500: 1 \(on fire\)"):
            ask(judge, asked())


FINE, ODD, BROKEN = (http(200, completion("7")), http(200, completion("hm")), http(500, b""))


def seven(text: str) -> float | None:
    return 7.0 if text == "7" else None


def ask_cached(url: str, folder: Path, vote: int = 0, **settings: object) -> list[Answer]:
    spec = ServerSpec.model_validate({"url": url, "model": "m", "cache": str(folder), "retries": 0, **settings})
    return asyncio.run(Server(spec).ask([Query("s", "u", seven, vote)], Usage()))


def test_cached_verdict_needs_no_request(tmp_path: Path) -> None:
    with FaultyServer(FINE) as faulty:
        assert ask_cached(faulty.url, tmp_path) == [Answer(7.0)]
        assert ask_cached(faulty.url, tmp_path) == [Answer(7.0, cached=True)]
        assert len(faulty.requests) == 1


def test_cache_key_includes_model_settings_and_vote(tmp_path: Path) -> None:
    with FaultyServer(FINE) as faulty:
        others: list[dict[str, object]] = [{"model": "n"}, {"temperature": 1.0}, {"max_tokens": 9}, {"extra": {"a": 1}}]
        for settings in [{}, *others, {"vote": 1}]:
            assert ask_cached(faulty.url, tmp_path, **settings) == [Answer(7.0)]  # type: ignore[arg-type]
        assert len(faulty.requests) == 6
        assert ask_cached(faulty.url, tmp_path, concurrency=3, timeout=9.0) == [Answer(7.0, cached=True)]


def test_failures_are_not_cached(tmp_path: Path) -> None:
    with FaultyServer(BROKEN, ODD, FINE) as faulty:
        found = [ask_cached(faulty.url, tmp_path)[0].failure for _ in range(2)]
        assert found == ["status 500", "unreadable"]
        assert list(tmp_path.rglob("*.json")) == []
        assert ask_cached(faulty.url, tmp_path) == [Answer(7.0)]


def test_corrupt_cache_file_counts_as_absent(tmp_path: Path) -> None:
    for spoilt in (b"", b"{", b"null", b'{"text": 7}', b"\xff", b'{"text": "hm"}'):
        with FaultyServer(FINE) as faulty:
            ask_cached(faulty.url, tmp_path)
            (file,) = tmp_path.rglob("*.json")
            file.write_bytes(spoilt)
            assert ask_cached(faulty.url, tmp_path) == [Answer(7.0)]
            assert ask_cached(faulty.url, tmp_path) == [Answer(7.0, cached=True)]
            file.unlink()


def test_unwritable_cache_folder_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with FaultyServer(FINE) as faulty:
        assert ask_cached(faulty.url, tmp_path / "file" / "cache") == [Answer(7.0)]


WRITER = """
import sys
from rlm_judge.server import Cache
cache = Cache(sys.argv[1])
for turn in range(25):
    for number in range(5):
        cache.put({"q": number}, f"{number}" * 5000)
        found = cache.get({"q": number})
        assert found == f"{number}" * 5000, found
"""


def test_processes_share_the_cache(tmp_path: Path) -> None:
    """Concurrent readers always get a complete answer."""
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    assert [(writer.wait(timeout=60), writer.communicate()[1]) for writer in writers] == [(0, b"")] * 3
    assert len(list(tmp_path.rglob("*.json"))) == 5
    assert list(tmp_path.rglob(".*.part")) == []
    assert Cache(str(tmp_path)).get({"q": 3}) == "3" * 5000
