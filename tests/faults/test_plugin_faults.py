"""Plugins that hang, exit, raise or are damaged disable only themselves, and are named with their version."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry import Registry, registry
from rlm_plugins.registry.index import set_disabled
from rlm_plugins.registry.loading import required_version

IMPORTS: dict[str, tuple[str, str]] = {
    "hangs": ("import time; time.sleep(600)", "longer than 0.5 s: File"),
    "exits": ("import sys; sys.exit(0)", "SystemExit"),
    "interrupts": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "lacks a module": ("import no_such_module_of_rlm", "no_such_module_of_rlm"),
    "has a syntax error": ("def (", "SyntaxError"),
    "has NUL bytes": ("x = '\0'", "null byte|SyntaxError|ValueError|source code"),
    "raises": ("1 / 0", "ZeroDivisionError"),
    "raises a base exception": ("raise GeneratorExit", "GeneratorExit"),
    "recurses": ("def f(): f()\nf()", "RecursionError"),
}

HOOKS: dict[str, tuple[str, str]] = {
    "hangs": ("import time; time.sleep(600)", "longer than 0.5 s: File"),
    "exits": ("raise SystemExit(3)", "SystemExit"),
    "interrupts": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "raises": ("1 / 0", "ZeroDivisionError"),
    "returns a list": ("return []", "got list"),
    "returns a number": ("return 3", "got int"),
    "returns a name that is none": ("return {3: len}", "registers a part called 3"),
    "returns a part that is none": ("return {'x': 3}", "'x'"),
    "names a part like a built-in one": (
        "return {'accuracy': lambda completions: []}",
        "the reserved name of a built-in",
    ),
}
"""Body of a hook, and a word of its error."""
MODULES: dict[str, tuple[str, str]] = {
    "hooks of a later version": ("rlm_api = 2\nNEW", "hooks are those of API 2, and this is API 1"),
    "an API that is no number": ("rlm_api = 'two'\nNEW", "hooks are those of API two"),
    "an attribute that raises": ("def __getattr__(name): raise RuntimeError('no ' + name)", "RuntimeError: no"),
    "no hook": ("x = 1", "implements no hook"),
}
"""Text of a module, and a word of its error."""
NEW = "from rlm_plugins import hookimpl\n@hookimpl\ndef rlm_new_hook(): return {}"


class Point:
    """An entry point whose module is source text."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.value, self.group, self._source = name, f"{name}:x", "rlm", source
        self.dist = SimpleNamespace(name=f"rlm-{name}", version="1.2")

    def load(self) -> Any:
        module = ModuleType(self.name)
        exec(compile(self._source, f"{self.name}.py", "exec"), vars(module))
        return module


SOUND = """
from rlm_plugins import hookimpl
def it(completions):
    return [0.0] * len(completions)
@hookimpl
def rlm_rewards():
    return {"sound_reward": it}
"""


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(registry, "IMPORT_SECONDS", 0.5)

    def offer(*points: Point) -> None:
        monkeypatch.setattr(
            importlib.metadata, "entry_points", lambda group="", **_: list(points) if group == "rlm" else []
        )

    return offer


@pytest.mark.faults(group="F9")
def test_failed_imports_cost_one_plugin(offered: Callable[..., None], cases: Any) -> None:
    for name, (source, word) in IMPORTS.items():
        with cases(name):
            offered(Point("bad", source), Point("sound", SOUND))
            start, found = time.monotonic(), Registry()
            found.load_all()
            assert time.monotonic() - start < 60
            error = found.plugins["bad"].error
            assert error is not None
            text = f"{type(error).__name__}: {error}"
            assert any(part in text for part in word.split("|")), text
            assert found.plugins["bad"].origin == "rlm-bad 1.2"
            assert found.find("rlm_rewards", "sound_reward").plugin == "sound"


def error_of(point: Point) -> str:
    """Return the error of a plugin, and check that another plugin is loaded."""
    found = Registry()
    found.load_all()
    error = found.plugins[point.name].error
    assert error is not None
    assert found.plugins[point.name].origin == f"rlm-{point.name} 1.2"
    assert found.find("rlm_rewards", "sound_reward").plugin == "sound"
    return f"{type(error).__name__}: {error}"


@pytest.mark.faults(group="F9")
def test_failed_hooks_cost_one_plugin(offered: Callable[..., None], cases: Any) -> None:
    head = "from rlm_plugins import hookimpl\n@hookimpl\ndef rlm_rewards():\n    "
    texts = {f"a hook that {name}": (head + body, word) for name, (body, word) in HOOKS.items()}
    for name, (source, word) in (texts | MODULES).items():
        with cases(name):
            bad = Point("bad", source.replace("NEW", NEW))
            offered(bad, Point("sound", SOUND))
            assert word in error_of(bad)


@pytest.mark.faults(group="F9")
def test_an_import_changes_neither_output_nor_folder(
    offered: Callable[..., None], cases: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, line in {
        "prints": "print('hello')",
        "closes stdout": "import sys; sys.stdout.close()",
        "changes the working directory": "import os; os.chdir('/')",
    }.items():
        with cases(name):
            folder = os.getcwd()
            offered(Point("sound", f"{line}\n{SOUND}"))
            assert Registry().find("rlm_rewards", "sound_reward")
            assert os.getcwd() == folder
            assert capsys.readouterr().out == ""


DAMAGED = {
    "a line that is no entry point": b"[rlm]\nthis line is no entry point\n",
    "bytes that are no text": b"[rlm]\nx = \xff\xfe\n",
}


@pytest.mark.slow
@pytest.mark.faults(group="F9")
def test_damaged_entry_points_cost_one_distribution(tmp_path: Path, cases: Any) -> None:
    """The entry points of all distributions are also read by pydantic and torch, which must not fail."""
    for number, content in enumerate(DAMAGED.values()):
        folder = tmp_path / f"rlm_damaged{number}-0.3.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: rlm-damaged{number}\nVersion: 0.3\n")
        (folder / "entry_points.txt").write_bytes(content)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    command = [sys.executable, "-m", "rlm_plugins", "explain", "plugins", "--json"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    errors = {entry["name"]: entry["error"] for entry in json.loads(done.stdout)}
    assert errors["builtin"] is None
    for number, name in enumerate(DAMAGED):
        with cases(name):
            told = f"entry_points.txt of rlm-damaged{number} 0.3 cannot be read"
            assert told in errors[f"rlm-damaged{number}"]


@pytest.mark.faults(group="F9")
def test_a_plugin_with_the_name_of_our_own_parts_costs_itself(offered: Callable[..., None], cases: Any) -> None:
    with cases("builtin"):
        offered(Point("builtin", SOUND), Point("sound", SOUND.replace("sound_reward", "other_reward")))
        found = Registry()
        assert found.plugins["builtin"].error is None
        assert "the name 'builtin' is reserved" in str(found.plugins["rlm-builtin 1.2"].error)
        assert found.find("rlm_rewards", "accuracy").plugin == "builtin"
        assert found.find("rlm_rewards", "other_reward").plugin == "sound"
        with pytest.raises(RecipeError, match="sound_reward"):
            found.find("rlm_rewards", "sound_reward")


@pytest.mark.faults(group="F9")
def test_disabled_plugins_are_left_out(offered: Callable[..., None], cases: Any) -> None:
    offered(Point("sound", SOUND))
    for present in (False, True):
        with cases("enabled" if present else "disabled"):
            set_disabled("sound", disable=not present)
            assert ("sound" in Registry().plugins) is present


@pytest.mark.faults(group="F9")
def test_a_plugin_for_other_versions_is_left_out(
    offered: Callable[..., None], monkeypatch: pytest.MonkeyPatch, cases: Any
) -> None:
    for requirement, told in (
        ("rlm-plugins>=99", True),
        ("trl<1", True),
        ("torch!=0.0.1", False),
        ("no-such-package>=3", False),
        ("trl<1; extra == 'old'", False),
        ("rlm_plugins<0.0.1", True),
        ("rlm-plugins", False),
        ("x", False),
    ):
        with cases(requirement):
            monkeypatch.setattr(importlib.metadata, "requires", lambda _, text=requirement: [text])
            assert bool(required_version("rlm-later 1.0")) is told
            offered(Point("later", SOUND.replace("sound", "later")))
            assert Registry().offers("rlm_rewards", "later_reward") is not told


@pytest.mark.faults(group="F9")
def test_an_import_that_hung_is_not_tried_again(
    offered: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: Any
) -> None:
    (tmp_path / "hung.py").write_text("import time; time.sleep(600)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RLM_CACHE", str(tmp_path / "cache"))
    point = Point("hung", "import hung")
    for name, least, told in (("first", 0.5, "takes longer"), ("again", 0, "--enable hung"), ("on", 0.5, "longer")):
        with cases(name):
            if name == "on":
                set_disabled("hung", disable=False)
            offered(point, Point("sound", SOUND))
            start = time.monotonic()
            assert told in error_of(point)
            assert least <= time.monotonic() - start < least + 0.5
