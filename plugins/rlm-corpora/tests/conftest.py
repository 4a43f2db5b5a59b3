"""Registers the package for every test."""

import pytest
from rlm_testing.fake_packages import register


@pytest.fixture(autouse=True)
def _registered(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the package by its entry point, even where the core's tests hide installed plugins."""
    site = tmp_path_factory.mktemp("site")
    register(site, "rlm-corpora", "0", {"corpora": "rlm_corpora"})
    monkeypatch.syspath_prepend(str(site))
