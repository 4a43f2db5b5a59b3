"""Plugins for tests: packages that are installed without pip, as a module and a dist-info folder on ``sys.path``."""

from __future__ import annotations

import itertools
import textwrap
from pathlib import Path

import pytest
from rlm_testing.fake_packages import register

_number = itertools.count()


class Installer:
    """Installer of plugins for one test, each under a unique module name.

    Args:
        folder: Where they are written.
        monkeypatch: Takes them off ``sys.path`` again.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch

    def __call__(self, entry_point: str, source: str, *, distribution: str = "", version: str = "1.0") -> Path:
        """Write a module, register its entry point, and return the module's file."""
        module = f"guest_module_{next(_number)}"
        site = self._folder / f"site_{module}"
        site.mkdir()
        file = site / f"{module}.py"
        file.write_text(textwrap.dedent(source), encoding="utf-8")
        register(site, distribution or f"rlm-{entry_point}", version, {entry_point: module})
        self._monkeypatch.syspath_prepend(str(site))
        return file


def reward(name: str = "brevity", body: str = "return [0.0] * len(completions)") -> str:
    """Return the source of a plugin with one reward."""
    return f'''
from rlm_plugins import hookimpl

def {name}(completions, *, characters: int = 200):
    """A reward."""
    {body}

@hookimpl
def rlm_rewards():
    return {{"{name}": {name}}}
'''
