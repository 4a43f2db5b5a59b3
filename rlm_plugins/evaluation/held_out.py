"""Held-out evaluation: greedy completions, scored with the rewards of the recipe."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rlm_plugins.distributed import processes
from rlm_plugins.evaluation.completions import Completions, complete
from rlm_plugins.evaluation.held_out_report import Report, interval
from rlm_plugins.models.auto_class import tokenizer_of
from rlm_plugins.recipe.checks.required_columns import NOT_FOR_REWARDS
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Evaluates, Stateful
from rlm_plugins.rewards.columns import reward_columns, text_of
from rlm_plugins.rewards.fault import Fault, raise_on_all_processes
from rlm_plugins.rewards.trl_adapter import compute_scores, setup_parts, trl_reward
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage import Stage
from rlm_plugins.stage_settings import Reward


def evaluate_stage(
    stage: Stage,
    examples: Sequence[Mapping[str, Any]],
    model: Any,
    tokenizer: Any,
    sampling: Mapping[str, Any] | None = None,
) -> Report:
    """Evaluate a model with the settings of its stage, or with the method of its trainer; see `evaluate`."""
    evaluation, settings = stage.evaluation, stage.settings
    assert evaluation is not None
    if isinstance(stage.trainer, Evaluates):
        return stage.trainer.evaluate(stage, examples, model)
    setup_parts((reward.part for reward in stage.rewards), model, stage.place.results, tokenizer_of(tokenizer))
    return evaluate(
        model,
        tokenizer,
        examples,
        stage.rewards,
        metric=evaluation.metric,
        batch_size=evaluation.batch_size,
        max_new_tokens=settings.get("max_completion_length") or evaluation.max_new_tokens,
        chat_template_kwargs=settings.get("chat_template_kwargs"),
        environment_spec=stage.environment_spec,
        generator=stage.generator,
        sampling=sampling,
    )


def evaluate_suite(stage: Stage, model: Any, tokenizer: Any) -> dict[str, Report]:
    """Evaluate a model on the further held-out sets of its stage; name → report."""
    reports = {}
    for name, environment_spec in stage.suite.items():
        examples = list(environment_spec.test)[: (stage.evaluation.rows if stage.evaluation else 0) or None]
        reports[name] = evaluate_stage(replace(stage, environment_spec=environment_spec), examples, model, tokenizer)
    return reports


def evaluate(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Mapping[str, Any]],
    rewards: Sequence[Reward],
    *,
    metric: str,
    batch_size: int,
    max_new_tokens: int,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    environment_spec: EnvironmentSpec | None = None,
    generator: Bound | None = None,
    sampling: Mapping[str, Any] | None = None,
) -> Report:
    """Generate a completion for every example and score it; each process evaluates its share.

    Args:
        model: A causal language model; its mode is restored and no random number is drawn. The state of stateful
            rewards is restored as well, so that an evaluation does not change the training.
        tokenizer: Its tokenizer, padding on the left, or its processor.
        examples: Held-out examples with a ``prompt``.
        rewards: The rewards.
        metric: Label of the reward that is the score.
        batch_size: Completions generated at once.
        max_new_tokens: Maximum length of a completion, in tokens.
        chat_template_kwargs: As in GRPOConfig.
        environment_spec: If it is multi-turn, every example is an episode, played as in training.
        generator: The generator; None: `transformers.generate`.
        sampling: Fields of ``GenerationConfig`` to sample with; None: greedy completions.

    Raises:
        Fault: A reward failed that stops the run; on every process.
    """
    from accelerate.utils import gather_object

    state = processes()
    local = list(enumerate(examples))[state.process_index :: state.num_processes]
    samples: list[dict[str, Any]] = []
    fault: Fault | None = None
    with _restored_state(rewards):
        for start in range(0, len(local), batch_size):
            numbers, batch = zip(*local[start : start + batch_size], strict=True)
            completions = complete(
                model,
                tokenizer,
                batch,
                max_new_tokens,
                chat_template_kwargs or {},
                environment_spec,
                generator,
                sampling,
            )
            try:
                scored = _scored(completions, batch, rewards) if fault is None else []
                samples += [{"index": number, **sample} for number, sample in zip(numbers, scored, strict=False)]
            except Fault as error:
                fault = error
    raise_on_all_processes(fault)
    samples = gather_object(samples) if state.num_processes > 1 else samples
    samples.sort(key=lambda sample: int(sample["index"]))
    scores = {reward.label: _scores_of(reward.label, samples) for reward in rewards}
    low, high = interval(scores[metric])
    means = {label: sum(x) / len(x) if x else math.nan for label, x in scores.items()}
    is_share = set(scores[metric]) <= {0.0, 1.0}
    return Report(means[metric], low, high, len(samples), means, samples, is_share)


def _scores_of(label: str, samples: Sequence[Mapping[str, Any]]) -> list[float]:
    scores = (sample["rewards"][label] for sample in samples)
    return [score for score in scores if score is not None]


@contextmanager
def _restored_state(rewards: Sequence[Reward]) -> Iterator[None]:
    """Restore the state of stateful rewards on exit."""
    parts: list[Any] = [reward.part.target for reward in rewards if isinstance(reward.part.target, Stateful)]
    states = [copy.deepcopy(part.state_dict()) for part in parts]
    try:
        yield
    finally:
        for part, state in zip(parts, states, strict=True):
            part.load_state_dict(state)


def _scored(
    completions: Completions, examples: Sequence[Mapping[str, Any]], rewards: Sequence[Reward]
) -> list[dict[str, Any]]:
    """Return prompt, completion, rewards and length of each example."""
    columns = list(map(_reward_columns, examples))
    no_logs: dict[str, Any] = {"trainer_state": None, "log_extra": _discard, "log_metric": _discard}
    data = reward_columns(
        completions.prompts,
        completions.completions,
        completions.completion_ids,
        columns,
        **completions.columns,
        **no_logs,
    )
    scores = {reward.label: compute_scores(trl_reward(reward), data) for reward in rewards}
    samples = []
    for i in range(len(examples)):
        sample = {"prompt": text_of(completions.prompts[i]), "completion": completions.texts[i]}
        rewards_of_sample = {label: values[i] for label, values in scores.items()}
        samples.append({**sample, "rewards": rewards_of_sample, "tokens": len(completions.completion_ids[i])})
    return samples


def _reward_columns(example: Mapping[str, Any]) -> dict[str, Any]:
    return {name: x for name, x in example.items() if name not in NOT_FOR_REWARDS}


def _discard(*_: Any) -> None:
    """Discard a log of a reward: the report has its own means."""
