"""Every name that changed before the first release: the old one is an error whose hint is the new one."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rlm_plugins import renamed
from rlm_plugins.batch import LOSS, SCORING, names
from rlm_plugins.errors import PluginError, RecipeError
from rlm_plugins.hooks import GENERATING, HOOKS, ROLLOUT
from rlm_plugins.recipe import document
from rlm_plugins.recipe.part_lookup import HOOK_OF
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.renamed import hint

REGISTRY = Registry()
RECIPE = """\
model: scratch
environment: addition
rewards: [{name: accuracy}]
algorithm: {name: grpo, rollouts: [{name: demonstrations}], penalties: [{name: nll, beta: 0.1}]}
speed: {}
"""


def hook_with(datum: str) -> str:
    """Return a hook whose parts may name `datum`."""
    known = {hook: names(seam.data) for hook, seam in HOOKS.items() if seam.data in (SCORING, LOSS)}
    known |= {"rlm_rollouts": list(ROLLOUT), "rlm_generators": list(GENERATING)}
    return next(hook for hook, data in known.items() if datum in data)


def part_with(datum: str, hook: str) -> Part:
    namespace: dict[str, Callable[..., object]] = {}
    exec(f"def part({datum}): ...", namespace)
    return Part(hook, "mine", "guest", namespace["part"])


DATA = {old: new for old, new in renamed.DATA.items() if new not in ("keep_mask", "counts_for_refill")}
"""No part may name the others: they are fields of the batch for the machine."""


@pytest.mark.parametrize(("old", "new"), DATA.items())
def test_data(old: str, new: str) -> None:
    hook = hook_with(new)
    part_with(new, hook).check()
    with pytest.raises(PluginError, match=f"'{old}' is called '{new}' now"):
        part_with(old, hook).check()


@pytest.mark.parametrize(("old", "new"), renamed.KEYS.items())
def test_keys_of_a_recipe(old: str, new: str, tmp_path: Path) -> None:
    section, _, key = old.partition(".")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    inside = {"rewards": "rewards.0", "rollouts": "algorithm.rollouts.0", "penalties": "algorithm.penalties.0"}
    place = inside.get(section, section)
    value = "true" if section != "rollouts" else "1"
    with pytest.raises(RecipeError, match=f"unknown (key|knob) '{key}'(.|\n)*'{key}' is called '{new}' now"):
        bound_from(tmp_path / "recipe.yaml", f"{place}.{key}={value}", section, key)


def bound_from(path: Path, override: str, section: str, key: str) -> None:
    """Read a recipe, and bind the part that the override is about."""
    body = document.load(path, [override]).bodies[0]
    entry = (body.get(section) or body["algorithm"][section])[0]
    REGISTRY.find(HOOK_OF[section], entry["name"]).bind({key: entry[key]})


@pytest.mark.parametrize(("old", "new"), renamed.PARTS.items())
def test_parts(old: str, new: str) -> None:
    key, _, name = old.partition("/")
    REGISTRY.find(HOOK_OF[key], new)
    with pytest.raises(RecipeError, match=f"'{name}' is called '{new}' now"):
        REGISTRY.find(HOOK_OF[key], name)


@pytest.mark.parametrize(("old", "new"), renamed.KNOBS.items())
def test_knobs(old: str, new: str) -> None:
    having = [part for part in REGISTRY if part.hook != "rlm_algorithms" and new in part.knobs.model_fields]
    assert having
    with pytest.raises(RecipeError, match=f"'{old}' is called '{new}' now"):
        having[0].bind({old: 1})


@pytest.mark.parametrize(("old", "new"), renamed.METRICS.items())
def test_metrics(old: str, new: str) -> None:
    package = Path(renamed.__file__).parent
    sources = [path.read_text(encoding="utf-8") for path in package.rglob("*.py") if path.name != "renamed.py"]
    assert any(new in source for source in sources)
    assert not any(f'"{old}"' in source for source in sources)


@pytest.mark.parametrize(("old", "new"), [*renamed.MODULES.items()])
def test_modules(old: str, new: str, tmp_path: Path) -> None:
    importlib.import_module(f"rlm_plugins.{new}")
    assert import_error(tmp_path, f"from rlm_plugins.{old} import anything\n").endswith(
        f"'rlm_plugins.{old}' is called 'rlm_plugins.{new}' now"
    )


@pytest.mark.parametrize(("old", "new"), renamed.CLASSES.items())
def test_classes(old: str, new: str, tmp_path: Path) -> None:
    module, _, name = old.rpartition(".")
    home, _, now = new.rpartition(".")
    assert hasattr(importlib.import_module(f"rlm_plugins.{home}"), now)
    modules = [module] if name == now else [module, home]
    for path in modules:
        error = import_error(tmp_path, f"from rlm_plugins.{path} import {name} as it\n")
        assert f"is called 'rlm_plugins.{new}' now" in error


def import_error(folder: Path, text: str) -> str:
    """Return the hint for a plugin file that imports an old name."""
    path = folder / "old.py"
    path.write_text(text)
    registry = Registry.__new__(Registry)  # without the plugins of this machine, which take a second to load
    registry.plugins = {}
    with pytest.raises(PluginError) as caught:
        registry._add_file(path)
    return caught.value.hint


def test_other_names_have_no_rename_hint() -> None:
    for table in (renamed.DATA, renamed.MEMBERS, renamed.KEYS, renamed.PARTS, renamed.KNOBS):
        assert hint(table, "epsilon") == ""
    assert renamed.import_hint(ImportError("No module named 'numpy'")) == ""
    assert renamed.import_hint(ValueError("rlm_plugins.rows")) == ""


def test_the_changelog_names_all_of_them() -> None:
    text = (Path(__file__).parent.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    table = text.partition("### Renamed")[2].partition("### Added")[0]
    listed = {tuple(pair.split(" → ")) for pair in re.findall(r"`?[\w./]+`?[^|,→]* → [\w./]+", table)}
    pairs = {(re.findall(r"[\w./]+", old)[0], new) for old, new in listed}
    tables = (renamed.DATA, renamed.MEMBERS, renamed.KNOBS, renamed.METRICS)
    wanted = {(old, new) for table in tables for old, new in table.items()}
    wanted |= {(re.split(r"[./]", old)[-1], new) for old, new in (renamed.KEYS | renamed.PARTS).items()}
    missing = {(old, new) for old, new in wanted if (old, new) not in pairs and f"{old} → {new}" not in table}
    assert missing == set()
