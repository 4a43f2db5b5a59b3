"""Migration of older runs: the recipe of a run that was begun before names changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlm_plugins import recipe
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.resolved_values import resolved
from rlm_plugins.registry import Registry
from rlm_plugins.renamed import KEYS, KNOBS, PARTS
from rlm_plugins.run.migration import BACKUP, migrate, with_current_names
from rlm_plugins.run.resume import changes, check_resumable, without_new_defaults

OLDER = Path(__file__).parent / "data" / "recipe_of_an_older_run.yaml"


def test_older_run_has_the_recipe_of_today(tmp_path: Path) -> None:
    shutil.copy(OLDER, tmp_path / "recipe.yaml")
    (tmp_path / "manifest.json").write_text("{}")
    migrate(tmp_path)
    assert (tmp_path / BACKUP).read_bytes() == OLDER.read_bytes()
    migrated = (tmp_path / "recipe.yaml").read_text()
    loaded = recipe.load(tmp_path / "recipe.yaml")
    stages = compose(loaded, Registry(), build_environment=False)
    today = yaml.safe_load(yaml.safe_dump(dict(resolved(stages, loaded))))
    assert without_new_defaults(changes(yaml.safe_load(migrated), today), loaded, stages) == []
    (tmp_path / BACKUP).unlink()
    migrate(tmp_path)
    assert (tmp_path / "recipe.yaml").read_text() == migrated
    assert not (tmp_path / BACKUP).exists(), "nothing left to rename"


def test_run_of_an_older_version_resumes_without_allowed_changes(tmp_path: Path) -> None:
    """The default generator, now a plugin, was part of the core in that version."""
    shutil.copy(OLDER, tmp_path / "recipe.yaml")
    (tmp_path / "manifest.json").write_text('{"packages": {}, "plugins": {"builtin": "rlm-plugins 0.1.0"}}')
    migrate(tmp_path)
    check_resumable(tmp_path, recipe.load(tmp_path / "recipe.yaml"), Registry())


def test_new_setting_with_another_value_is_a_change(tmp_path: Path) -> None:
    shutil.copy(OLDER, tmp_path / "recipe.yaml")
    (tmp_path / "manifest.json").write_text("{}")
    migrate(tmp_path)
    recorded = yaml.safe_load((tmp_path / "recipe.yaml").read_text())
    loaded = recipe.load(tmp_path / "recipe.yaml", ["stages.0.evaluation.samples=4"])
    stages = compose(loaded, Registry(), build_environment=False)
    today = yaml.safe_load(yaml.safe_dump(dict(resolved(stages, loaded))))
    changed = without_new_defaults(changes(recorded, today), loaded, stages)
    assert changed == [("stages[0].evaluation.samples", "nothing", "4")]


@pytest.mark.parametrize(
    ("text", "manifest"), [("speed: {packed: true}\n", False), ("a: [1\n", True), ("- 1\n", True), ("", True)]
)
def test_recipe_stays_as_it_is(tmp_path: Path, text: str, manifest: bool) -> None:
    """This holds for a recipe that a user wrote, and for a damaged one, whose error the loader reports."""
    (tmp_path / "recipe.yaml").write_text(text)
    if manifest:
        (tmp_path / "manifest.json").write_text("{}")
    migrate(tmp_path)
    assert [path.name for path in tmp_path.glob("recipe*")] == ["recipe.yaml"]
    assert (tmp_path / "recipe.yaml").read_text() == text


@pytest.mark.parametrize(("old", "new"), KEYS.items())
def test_keys(old: str, new: str) -> None:
    section, _, key = old.partition(".")
    body: Any = {key: 1} if section == "speed" else [{"name": "x", key: 1}]
    document = {"algorithm": {"name": "grpo", "rollouts": body}} if section == "rollouts" else {section: body}
    assert f"'{new}': 1" in str(with_current_names(document))


@pytest.mark.parametrize(("old", "new"), PARTS.items())
@pytest.mark.parametrize("written", ["name", "mapping", "list"])
def test_parts(old: str, new: str, written: str) -> None:
    slot, _, name = old.partition("/")
    mapping = {"name": name, "x": 1}
    part: Any = {"name": name, "mapping": mapping, "list": [mapping]}[written]
    if slot == "algorithm":
        document: dict[str, Any] = {"algorithm": {"name": name}}
    elif slot in ("generator", "callbacks"):
        document = {slot: part}
    else:
        document = {"algorithm": {"name": "grpo", slot: part}}
    migrated = str(with_current_names({"stages": [document]}))
    assert f"'{new}'" in migrated
    assert f"'{name}'" not in migrated


@pytest.mark.parametrize(("old", "new"), KNOBS.items())
def test_knobs(old: str, new: str) -> None:
    document = {"algorithm": {"name": "grpo", "advantage": {"name": "x", old: 1}}}
    assert with_current_names(document)["algorithm"]["advantage"] == {"name": "x", new: 1}


def test_knobs_of_a_reward_stay() -> None:
    document = {"rewards": [{"name": "path_consistency", "most": 3}]}
    assert with_current_names(document) == document


def test_values() -> None:
    part = {"name": "gae", "masked_tokens": "through", "gamma": 1.0}
    migrated = with_current_names({"algorithm": {"name": "ppo", "advantage": part}})
    assert migrated["algorithm"]["advantage"]["masked_tokens"] == "discount"
    aggregator = {"name": "fixed_length", "empty_rows": "left_out", "over": "rows"}
    migrated = with_current_names({"algorithm": {"name": "dr_grpo", "aggregator": aggregator}})
    assert migrated["algorithm"]["aggregator"] == {
        "name": "fixed_length",
        "empty_completions": "excluded",
        "over": "completions",
    }
