"""``rlm reward probe``: which reward is meant, and which rows it is asked about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rlm_plugins.cli.recipe_argument import read
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.checks.dataset import check_columns, columns
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.overrides import said
from rlm_plugins.registry import BUILTIN, Registry
from rlm_plugins.reward_probe.cases import FORMS
from rlm_plugins.reward_probe.probe import Probe
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage import Reward

COMPARED = ("accuracy", "format")
"""Built-in rewards that others are compared with where no recipe says which."""


def probe(
    name: str,
    settings: Sequence[str] = (),
    *,
    recipe: Path | None = None,
    environment: str = "addition",
    answer: str = "answer",
    forms: Sequence[str] = (),
    rows: int = 24,
    load: Sequence[Path] = (),
) -> dict[str, Any]:
    """Probes a reward.

    Args:
        name: Its name, or with a recipe its label.
        settings: ``key=value``: its knobs; with a recipe what is said anew of it.
        recipe: Where knobs, rows and the rewards it is compared with come from.
        environment: Where the rows come from without one.
        answer: The column with the right answers, where the rows have it.
        forms: Further ways to write an answer, with ``{answer}``.
        rows: How many at most.
        load: Single files to load as plugins.

    Raises:
        RlmError: There is no such reward, or the rows have not what it needs.
    """
    if recipe is not None:
        environment_spec, rewards, place = _of_recipe(name, recipe, settings)
    else:
        environment_spec, rewards, place = _of_registry(name, settings, environment, Registry(load))
    kind = "held-out" if len(environment_spec.test) else "training"
    if played := {"episodes", "environments"} & {*rewards[0].part.part.needs}:
        problem = f"'{name}' reads {max(played)}: what was played, and no text that could be made up"
        raise RlmError(
            problem, where="the probe", hint="`rlm eval RECIPE` plays the held-out rows with the model itself"
        )
    check_columns(environment_spec, kind, rewards[:1], place, "the probe")
    chosen = list(islice(iter(environment_spec.test if len(environment_spec.test) else environment_spec.train), rows))
    others = [reward for reward in rewards[1:] if _fits(reward, chosen)]
    given = {form: form for form in forms}
    column = answer if answer in columns(chosen) else None
    return Probe([rewards[0], *others], chosen, answer=column, forms={**given, **FORMS}).report()


def _of_recipe(name: str, recipe: Path, overrides: Sequence[str]) -> tuple[EnvironmentSpec, list[Reward], str]:
    """The world of the last stage that has the reward; else of the last one with rewards."""
    found, registry = read(recipe, overrides)
    stages = [stage for stage in compose(found, registry) if stage.rewards]
    if not stages:
        raise RlmError("no stage of this recipe has rewards", where=str(recipe))
    for stage in reversed(stages):
        for reward in stage.rewards:
            if name in (reward.label, reward.part.part.name, reward.part.part.full_name):
                others = [other for other in stage.rewards if other is not reward]
                return stage.environment_spec, [reward, *others], stage.body["environment"]["name"]
    stage, part = stages[-1], registry.find("rlm_rewards", name, where="the probe").bind({})
    return stage.environment_spec, [Reward(name, part), *stage.rewards], stage.body["environment"]["name"]


def _of_registry(
    name: str, knobs: Sequence[str], environment: str, registry: Registry
) -> tuple[EnvironmentSpec, list[Reward], str]:
    part = registry.find("rlm_rewards", name, where="the probe")
    bound = part.bind(dict(map(said, knobs)), where=name)
    environment_spec = registry.find("rlm_environments", environment, where="--environment").bind({}).call({})
    others = [registry.find("rlm_rewards", f"{BUILTIN}/{other}") for other in COMPARED]
    compared = [Reward(other.name, other.bind({})) for other in others if other != part]
    return environment_spec, [Reward(name, bound), *compared], environment


def _fits(reward: Reward, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a reward finds what it needs in the rows."""
    try:
        check_columns(EnvironmentSpec(train=rows), "training", [reward], "", "")
    except RlmError:
        return False
    return True
