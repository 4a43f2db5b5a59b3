"""Held-out evaluation: completions scored with the rewards of the recipe."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from rlm_plugins.data.answer_extraction import final_answers, parse_number
from rlm_plugins.evaluation.completions import Completions, complete
from rlm_plugins.evaluation.scores import Report, SampledScores, default_ks, interval, score_text
from rlm_plugins.models.pretrained import tokenizer_of
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Evaluates, Stateful
from rlm_plugins.rewards.columns import example_data, text_of
from rlm_plugins.rewards.fault import Fault, raise_on_all_processes
from rlm_plugins.rewards.trl_adapter import compute_scores, setup_parts, trl_reward
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage import Reward, Stage
from rlm_plugins.workers.distributed import gather_lists, processes

PROGRESS_SECONDS = 3.0
"""Seconds between two lines on the progress of an evaluation."""


def evaluate_stage(
    stage: Stage,
    examples: Sequence[Mapping[str, Any]],
    model: Any,
    tokenizer: Any,
    sampling: Mapping[str, Any] | None = None,
    log_line: Callable[[str], None] | None = None,
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
        max_new_tokens=stage.longest_completion,
        chat_template_kwargs=settings.get("chat_template_kwargs"),
        environment_spec=stage.environment_spec,
        generator=stage.generator,
        sampling=sampling,
        log_line=log_line,
    )


def evaluate_suite(
    stage: Stage, model: Any, tokenizer: Any, log_line: Callable[[str], None] | None = None
) -> dict[str, Report]:
    """Evaluate a model on the further held-out sets of its stage; name → report."""
    reports = {}
    for name, environment_spec in stage.suite.items():
        examples = list(environment_spec.test)[: (stage.evaluation.rows if stage.evaluation else 0) or None]
        of_set = replace(stage, environment_spec=environment_spec)
        reports[name] = evaluate_stage(of_set, examples, model, tokenizer, log_line=log_line)
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
    log_line: Callable[[str], None] | None = None,
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
        log_line: Called every few seconds with the progress and the time left.

    Raises:
        Fault: A reward failed that stops the run; on every process.
    """
    state = processes()
    local = list(enumerate(examples))[state.process_index :: state.num_processes]
    samples: list[dict[str, Any]] = []
    fault: Fault | None = None
    progress = Progress(len(local), log_line)
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
            progress.advance(len(batch))
    raise_on_all_processes(fault)
    samples = sorted(gather_lists(samples), key=lambda sample: int(sample["index"]))
    scores = {reward.label: _scores_of(reward.label, samples) for reward in rewards}
    low, high = interval(scores[metric])
    means = {label: sum(x) / len(x) if x else math.nan for label, x in scores.items()}
    is_share = set(scores[metric]) <= {0.0, 1.0}
    return Report(means[metric], low, high, len(samples), means, samples, is_share)


class Progress:
    """Progress of an evaluation, as a line of text every few seconds."""

    def __init__(self, total: int, log_line: Callable[[str], None] | None) -> None:
        self._total, self._log_line, self._done = total, log_line, 0
        self._start = self._latest = time.monotonic()

    def advance(self, count: int) -> None:
        """Count completions; log the share, a bar and the time left if a few seconds have passed.

        >>> Progress(4, print).advance(1)
        """
        self._done += count
        now = time.monotonic()
        if self._log_line is None or self._done >= self._total or now - self._latest < PROGRESS_SECONDS:
            return
        self._latest = now
        left = (now - self._start) / self._done * (self._total - self._done)
        bar = "━" * (20 * self._done // self._total)
        self._log_line(f"evaluated {self._done}/{self._total} {bar:╌<20} {left:.0f} s left")


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
    answered = [{**x, "prompt": prompt} for x, prompt in zip(examples, completions.prompts, strict=True)]
    data = example_data(answered, completions.completions, completions.completion_ids, **completions.columns)
    scores = {reward.label: compute_scores(trl_reward(reward), data) for reward in rewards}
    samples = []
    for i in range(len(examples)):
        sample = {"prompt": text_of(completions.prompts[i]), "completion": completions.texts[i]}
        rewards_of_sample = {label: values[i] for label, values in scores.items()}
        samples.append({**sample, "rewards": rewards_of_sample, "tokens": len(completions.completion_ids[i])})
    return samples


@dataclass(frozen=True)
class SampledReport:
    """Scores of n sampled completions per prompt."""

    scores: SampledScores
    ks: Sequence[int]
    share: bool
    samples: Sequence[Mapping[str, Any]]

    def figures(self) -> dict[str, float]:
        """Return the entries of a line of metrics.jsonl: at the number of samples."""
        totals = {f"held_out/{name}": value for name, value in self._totals().items()}
        return {**totals, "held_out/k": float(self.scores.samples)}

    def as_data(self) -> dict[str, Any]:
        """Return the estimates with their intervals as plain data."""
        return {"k": self.scores.samples, **self._totals(), "sampled": self.scores.table(self.ks)}

    def _totals(self) -> dict[str, float]:
        kinds = ("mean", "pass", "majority")
        return {f"{kind}_at_k": self.scores.estimate(kind, self.scores.samples)[0] for kind in kinds}

    def lines(self) -> list[str]:
        """Return a line for each estimate; majority@k for scores of 0 and 1 alone."""
        table = self.scores.table(self.ks)
        rows = [(f"mean@{self.scores.samples}", table["mean"])]
        rows += [(f"pass@{k}", row) for k, row in table["pass"].items()]
        if self.share:
            rows += [(f"majority@{k}", row) for k, row in table["majority"].items() if int(k) > 1]
        return [f"{name:12} {_estimate_text(row, self.share)}" for name, row in rows]


def _estimate_text(estimate: Sequence[float], share: bool) -> str:
    mean, low, high = (score_text(value, share=share) for value in estimate)
    return f"{mean} [{low}, {high}]"


def evaluate_sampled(
    stage: Stage,
    examples: Sequence[Mapping[str, Any]],
    model: Any,
    tokenizer: Any,
    samples: int,
    seed: int = 0,
    log_line: Callable[[str], None] | None = None,
) -> SampledReport | None:
    """Sample completions of each example as in training, and score them with the metric of the stage.

    The state of the global random number generator is restored, so that an evaluation does not change the training.
    None if the trainer evaluates in its own way, without completions.
    """
    evaluation = stage.evaluation
    if evaluation is None or isinstance(stage.trainer, Evaluates):
        return None
    sampling = sampling_of(stage.settings)
    if evaluation.temperature is not None:
        sampling["temperature"] = evaluation.temperature
    repeated = [example for example in examples for _ in range(samples)]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        report = evaluate_stage(stage, repeated, model, tokenizer, sampling, log_line)
    metric = next(reward for reward in stage.rewards if reward.label == evaluation.metric)
    scores = _by_prompt(report.samples, len(examples), samples, evaluation.metric, metric.part.knobs)
    ks = tuple(k for k in evaluation.k if k <= samples) or default_ks(samples)
    return SampledReport(scores, ks, report.share, report.samples)


def _by_prompt(
    samples: Sequence[Mapping[str, Any]], prompts: int, per_prompt: int, metric: str, knobs: Mapping[str, Any]
) -> SampledScores:
    """Return scores and answers by prompt; completions that the metric does not score are left out."""
    scores: list[list[float]] = [[] for _ in range(prompts)]
    answers: list[list[object]] = [[] for _ in range(prompts)]
    for sample in samples:
        if (score := sample["rewards"][metric]) is not None:
            scores[sample["index"] // per_prompt].append(score)
            answers[sample["index"] // per_prompt].append(vote(str(sample["completion"]), knobs))
    return SampledScores(scores, list(map(_numbered, answers)))


def _numbered(answers: Sequence[object]) -> list[int]:
    """Return the number of each answer: equal answers have equal numbers, in the order of first occurrence."""
    numbers = {answer: number for number, answer in enumerate(dict.fromkeys(answers))}
    return [numbers[answer] for answer in answers]


def vote(completion: str, knobs: Mapping[str, Any]) -> object:
    r"""Return the answer of a completion for majority@k; None if it has none, which counts as an answer of its own.

    It is found as the reward finds it if that has the knobs `tag` and `untagged` (`accuracy`); otherwise the block
    ``<answer>``, the last ``\boxed{…}``, or the last line. Equal numbers are equal answers.

    >>> vote("so <answer>1/2</answer>", {}) == vote("\\boxed{0.5}", {}), vote("maybe\n7", {"untagged": "wrong"})
    (True, None)
    """
    texts = final_answers(completion, knobs.get("tag", "answer"), knobs.get("untagged", "boxed"))
    if not texts and "untagged" not in knobs:
        texts = final_answers(completion, "answer", "last_line")
    numbers = [parse_number(text) for text in texts]
    answers = {text.strip() if value is None else value for text, value in zip(texts, numbers, strict=True)}
    return answers.pop() if len(answers) == 1 else None


def sampling_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of ``GenerationConfig`` with which TRL samples, by the settings of a trainer.

    >>> sampling_of({"temperature": 0.7})["temperature"], sampling_of({})["top_k"]
    (0.7, 0)
    """
    defaults = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
    fields = {name: settings.get(name, default) for name, default in defaults.items()}
    return {"do_sample": True, **fields, **(settings.get("generation_kwargs") or {})}
