"""Fake installed packages, without pip, for tests that run their recipes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def register(site: Path, distribution: str, version: str, entry_points: Mapping[str, str]) -> None:
    """Write what pip leaves for `importlib.metadata`: name, version and entry points.

    Args:
        site: A folder on ``sys.path``; made where it is missing.
        distribution: Name of the package.
        version: Of the package.
        entry_points: Name of the plugin → its module, which can be imported from elsewhere.
    """
    info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    lines = [f"{name} = {value}" for name, value in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[rlm]", *lines, ""]))


def registered(*plugins: str, autouse: bool = False) -> Any:
    """Return a fixture that registers packages by their entry points, even where other tests hide installed plugins.

    Its tests are skipped if the module of a package is not installed.

    ::

        _registered = registered("worlds", autouse=True)

    Args:
        plugins: Names of plugins: `worlds` is the module `rlm_worlds` of the package `rlm-worlds`.
        autouse: True to register them for every test in reach of the fixture.
    """
    import pytest

    @pytest.fixture(autouse=autouse)
    def fixture(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        site = tmp_path_factory.mktemp("site")
        for name in plugins:
            pytest.importorskip(f"rlm_{name}")
            register(site, f"rlm-{name}", "0", {name: f"rlm_{name}"})
        monkeypatch.syspath_prepend(str(site))

    return fixture
