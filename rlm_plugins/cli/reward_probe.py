"""``rlm reward probe``: the reward under test, its examples, and the rewards it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rlm_plugins.cli.recipe_argument import read
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.checks.required_columns import check_columns, columns
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.draft import parse_override
from rlm_plugins.registry import BUILTIN, Registry
from rlm_plugins.reward_probe.cases import FORMS
from rlm_plugins.reward_probe.probe import Probe
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage_settings import Reward

COMPARED = ("accuracy", "format")
"""Built-in rewards for the comparison without a recipe."""


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
    """Probe a reward.

    Args:
        name: Its name, or with a recipe its label.
        settings: ``key=value``: its knobs, or with a recipe its overrides.
        recipe: Supplies knobs, examples and the rewards for the comparison.
        environment: Supplies the examples without a recipe.
        answer: Column of the correct answers, if the examples have it.
        forms: Further templates of an answer, with ``{answer}``.
        rows: Maximum number of examples.
        load: Single files to load as plugins.

    Raises:
        RlmError: The reward is unknown, or the examples lack data that it needs.
    """
    if recipe is not None:
        environment_spec, rewards, environment_name = _of_recipe(name, recipe, settings)
    else:
        environment_spec, rewards, environment_name = _of_registry(name, settings, environment, Registry(load))
    kind = "held-out" if len(environment_spec.test) else "training"
    if episode_data := {"episodes", "environments"} & {*rewards[0].part.part.required_data}:
        problem = f"'{name}' requires `{max(episode_data)}` of a multi-turn environment, which a probe cannot construct"
        hint = "`rlm eval RECIPE` plays the held-out examples with the model"
        raise RlmError(problem, where="the probe", hint=hint)
    check_columns(environment_spec, kind, rewards[:1], environment_name, "the probe")
    source = environment_spec.test if len(environment_spec.test) else environment_spec.train
    examples = list(islice(iter(source), rows))
    compared = [reward for reward in rewards[1:] if _is_applicable(reward, examples)]
    column = answer if answer in columns(examples) else None
    templates = {**{form: form for form in forms}, **FORMS}
    return Probe([rewards[0], *compared], examples, answer=column, forms=templates).report()


def _of_recipe(name: str, recipe: Path, overrides: Sequence[str]) -> tuple[EnvironmentSpec, list[Reward], str]:
    """Return environment, rewards and environment's name of the last stage with that reward, else with any reward."""
    parsed, registry = read(recipe, overrides)
    stages = [stage for stage in compose(parsed, registry) if stage.rewards]
    if not stages:
        raise RlmError("no stage of this recipe has rewards", where=str(recipe))
    for stage in reversed(stages):
        for reward in stage.rewards:
            if name in (reward.label, reward.part.part.name, reward.part.part.full_name):
                other_rewards = [other for other in stage.rewards if other is not reward]
                return stage.environment_spec, [reward, *other_rewards], stage.body["environment"]["name"]
    stage, part = stages[-1], registry.find("rlm_rewards", name, where="the probe").bind({})
    return stage.environment_spec, [Reward(name, part), *stage.rewards], stage.body["environment"]["name"]


def _of_registry(
    name: str, knobs: Sequence[str], environment: str, registry: Registry
) -> tuple[EnvironmentSpec, list[Reward], str]:
    part = registry.find("rlm_rewards", name, where="the probe")
    bound = part.bind(dict(map(parse_override, knobs)), where=name)
    environment_spec = registry.find("rlm_environments", environment, where="--environment").bind({}).call({})
    parts = [registry.find("rlm_rewards", f"{BUILTIN}/{name}") for name in COMPARED]
    rewards = [Reward(x.name, x.bind({})) for x in parts if x != part]
    return environment_spec, [Reward(name, bound), *rewards], environment


def _is_applicable(reward: Reward, examples: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the examples have the columns that a reward needs."""
    try:
        check_columns(EnvironmentSpec(train=examples), "training", [reward], "", "")
    except RlmError:
        return False
    return True
