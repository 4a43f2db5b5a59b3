"""The diagnosis of a stage before its first step and while it runs, and the facts of its data set."""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from statistics import variance
from typing import Any

import torch
from rich.console import Console
from transformers import TrainerCallback

from rlm_lab.quantities import StageSettings, StepMetrics
from rlm_lab.rules import RULES, Finding, causes, foresee, violations
from rlm_plugins.equation.batch import Batch
from rlm_plugins.run.folder import Run
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage import Stage

WINDOW = max(rule.least_steps for rule in RULES)
"""Number of last steps by which the rules are checked."""
MAX_EXAMPLES = 50_000
"""Maximum number of training examples that are read."""
LABELS = 10
"""Different answers up to which they are labels, which a prompt may list."""

_ANSWER = "the answer"


def warnings(stage: Stage) -> list[str]:
    """Return what follows from the settings and the data set of a stage, a line per finding."""
    tokenizer = None
    with suppress(Exception):  # that of a later stage, or not downloaded: the run reports it
        tokenizer = stage.source.tokenizer()
    facts = {} if tokenizer is None else data_facts(stage.environment_spec, tokenizer)
    settings = StageSettings(stage.body, max(stage.settings.get("max_steps") or 0, 0))
    return [str(finding) for finding in foresee(stage.name, settings, facts)]


class LiveDiagnosis(TrainerCallback):  # type: ignore[misc]
    """Prints each finding once, at the first step at which its rule is violated with certainty.

    It adds the facts of the data set to the metrics of the first step.

    Attributes:
        findings: Those of the stage so far, by name and label.
    """

    def __init__(self, stage: Stage, console: Console, run: Run) -> None:
        self._stage, self._console, self._is_main = stage, console, run.main
        self._last: deque[Mapping[str, Any]] = deque(maxlen=WINDOW)
        self._metrics: StepMetrics | None = None
        self._run = run
        self._starts: dict[tuple[str, str], int] = {}
        self._facts: dict[str, float] = {}
        self._noise: dict[str, float] = {}
        run.observers.append(self._scored)
        self.findings: dict[tuple[str, str], Finding] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        tokenizer = getattr(kwargs.get("processing_class"), "tokenizer", kwargs.get("processing_class"))
        if state.global_step == 0 and self._is_main and tokenizer is not None:
            self._facts = data_facts(self._stage.environment_spec, tokenizer)

    def _scored(
        self, stage: Stage, step: int, prompts: Sequence[Any], completions: Sequence[Any], batch: Batch
    ) -> None:
        """Store noise of rewards, success that is not paid, and advantages against rewards of a generation batch."""
        keys = [repr(pair) for pair in zip(prompts, completions, strict=True)]
        noise = {label: noise_share(keys, scores.tolist()) for label, scores in batch.named_rewards.items()}
        self._noise = {f"rewards/{label}/noise": share for label, share in noise.items() if share is not None}
        unseen = {
            label: unseen_share(scores, batch.rewards, batch.group) for label, scores in batch.named_rewards.items()
        }
        self._noise |= {f"rewards/{label}/unseen": share for label, share in unseen.items() if share is not None}
        if batch.advantages is not None and (agreement := advantage_agreement(batch)) is not None:
            self._noise["advantage/reward_correlation"] = agreement

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        if "grad_norm" not in logs:
            return
        logs |= self._facts | self._noise
        self._facts, self._noise = {}, {}
        settings = StageSettings(self._stage.body, state.max_steps)
        self._metrics = self._metrics or StepMetrics(settings)
        self._metrics.add({f"held_out/{label}": score for label, score in self._run.held_out.items()})
        step = self._metrics.add({"stage": self._stage.name, "step": state.global_step, **logs})
        assert step is not None
        self._last.append(step)
        found = violations(self._last, self._stage.name, settings)
        for number, finding in enumerate(found):
            start = self._starts.setdefault((finding.name, finding.label), finding.since)
            found[number] = replace(finding, since=start)
        for finding in causes(found):
            key = finding.name, finding.label
            if key not in self.findings and finding.severity > 1:
                self._console.print(f"  {finding}", markup=False, highlight=False, style="yellow", soft_wrap=True)
            self.findings.setdefault(key, finding)


def noise_share(keys: Sequence[str], scores: Sequence[float]) -> float | None:
    """Return the variance of the scores of equal completions over that of all; None without a pair or a difference.

    >>> noise_share(["a", "a", "b", "b"], [0.0, 0.0, 1.0, 1.0]), noise_share(["a", "a"], [0.0, 1.0])
    (0.0, 1.0)
    """
    known = [(key, score) for key, score in zip(keys, scores, strict=True) if math.isfinite(score)]
    total = variance(score for _, score in known) if len(known) > 1 else 0.0
    alike: dict[str, list[float]] = {}
    for key, score in known:
        alike.setdefault(key, []).append(score)
    repeated = [group for group in alike.values() if len(group) > 1]
    pairs = sum(len(group) - 1 for group in repeated)
    if not pairs or total <= (1e-6 * max(abs(score) for _, score in known)) ** 2:  # constant but for rounding
        return None
    return sum(variance(group) * (len(group) - 1) for group in repeated) / pairs / total


def unseen_share(scores: torch.Tensor, rewards: torch.Tensor, group: torch.Tensor) -> float | None:
    """Return the share of groups with scores of 0 and of 1 whose rewards are all equal; None without such a group.

    Args:
        scores: One reward (B,), which may have the weight 0.
        rewards: What is trained on (B,).
        group: Index of the group of each completion (B,).
    """
    groups = [group == number for number in group.unique()]
    mixed = [rewards[rows] for rows in groups if {0.0, 1.0} <= {*scores[rows].tolist()}]
    return sum(float(x.max() - x.min()) <= 1e-6 * float(x.abs().max()) for x in mixed) / len(mixed) if mixed else None


def advantage_agreement(batch: Batch) -> float | None:
    """Return the correlation of mean Â and reward within groups, 0 if only Â is constant; None if no rewards differ."""
    pairs = torch.stack([batch.rewards.double(), batch.advantages.double().mean(1)])
    is_known = ~pairs.isnan().any(0)
    pairs, known = pairs[:, is_known], batch.group[is_known]
    for number in known.unique():
        pairs[:, known == number] -= pairs[:, known == number].mean(1, keepdim=True)
    reward, advantage = pairs.norm(dim=1).tolist()
    if reward <= 1e-6:
        return None
    return float(pairs[0] @ pairs[1]) / (reward * advantage) if advantage > 1e-9 else 0.0


def data_facts(environment_spec: EnvironmentSpec, tokenizer: Any) -> dict[str, float]:
    """Return facts of a data set as metrics; of a stream, only those of the tokenizer.

    They begin with `data/`; the table `quantities` of rules.toml has their meanings.

    Args:
        environment_spec: The examples.
        tokenizer: Of the policy.
    """
    rows, facts = environment_spec.train, _tokenizer_facts(environment_spec, tokenizer)
    if not hasattr(rows, "__len__"):
        return facts
    examples = list(islice(rows, MAX_EXAMPLES))
    prompts = [repr(example["prompt"]) for example in examples]
    distinct = set(prompts)
    facts["data/duplicated"] = 1 - len(distinct) / max(len(prompts), 1)
    facts["data/prompts"] = float(len(distinct))
    answers: dict[str, set[str]] = {}
    for prompt, example in zip(prompts, examples, strict=True):
        answers.setdefault(prompt, set()).add(repr(example.get("answer")))
    facts["data/contradicted"] = sum(len(answers[prompt]) > 1 for prompt in prompts) / max(len(prompts), 1)
    facts["data/held_out"] = float(len(environment_spec.test))
    if len(environment_spec.test):
        in_training = [repr(example["prompt"]) in distinct for example in environment_spec.test]
        facts["data/overlap"] = sum(in_training) / len(in_training)
    return facts | _leaks(examples)


def _tokenizer_facts(environment_spec: EnvironmentSpec, tokenizer: Any) -> dict[str, float]:
    facts = {"data/pad_is_end": float(tokenizer.pad_token_id == tokenizer.eos_token_id)}
    prompt = next(iter(environment_spec.train))["prompt"]
    if not isinstance(prompt, str) and getattr(tokenizer, "chat_template", None):
        with_prompt, without_prompt = (
            tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=adds) for adds in (True, False)
        )
        facts["data/generation_prompt"] = float(with_prompt != without_prompt)
        facts["data/end_of_turn"] = float(_ends_with_end_token(tokenizer, prompt))
    return facts


def _ends_with_end_token(tokenizer: Any, prompt: Sequence[Mapping[str, Any]]) -> bool:
    """Return False if a special token other than `eos_token` ends the turn of the assistant in the chat template."""
    conversation = [*prompt, {"role": "assistant", "content": _ANSWER}]
    try:
        text = tokenizer.apply_chat_template(conversation, tokenize=False)
    except Exception:  # a template that takes no such turn: the run reports what it needs
        return True
    end = text.rpartition(_ANSWER)[2]
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()  # also those without a role, such as eos_token
    special = [*tokenizer.all_special_tokens, *(token.content for token in added if token.special)]
    ending = [token for token in special if token in end]
    return not ending or tokenizer.eos_token in ending


def _leaks(examples: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    answers = [str(example.get("answer") or "").strip() for example in examples[:1000]]
    if len(set(answers)) <= LABELS:
        return {}
    prompts = [example["prompt"] for example in examples[: len(answers)]]
    texts = [x if isinstance(x, str) else str(x[-1].get("content") or "") for x in prompts]
    counts = Counter(chain.from_iterable(map(_positions, answers, texts)))
    return {"data/answer_in_prompt": max(counts.values(), default=0) / len(answers)}


def _positions(answer: str, text: str) -> set[tuple[str, object]]:
    """Return the positions of an answer in a prompt: words before it, words after it, and the word before it.

    A template that leaks the column of the answer has it at one position. In a choice ("which is the largest of these")
    the position differs from prompt to prompt.
    """
    positions: set[tuple[str, object]] = set()
    for match in re.finditer(rf"(?<!\w){re.escape(answer)}(?!\w)", text) if len(answer) > 1 else ():
        preceding, following = (re.findall(r"\w+", side) for side in (text[: match.start()], text[match.end() :]))
        word = preceding[-1] if preceding else ""
        positions |= {("before", len(preceding)), ("after", len(following)), ("word", word)}
    return positions
