"""`rlm explain`: the entries of a name, and their text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rlm_lab.explain import explain, known
from rlm_lab.explain_text import render
from rlm_lab.metrics import METRICS
from rlm_lab.recipe_keys import knobs
from rlm_testing.fake_packages import register

from rlm_plugins.equation.batch import MEANINGS, SHAPES
from rlm_plugins.equation.glossary import TERMS
from rlm_plugins.errors import RlmError
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part

REGISTRY = Registry()


def kinds(name: str, registry: Registry = REGISTRY) -> list[tuple[str, str]]:
    return [(entry["kind"], entry.get("hook", entry["name"])) for entry in explain(name, registry)]


def test_everything_that_has_a_name_can_be_explained() -> None:
    bare = [name for name in known(REGISTRY) if "/" not in name and name not in TERMS]
    for name in [*bare, *(metric.name for metric in METRICS)]:
        entries = explain(name, REGISTRY)
        assert entries, name
        assert json.loads(json.dumps(entries)) is not None
        for entry in entries:
            text = render(entry)
            assert entry["name"] in text
            assert not any(line != line.rstrip() for line in text.splitlines()), name


def test_a_part() -> None:
    (clip,) = explain("clip", REGISTRY)
    assert (clip["kind"], clip["full_name"], clip["hook"], clip["key"]) == (
        "part",
        "builtin/clip",
        "rlm_policy_losses",
        "policy_loss",
    )
    source = Path(clip["file"]).read_text().splitlines()
    assert source[clip["line"] - 1].startswith("def clip(")
    assert clip["formula"].startswith("ℓ = −min(")
    assert clip["knobs"][0] == {
        "name": "epsilon",
        "type": "number ≥ 0",
        "schema": {"type": "number", "minimum": 0},
        "required": False,
        "default": 0.2,
    }
    ratio, _, log = clip["data"]
    assert ratio == {"name": "ratio", "required": True, "shape": SHAPES["ratio"], "meaning": MEANINGS["ratio"]}
    assert not log["required"]


def test_name_with_several_entries() -> None:
    assert kinds("entropy") == [("part", "rlm_penalties"), ("batch", "entropy"), ("metric", "entropy")]
    assert kinds("grpo") == [("algorithm", "rlm_algorithms"), ("part", "rlm_trainers")]
    assert kinds("cispo") == [("part", "rlm_policy_losses"), ("algorithm", "rlm_algorithms")]
    assert kinds("epsilon") == [("knob", "epsilon"), ("setting", "epsilon")]


def test_an_algorithm() -> None:
    row, _ = explain("grpo", REGISTRY)
    assert row["slots"]["policy_loss"] == {"name": "clip", "epsilon": 0.2}
    assert Path(row["file"]).name == "algorithms.toml"
    text = " ".join(render(row).split())
    for words in (
        row["about"],
        row["source"],
        row["pitfalls"],
        "clip(epsilon=0.2, ",
        "kl(beta=0.04, ",
        row["objective"],
    ):
        assert words in text


def test_a_hook_by_name_and_by_key() -> None:
    assert explain("rlm_advantages", REGISTRY) == explain("advantage", REGISTRY)
    (hook,) = explain("advantage", REGISTRY)
    assert [part["name"] for part in hook["parts"]] == REGISTRY.names("rlm_advantages")
    assert "median_baseline" in render(hook), "the docstring of a hook shows a complete part"
    assert {datum["name"] for datum in hook["data"]} >= {"rewards", "group", "values"}


def test_a_recipe_key_that_names_no_part() -> None:
    (key,) = [entry for entry in explain("evaluation", REGISTRY) if entry["kind"] == "key"]
    (every,) = [below for below in key["keys"] if below["address"] == "evaluation.every"]
    assert (every["type"], every["default"]) == ("whole number ≥ 0", 0)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("clpi", "clip"), ("rlm_advantage", "rlm_advantages"), ("rewrad_std", "reward_std"), ("evalution", "evaluation")],
)
def test_unknown(wrong: str, right: str) -> None:
    with pytest.raises(RlmError, match=f"did you mean '{right}'"):
        explain(wrong, REGISTRY)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, source: str) -> Registry:
    """Return a registry with a package `rlm-acme` 2.3 that has this source."""
    (folder / f"{module}.py").write_text(f"from rlm_plugins import hookimpl\n{source}")
    register(folder, "rlm-acme", "2.3", {"acme": module})
    monkeypatch.syspath_prepend(str(folder))
    return Registry()


def test_a_setting_of_a_plugin_is_explained_like_a_field_of_the_config() -> None:
    (setting,) = explain("target_kl", REGISTRY)
    assert (setting["kind"], setting["address"], setting["type"]) == (
        "setting",
        "trainer.target_kl",
        "number > 0 or null",
    )
    assert "the updates left on the batch are skipped" in " ".join(render(setting).split())


class RunningBaseline:
    """Â = r − b: a running baseline."""

    def __init__(self, *, decay: float = 0.5) -> None:
        self.decay = decay

    def __call__(self, rewards: Any) -> Any:
        return rewards


def test_a_stateful_part() -> None:
    part = Part("rlm_advantages", "running_baseline", "test", RunningBaseline)
    assert [knob["name"] for knob in knobs(part)] == ["decay"]
    registry = Registry()
    registry.add(part)
    registry.plugins["test"] = registry.plugins["builtin"]
    (entry,) = explain("running_baseline", registry)
    assert entry["formula"] == "Â = r − b"
    assert entry["data"][0]["name"] == "rewards"
    assert Path(entry["file"]).name == "test_explain.py"
    assert Path(entry["file"]).read_text().splitlines()[entry["line"] - 1] == "class RunningBaseline:"
