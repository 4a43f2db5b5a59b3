"""Fixtures: the package, registered by its entry point."""

from pathlib import Path

import pytest
from rlm_testing.fake_packages import register


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the package even where the core's tests hide installed plugins."""
    register(tmp_path / "site", "rlm-process", "0", {"process": "rlm_process"})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
