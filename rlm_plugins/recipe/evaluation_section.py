"""The section `evaluation`: its metric, and the environments of its suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.recipe.part_lookup import Finder
from rlm_plugins.registry.part import Bound
from rlm_plugins.stage_settings import Evaluation


def evaluation_of(
    finder: Finder, section: Mapping[str, Any] | None, labels: list[str]
) -> tuple[Evaluation | None, dict[str, Bound], dict[str, Any] | None]:
    """Return the evaluation, the environments of its suite, and its section as plain data.

    Raises:
        RecipeError: An unknown metric or environment, or a key without what it uses.
    """
    if section is None or not labels:
        return None, {}, None
    evaluation = Evaluation(
        **{"metric": labels[0], **{key: value for key, value in section.items() if value is not None}}
    )
    if evaluation.metric not in labels:
        raise RecipeError(
            f"unknown metric '{evaluation.metric}'",
            where=finder.address("evaluation", "metric"),
            allowed=", ".join(labels),
            hint=nearest(evaluation.metric, labels),
        )
    _check(evaluation, finder.address("evaluation"))
    finder.record_origin(evaluation.metric, ("evaluation", "metric"), "the first reward")
    finder.record_origin(asdict(evaluation), ("evaluation",), "default")
    suite, plain = {}, {}
    for name, spec in evaluation.suite.items():
        suite[name], plain[name] = finder.part("environment", spec, ("evaluation", "suite", name))
    return evaluation, suite, {**asdict(evaluation), "suite": plain}


def _check(evaluation: Evaluation, where: str) -> None:
    """Check that keys of the evaluation that depend on other keys have them."""
    if evaluation.k and max(evaluation.k) > evaluation.samples:
        problem = f"k of {max(evaluation.k)} requires as many samples, got `samples: {evaluation.samples}`"
        raise RecipeError(problem, where=f"{where}.k", hint=f"`samples: {max(evaluation.k)}` or more")
    for name, spec in evaluation.suite.items():
        if not isinstance(spec.get("name"), str):
            problem = f"expected an environment with a `name`, got {spec}"
            raise RecipeError(problem, where=f"{where}.suite.{name}", hint="as in `{name: addition, digits: 4}`")
    for key in ("keep", "stop"):
        if getattr(evaluation, key) not in ("last", 0) and not evaluation.every:
            problem = f"`{key}: {getattr(evaluation, key)}` requires evaluations during training"
            raise RecipeError(problem, where=f"{where}.{key}", hint="`every: 10` evaluates every 10 optimizer steps")
