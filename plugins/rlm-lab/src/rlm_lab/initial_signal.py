"""``rlm signal``: the rewards that a training would start with, and what to change if there is nothing to learn.

The groups are those of training steps with learning rate 0. Nothing is trained.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
import transformers
from transformers.trainer_callback import PrinterCallback, TrainerCallback

from rlm_plugins.equation.batch import Batch
from rlm_plugins.errors import RlmError
from rlm_plugins.evaluation.scores import score_text, share_interval
from rlm_plugins.recipe.compose import compose
from rlm_plugins.report.text_layout import columns, printable
from rlm_plugins.rewards.columns import text_of
from rlm_plugins.run.folder import Run
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.run.stage_result import connected
from rlm_plugins.run.trainer_callbacks import ScoredCompletions
from rlm_plugins.stage import RunState, Stage

TIE = 1e-9
"""Rewards that differ by less are equal."""
CONSTANT = 1e-6
"""Relative difference below which the rewards of all groups are one number: a clock runs on from group to group."""
UNPAID = 0.125
"""Share of groups above which equal rewards of right and wrong completions are reported."""
FEW = 0.5
"""Share of ended completions below which the report advises a change."""
WIDTH = 160
"""Characters of a prompt, a column and a completion that the report shows."""
SHOWN = 3
"""Number of prompts of which the report shows completions."""


@dataclass(frozen=True)
class Group:
    """The completions of one prompt.

    Args:
        rewards: The reward of each completion, weighted and summed.
        named: Each reward by its label; NaN where it did not apply.
        tokens: Trained tokens of each completion.
        is_complete: True for each completion that ended before the length limit.
        texts: The completions.
        prompt: Their prompt.
        columns: The other columns of the example.
    """

    rewards: Sequence[float]
    named: dict[str, Sequence[float]]
    tokens: Sequence[int]
    is_complete: Sequence[bool]
    texts: Sequence[str] = ()
    prompt: str = ""
    columns: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_spread(self) -> bool:
        """True if the completions have different rewards."""
        return max(self.rewards) - min(self.rewards) > TIE

    @property
    def has_reward(self) -> bool:
        """True if a completion has a reward other than 0."""
        return max(map(abs, self.rewards)) > TIE

    def samples(self) -> list[dict[str, Any]]:
        """Return the completion with the largest reward and, if it is smaller, that with the smallest."""
        order = sorted(range(len(self.texts)), key=lambda i: -self.rewards[i])
        rows = dict.fromkeys([order[0], *([order[-1]] if self.has_spread else [])] if order else [])
        named = [{label: scores[i] for label, scores in self.named.items()} for i in rows]
        return [{"completion": self.texts[i], "rewards": scores} for i, scores in zip(rows, named, strict=True)]

    def scores(self, label: str) -> list[float]:
        """Return one reward of the completions to which it applied."""
        return [score for score in self.named[label] if not math.isnan(score)]


@dataclass(eq=False)
class Signal(ScoredCompletions, TrainerCallback):  # type: ignore[misc]
    """Scored groups of the initial policy, and the duration of its steps.

    Args:
        stage: The stage.
        groups: One per prompt.
        seconds: Duration of each optimizer step, with generation and scoring.
        prompts: Number of prompts after which the training loop ends.
    """

    stage: Stage
    groups: list[Group] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    prompts: int = 0
    _start: float = 0.0
    _prompts_per_step: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._start = time.perf_counter()

    def scored(self, batch: Batch, turn_ends: Any) -> None:
        prompts, completions, columns, batch = self.local(batch)
        for number in batch.group.unique().tolist():
            rows = (batch.group == number).nonzero().flatten()
            first = int(rows[0])
            group = Group(
                torch.nan_to_num(batch.rewards[rows]).tolist(),
                {label: values[rows].tolist() for label, values in batch.named_rewards.items()},
                batch.mask[rows].sum(1).tolist(),
                (~batch.truncated[rows]).tolist(),
                [text_of(completions[row]) for row in rows.tolist()],
                text_of(prompts[first]),
                columns[first],
            )
            self.groups.append(group)
        self._prompts_per_step = self._prompts_per_step or len(self.groups)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.seconds.append(time.perf_counter() - self._start)
        if len(self.groups) >= self.prompts:
            control.should_training_stop = True

    def figures(self) -> dict[str, Any]:
        """Return the figures of the report as plain data; None where there is none."""
        stage, groups = self.stage, self.groups
        metric = stage.evaluation.metric if stage.evaluation else stage.rewards[0].label
        scores_by_group = [group.scores(metric) for group in groups]
        best = [max(scores) for scores in scores_by_group if scores]
        is_alike = [len(x.rewards) > 1 and x.has_reward and not x.has_spread for x in groups]
        return {
            "stage": stage.name,
            "prompts": len(groups),
            "group_size": len(groups[0].rewards),
            "reward": fmean(chain.from_iterable(group.rewards for group in groups)),
            "rewards": {reward.label: self._mean(reward.label) for reward in stage.rewards},
            "metric": metric,
            "is_share": {*chain.from_iterable(scores_by_group)} <= {0.0, 1.0},
            "pass_at_g": fmean(best) if best else None,
            "groups_that_differ": sum(group.has_spread for group in groups),
            "groups_without_reward": sum(not group.has_reward for group in groups),
            "groups_alike_otherwise": sum(is_alike),
            "is_constant": _is_constant(groups),
            "groups_unpaid": sum(not group.has_spread and {0.0, 1.0} <= {*group.scores(metric)} for group in groups),
            "prompts_per_step": self._prompts_per_step or len(groups),
            "samples": [{"prompt": x.prompt, "columns": x.columns, "completions": x.samples()} for x in groups[:SHOWN]],
            "ended": fmean(chain.from_iterable(group.is_complete for group in groups)),
            "tokens": fmean(chain.from_iterable(group.tokens for group in groups)),
            "max_tokens": stage.settings.get("max_completion_length"),
            # The first step also starts the generator and allocates memory.
            "seconds_per_step": median(self.seconds[1:] or self.seconds) if self.seconds else None,
            "steps": stage.settings.get("max_steps", -1),
        }

    def _mean(self, label: str) -> float | None:
        values = list(chain.from_iterable(group.scores(label) for group in self.groups))
        return fmean(values) if values else None


def _is_constant(groups: Sequence[Group]) -> bool:
    """Return True if completions differ, and all of them earn the same but for rounding."""
    earned, texts = [*chain.from_iterable(group.rewards for group in groups)], {x for y in groups for x in y.texts}
    return len(texts) > 1 and max(earned) - min(earned) <= CONSTANT * max(map(abs, earned))


def measure_signal(stage: Stage, prompts: int) -> Signal:
    """Run steps of a stage with learning rate 0 until enough prompts are scored.

    The steps are those of training: rollout sources, multi-turn episodes, filters and rewards take part.

    Args:
        stage: One with an equation and rewards; connected to its earlier stages.
        prompts: Number of prompts to score.
    """
    settings = {**stage.settings, "learning_rate": 0.0, "save_strategy": "no", "report_to": "none", "weight_decay": 0.0}
    signal = Signal(stage, prompts=prompts)
    with tempfile.TemporaryDirectory() as folder:
        place = replace(stage.place, folder=Path(folder) / stage.name)
        measured = replace(stage, settings=settings, evaluation=None, place=place)
        trainer = measured.trainer.build(measured, RunState(observers=[signal]))
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    if not signal.groups:
        raise RlmError(f"no completion of stage {stage.name} was scored")
    return signal


def signal(
    source: Path, overrides: Sequence[str] = (), *, prompts: int = 24, stage: str | None = None
) -> dict[str, Any]:
    """Return the signal of the initial policy of a stage, with advice.

    Args:
        source: A recipe; or the folder of a run, for a stage after finished ones.
        overrides: ``key=value``.
        prompts: Number of training prompts.
        stage: Name of the stage (``02-grpo`` or ``grpo``); default: the first one with rewards that can start.

    Raises:
        RlmError: The stage starts from one that is not trained, or samples nothing.
    """
    transformers.utils.logging.disable_progress_bar()
    stages = connected(compose(*read(source, overrides)), source)
    number = _stage_index(stages, stage)
    if number and not (source.is_dir() and Run(source, main=False).finished(stages[number - 1])):
        raise RlmError(
            f"stage {stages[number].name} starts from the result of {stages[number - 1].name}, which is not trained",
            where=str(source),
            hint=f"`rlm train {source}`, then `rlm signal` with the folder of the run",
        )
    figures = measure_signal(stages[number], prompts).figures()
    return {**figures, "advice": list(advice(figures))}


def _stage_index(stages: Sequence[Stage], name: str | None) -> int:
    sampling = [i for i, stage in enumerate(stages) if stage.equation is not None and stage.rewards]
    named = [i for i, stage in enumerate(stages) if name in (stage.name, stage.name[3:])]
    number = (named or [-1])[0] if name is not None else (sampling or [-1])[0]
    if number not in sampling:
        problem = "no stage of this recipe samples completions" if name is None else f"no stage '{name}' that samples"
        raise RlmError(problem, allowed=", ".join(stages[i].name for i in sampling))
    return number


def advice(figures: dict[str, Any]) -> Iterator[str]:
    """Yield what to change, most important first; nothing if there is a signal."""
    prompts, size, nothing = figures["prompts"], figures["group_size"], figures["groups_without_reward"]
    limit, alike, count = figures["max_tokens"], figures["groups_alike_otherwise"], figures["prompts_per_step"]
    most = share_interval([1.0] * figures["groups_that_differ"] + [0.0] * (prompts - figures["groups_that_differ"]))[1]
    if nothing == prompts:
        paid = [f"`{label}` pays {mean:.3g}" for label, mean in figures["rewards"].items() if mean]
        contrast = f", although {' and '.join(paid)}" if paid else ""
        yield (
            f"no completion of {prompts} prompts earned anything{contrast}, so there is nothing to learn from. If a "
            "completion above is right, change the reward: it does not find the answer (`rlm reward probe`). If none "
            "is, use easier prompts or a stage of demonstrations first (`algorithm: sft`)"
        )
    elif figures["is_constant"]:
        yield (
            f"every completion of {prompts} prompts earned {figures['reward']:.4g}, right or wrong: a reward that "
            "depends on the completion (`rlm reward probe` shows what it pays)"
        )
    elif figures["groups_unpaid"] > UNPAID * prompts:
        yield (
            f"in {figures['groups_unpaid']} of {prompts} groups, completions that are right and wrong by "
            f"`{figures['metric']}` earn the same: a reward that pays all right ones (`rlm reward probe`)"
        )
    elif most * count < 1 and size > 1:
        easier = f"easier prompts, or more completions per prompt (trainer.num_generations={2 * size})"
        remedy = easier if nothing >= alike else "harder prompts, or a finer reward"
        yield f"most steps of {count} prompts will have no gradient: {remedy}"
    if figures["ended"] < FEW:
        longer = f"trainer.max_completion_length={4 * limit}" if limit else "a larger `max_completion_length`"
        yield (
            f"{1 - figures['ended']:.0%} of the completions are cut: {longer}, or a prompt that asks for less; "
            "harmless if the reward takes an unfinished completion"
        )
    for label, mean in figures["rewards"].items():
        if mean is None:
            yield f"the reward '{label}' applied to no completion: check the columns that it reads"
        elif mean == 0 and nothing < prompts:
            yield f"the reward '{label}' is 0 for all completions: it has no effect until that changes"


def render(data: dict[str, Any]) -> str:
    """Return the report as text; it ends with what to change."""
    share, size = data["is_share"], data["group_size"]
    means = ", ".join(f"{label} {'–' if mean is None else f'{mean:.3g}'}" for label, mean in data["rewards"].items())
    differ, limit = data["groups_that_differ"], data["max_tokens"]
    best = "–" if data["pass_at_g"] is None else score_text(data["pass_at_g"], share=share)
    seconds = data["seconds_per_step"]
    total = f", {data['steps']} steps take about {data['steps'] * seconds / 60:.1f} min" if data["steps"] > 0 else ""
    signal = f"{differ} of {data['prompts']} groups have completions with different rewards"
    rows = [
        ("reward", f"mean {data['reward']:.3g} ({means})"),
        (f"pass@{size}" if share else f"best of {size}", f"{best} of the prompts" if share else best),
        ("signal", signal if size > 1 else "groups of one: the advantage compares with other prompts"),
        ("ended", f"{data['ended']:.0%} of the completions"),
        ("tokens", f"{data['tokens']:.1f} on average" + (f", at most {limit}" if limit else "")),
        ("seconds a step", f"{seconds:.1f}{total}"),
    ]
    steps = f"{data['prompts']} prompts (whole steps of {data['prompts_per_step']}) × {size} completions"
    title = f"{data['stage']}: {steps} of the initial policy; nothing was trained"
    changes = [f"  - {line}" for line in data["advice"]]
    closing = ["to change:", *changes] if changes else ["nothing to change: training steps have a signal"]
    return "\n".join([title, columns(rows), *map(printable, _sample_lines(data["samples"])), *closing])


def _sample_lines(samples: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines on some prompts: the columns of each, and completions with their scores."""
    for sample in samples:
        answer_first = sorted(sample["columns"].items(), key=lambda column: column[0] != "answer")
        rows = [("prompt", sample["prompt"]), *answer_first]
        yield ""
        yield from (f"  {name:<10} {_one_line(value)}" for name, value in rows)
        for entry in sample["completions"]:
            scores = ", ".join(f"{label} {score:.3g}" for label, score in entry["rewards"].items())
            yield f"  {scores}: {_one_line(entry['completion'])}"


def _one_line(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}…"
