"""``rlm reward probe``: scores of a reward for known completions, reproducibility, and agreement with others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rlm_audit.probe_cases import BARE, FORMS, correct_completions, demonstrations, traps
from rlm_audit.references import written
from rlm_audit.reward_call import Example, RewardCall, Scores, call_reward
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.checks.required_columns import check_columns, columns
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.document import parse_override
from rlm_plugins.registry import BUILTIN, Registry
from rlm_plugins.rewards.columns import reads_messages
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage import Reward

COMPARED = ("accuracy", "format")
"""Built-in rewards for the comparison without a recipe."""
DEFAULT_TIMEOUT = 60.0
"""Seconds per call if the recipe sets no `timeout`."""


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
    try:
        check_columns(EnvironmentSpec(train=examples), "training", [reward], "", "")
    except RlmError:
        return False
    return True


class Probe:
    """A reward under test, with examples.

    Args:
        rewards: The reward under test, then those to compare it with.
        examples: Examples with a ``prompt``.
        answer: Column of the correct answer; None: there is none.
        forms: Name → template of an answer.
    """

    def __init__(
        self,
        rewards: Sequence[Reward],
        examples: Sequence[Example],
        *,
        answer: str | None = "answer",
        forms: Mapping[str, str] = FORMS,
    ) -> None:
        bounded = [replace(r, timeout=r.timeout or DEFAULT_TIMEOUT, on_error="stop") for r in rewards]
        self._reward, self._compared = bounded[0], bounded[1:]
        self._examples, self._answer_column, self._forms = list(examples), answer, forms

    def report(self) -> dict[str, Any]:
        """Return all results as plain data."""
        examples, column, demonstrated = self._examples, self._answer_column, demonstrations(self._examples)
        answers = [written(example[column]) for example in examples] if column else []
        is_chat = not isinstance(examples[0]["prompt"], str)
        correct = correct_completions(answers, demonstrated, self._forms)
        on_correct = {name: call_reward(self._reward, examples, texts) for name, texts in correct.items()}
        best_form = max(on_correct, key=lambda name: _mean(on_correct[name]), default=None)
        form = self._best_form(on_correct) if answers or not demonstrated else BARE
        wrong = traps(examples, answers or demonstrated, form)
        on_traps = {name: call_reward(self._reward, examples, texts) for name, texts in wrong.items()}
        gold = on_correct[best_form].scores if best_form else []
        texts = {**({"gold": correct[best_form]} if best_form else {}), **wrong}
        return {
            "reward": self._reward.label,
            "full_name": self._reward.part.part.full_name,
            "file": self._reward.part.part.file,
            "rows": len(examples),
            "answer": column or ("demonstration" if demonstrated else None),
            "reference": (answers or demonstrated or [""])[0],
            "given": "messages" if is_chat and reads_messages(self._reward) else "text",
            "best_form": best_form,
            "gold": {name: call.summary for name, call in on_correct.items()},
            "traps": {
                name: {**call.summary, "as_good_as_gold": _as_good(call.scores, gold)}
                for name, call in on_traps.items()
            },
            "behavior": self._behavior(texts["gold"] if best_form else wrong["the prompt, echoed"]),
            "agreement": [self._agreement(other, texts) for other in self._compared],
        }

    def _best_form(self, on_correct: Mapping[str, RewardCall]) -> str:
        return self._forms[max(self._forms, key=lambda name: _mean(on_correct[name]) if name in on_correct else 0.0)]

    def _behavior(self, texts: Sequence[str]) -> dict[str, Any]:
        reward, examples = self._reward, self._examples
        first = call_reward(reward, examples, texts)
        repeated = call_reward(reward, examples, texts)
        reverse = call_reward(reward, examples[::-1], texts[::-1])
        single = [call_reward(reward, [example], [text]) for example, text in zip(examples, texts, strict=True)]
        behavior: dict[str, Any] = {
            "same_twice": first.scores == repeated.scores,
            "same_in_another_order": first.scores == reverse.scores[::-1],
            "same_alone": first.scores == list(chain.from_iterable(call.scores for call in single)),
            "milliseconds_alone": 1000 * max(call.seconds for call in single),
        }
        part = reward.part.part
        if self._answer_column in part.data:
            unanswered = [{**example, self._answer_column: None} for example in examples]
            behavior["without_answer"] = _outcome(call_reward(reward, unanswered, texts))
        return behavior

    def _agreement(self, other: Reward, texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        pairs: list[tuple[str, float, float]] = []
        for name, completions in texts.items():
            scores = call_reward(self._reward, self._examples, completions).scores
            other_scores = call_reward(other, self._examples, completions).scores
            pairs += [
                (name, a, b) for a, b in zip(scores, other_scores, strict=False) if a is not None and b is not None
            ]
        x = [a for _, a, _ in pairs]
        y = [b for _, _, b in pairs]
        halves = zip(pairs, _is_upper_half(x), _is_upper_half(y), strict=True)
        disagreeing = [name for (name, *_), a, b in halves if a != b]
        return {
            "with": other.label,
            "samples": len(pairs),
            "correlation": _correlation(x, y),
            "same_verdict": 1 - len(disagreeing) / len(pairs) if pairs else None,
            "apart_on": list(dict.fromkeys(disagreeing)),
        }


def _mean(call: RewardCall) -> float:
    mean = call.summary["mean"]
    return float("-inf") if mean is None else mean


def _as_good(scores: Scores, gold: Scores) -> int | None:
    if not gold:
        return None
    return sum(a is not None and b is not None and a >= b for a, b in zip(scores, gold, strict=False))


def _outcome(call: RewardCall) -> str:
    if call.error:
        return call.error
    outcomes = {"not scored (None)" if x is None else f"scored {x:g}" for x in call.scores}
    return " or ".join(sorted(outcomes))


def _is_upper_half(values: Sequence[float]) -> list[bool]:
    middle = (min(values) + max(values)) / 2 if values else 0.0
    return [value > middle for value in values]


def _centered(values: Sequence[float]) -> list[float]:
    mean = sum(values) / len(values)
    return [value - mean for value in values]


def _correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Return Pearson's correlation; None if one of them is constant."""
    if not x:
        return None
    a, b = _centered(x), _centered(y)
    norm = (sum(v * v for v in a) * sum(v * v for v in b)) ** 0.5
    return sum(v * w for v, w in zip(a, b, strict=True)) / norm if norm else None
