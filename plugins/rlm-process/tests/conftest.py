"""The package as it is found where it is installed: by its entry point."""

from pathlib import Path

import pytest

from rlm_plugins.testing.fake_packages import register


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the tests of the core hide what is installed."""
    register(tmp_path / "site", "rlm-process", "0", {"process": "rlm_process"})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
