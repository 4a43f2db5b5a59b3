"""Makes the programs beside the tests importable, wherever pytest is started, and starts one sandbox per module."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def sandbox() -> Iterator[object]:
    """Return a sandbox with two workers, which the tests of a module share."""
    from rlm_sandbox import Local

    runner = Local(2)
    yield runner
    runner.close()
