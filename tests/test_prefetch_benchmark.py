"""The benchmark of prefetching on short steps: both arms have equal losses, and its page has its results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import overlap
import pytest

TINY = replace(overlap.WORKLOAD, size="tiny", completion=12, mean=6, steps=2)
RESULTS = Path(overlap.__file__).parent / "results"


def test_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "KINDS", {"asynchronous": overlap.KINDS["asynchronous"]})
    (found,) = overlap.measure(1, TINY, times=(0.005,))
    assert {name: len(took) for name, took in found["clock"].items()} == {"without": 1, "with": 1}
    assert all(found["cpu"][name][0] > 0 for name in overlap.WHO)
    assert found["clock"]["without"][0] > 8 * 4 * 0.005 / 4, "four rows are asked about at a time, at most"


def test_committed_page_equals_the_results() -> None:
    found = json.loads((RESULTS / "overlap.json").read_text())
    assert (RESULTS / "overlap.md").read_text() == overlap.page(found)
    assert [(each["kind"], each["seconds"]) for each in found["measured"]] == [
        (kind, seconds) for kind in overlap.KINDS for seconds in overlap.TIMES
    ]
    assert found["rounds"] >= 5
