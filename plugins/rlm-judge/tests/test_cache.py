"""The verdict cache: written after parsing, shared by processes, without failures."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from faulty_server import FaultyServer, completion, http
from rlm_judge import server
from rlm_judge.server import Cache, Server
from rlm_judge.spec import Answer, Query, ServerSpec, Usage

FINE, ODD, BROKEN = (http(200, completion("7")), http(200, completion("hm")), http(500, b""))


def seven(text: str) -> float | None:
    return 7.0 if text == "7" else None


def ask(url: str, folder: Path, vote: int = 0, **settings: object) -> list[Answer]:
    spec = ServerSpec.model_validate({"url": url, "model": "m", "cache": str(folder), "retries": 0, **settings})
    return asyncio.run(Server(spec).ask([Query("s", "u", seven, vote)], Usage()))


def test_cached_verdict_needs_no_request(tmp_path: Path) -> None:
    with FaultyServer(FINE) as faulty:
        assert ask(faulty.url, tmp_path) == [Answer(7.0)]
        assert ask(faulty.url, tmp_path) == [Answer(7.0, cached=True)]
        assert len(faulty.requests) == 1


def test_cache_key_includes_model_settings_and_vote(tmp_path: Path) -> None:
    with FaultyServer(FINE) as faulty:
        others: list[dict[str, object]] = [{"model": "n"}, {"temperature": 1.0}, {"max_tokens": 9}, {"extra": {"a": 1}}]
        for settings in [{}, *others, {"vote": 1}]:
            assert ask(faulty.url, tmp_path, **settings) == [Answer(7.0)]  # type: ignore[arg-type]
        assert len(faulty.requests) == 6
        assert ask(faulty.url, tmp_path, concurrency=3, timeout=9.0) == [Answer(7.0, cached=True)]


def test_failures_are_not_cached(tmp_path: Path) -> None:
    with FaultyServer(BROKEN, ODD, FINE) as faulty:
        found = [ask(faulty.url, tmp_path)[0].failure for _ in range(2)]
        assert found == ["status 500", "unreadable"]
        assert list(tmp_path.rglob("*.json")) == []
        assert ask(faulty.url, tmp_path) == [Answer(7.0)]


def test_corrupt_cache_file_counts_as_absent(tmp_path: Path) -> None:
    for spoilt in (b"", b"{", b"null", b'{"text": 7}', b"\xff", b'{"text": "hm"}'):
        with FaultyServer(FINE) as faulty:
            ask(faulty.url, tmp_path)
            (file,) = tmp_path.rglob("*.json")
            file.write_bytes(spoilt)
            assert ask(faulty.url, tmp_path) == [Answer(7.0)]
            assert ask(faulty.url, tmp_path) == [Answer(7.0, cached=True)]
            file.unlink()


def test_unwritable_cache_folder_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with FaultyServer(FINE) as faulty:
        assert ask(faulty.url, tmp_path / "file" / "cache") == [Answer(7.0)]


WRITER = """
import runpy, sys
cache = runpy.run_path(sys.argv[1])["Cache"](sys.argv[2])
for turn in range(25):
    for number in range(5):
        server.put({"q": number}, f"{number}" * 5000)
        found = server.get({"q": number})
        assert found == f"{number}" * 5000, found
"""


def test_processes_share_the_cache(tmp_path: Path) -> None:
    """Concurrent readers always get a complete answer."""
    command = [sys.executable, "-I", "-S", "-c", WRITER, server.__file__, str(tmp_path)]
    writers = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    assert [(writer.wait(timeout=60), writer.communicate()[1]) for writer in writers] == [(0, b"")] * 3
    assert len(list(tmp_path.rglob("*.json"))) == 5
    assert list(tmp_path.rglob(".*.part")) == []
    assert Cache(str(tmp_path)).get({"q": 3}) == "3" * 5000
