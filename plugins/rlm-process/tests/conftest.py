"""The package as it is found where it is installed: by its entry point."""

from pathlib import Path

import pytest


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the tests of the core hide what is installed."""
    info = tmp_path / "site" / "rlm_process-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlm-process\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[rlm]\nprocess = rlm_process\n")
    monkeypatch.syspath_prepend(str(info.parent))
