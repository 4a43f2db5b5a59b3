"""The benchmark of generation during the update: its page has its results."""

from __future__ import annotations

import json
from pathlib import Path

import overlap_generation

RESULTS = Path(overlap_generation.__file__).parent / "results"


def test_committed_page_equals_the_results() -> None:
    found = json.loads((RESULTS / "overlap_generation.json").read_text())
    assert (RESULTS / "overlap_generation.md").read_text() == overlap_generation.page(found)
    for each in found.values():
        for records in each["rounds"]:
            assert records.keys() == overlap_generation.ARMS.keys()
            one, two = (records[arm]["weights"] for arm in (overlap_generation.ONE, overlap_generation.OVERLAPPED))
            assert one == two
