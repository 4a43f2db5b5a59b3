"""x: reasoning-gym's tasks, mixed, at several levels, with held-out items (hook ``rlm_environments``)."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import pydantic
from pydantic import Field

from rlm_gym import tasks as gym_tasks
from rlm_gym.serialization import serialize
from rlm_plugins.equation.knobs import Count, Natural, Share
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec

Example = dict[str, Any]

INSTRUCTION = "Think first. Then write your final answer, and nothing else, between <answer> and </answer>."
MAX_REPEATS = 400
"""Consecutive items without a new question after which a task counts as exhausted."""


class TaskSpec(pydantic.BaseModel):
    """One task of a mixture.

    Args:
        name: Its name in reasoning-gym.
        weight: Its share of the training examples, relative to the other tasks.
        level: Difficulty, from 0, instead of the environment's `levels`; null: the task's default settings.
        settings: Fields of its config to override: ``{max_terms: 3}``.
    """

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    name: str
    weight: Annotated[float, Field(gt=0)] = 1.0
    level: Natural | None = None
    settings: dict[str, Any] = Field(default_factory=dict)


def gym(
    *,
    tasks: Annotated[Sequence[str | TaskSpec], Field(min_length=1)],
    levels: Annotated[Sequence[Natural], Field(min_length=1)] | None = None,
    train_rows: Count = 4096,
    test_rows: Natural = 64,
    instruction: str = INSTRUCTION,
    slip: Share = 0.0,
    seed: int = 0,
) -> EnvironmentSpec:
    """Build an environment from reasoning-gym 0.1.25 tasks: ``tasks: [gcd, {name: chain_sum, weight: 2, level: 1}]``.

    Columns: ``prompt`` (the question, an empty line, `instruction`), ``question``, ``answer``, ``demonstration`` (the
    answer in its block), ``task``, ``level``, and ``entry``, the input of `gym_score`. A few tasks have no reference
    answer, hence no demonstration. ``python -m rlm_gym list`` lists all tasks with families and levels.

    `levels` are those of reasoning-gym: level k of a range includes everything below it. A task with fewer levels uses
    its last one; a task without levels uses its defaults. Training examples come in equal blocks, one per level, in the
    given order. So the sampler `in_order` trains on one level after the other.

    One item in eight, chosen by a hash of its question, is never trained on, whatever seed, size, level or mixture.
    The `test_rows` of each task are drawn from these, the same for every `seed`, each once, evenly over levels.
    A task with few distinct items may have fewer. Training examples are drawn with replacement.

    `slip`: probability that a training example's ``demonstration`` lacks its last letter, where it has two or more.
    ``answer`` and ``entry`` stay correct, so a reward can correct what SFT on such demonstrations learned.
    """
    specs = [TaskSpec(name=task) if isinstance(task, str) else task for task in tasks]
    weights = [spec.weight for spec in specs]
    steps: Sequence[int | None] = levels or [None]
    blocks = [[_task_source(spec, level, index) for index, spec in enumerate(specs)] for level in steps]
    train: list[Example] = []
    for number, sources in enumerate(blocks, start=1):
        train += _training_examples(
            sources, weights, train_rows * number // len(blocks) - len(train), seed, instruction
        )
    if slip:
        _truncate_demonstrations(train, slip, random.Random(f"slips {seed}"))
    test = [
        example
        for task_sources in zip(*blocks, strict=True)
        for example in _test_examples(task_sources, test_rows, instruction)
    ]
    return EnvironmentSpec(train=train, test=test)


TaskSource = tuple[str, int | None, Mapping[str, Any]]
"""Task, level, settings."""


def _task_source(spec: TaskSpec, level: int | None, index: int) -> TaskSource:
    """Resolve the level and settings of a task, whose index in `tasks` errors report."""
    where = f"environment.tasks[{index}]"
    if spec.level is None and not gym_tasks.levels(spec.name, where):
        level = None
    level = level if spec.level is None else spec.level
    return spec.name, level, gym_tasks.settings(spec.name, level, spec.settings, where)


def _training_examples(
    sources: Sequence[TaskSource], weights: Sequence[float], count: int, seed: int, instruction: str
) -> list[Example]:
    """Draw `count` examples of a mixture."""
    rng = random.Random(f"mixture {seed} {[(task, level) for task, level, _ in sources]}")
    streams = [_examples(source, f"train {seed}", instruction, held_out=False) for source in sources]
    examples = [next(streams[index], None) for index in rng.choices(range(len(sources)), weights, k=count)]
    if None in examples:
        raise RecipeError(
            "every item of a task is held out", where="environment.tasks", hint="settings with more distinct items"
        )
    return [example for example in examples if example is not None]


def _truncate_demonstrations(examples: Sequence[Example], share: float, rng: random.Random) -> None:
    """Remove the last letter from the given share of demonstrations."""
    for example in examples:
        if rng.random() < share and len(example["answer"] or "") > 1:
            example["demonstration"] = _answer_block(example["answer"][:-1])


def _test_examples(levels: Sequence[TaskSource], count: int, instruction: str) -> list[Example]:
    """Return `count` examples of one task, evenly over its distinct levels, without repeated questions."""
    by_question: dict[str, Example] = {}
    distinct_levels = [source for index, source in enumerate(levels) if source not in levels[:index]]
    for number, source in enumerate(distinct_levels, start=1):
        repeats = 0
        for example in _examples(source, "test", instruction, held_out=True):
            if len(by_question) >= count * number // len(distinct_levels) or repeats == MAX_REPEATS:
                break
            repeats = repeats + 1 if example["question"] in by_question else 0
            by_question.setdefault(example["question"], example)
    return list(by_question.values())


def _examples(source: TaskSource, seed: str, instruction: str, *, held_out: bool) -> Iterator[Example]:
    """Yield the held-out examples of a task, or the others; stop after `MAX_REPEATS` items without one."""
    task, level, settings = source
    repeats = 0
    for item in gym_tasks.items(task, settings, f"{seed} {level}"):
        digest = hashlib.blake2b(item["question"].encode(), digest_size=1).digest()
        if (digest[0] < 32) is held_out:  # one question in eight
            repeats = 0
            yield _example(task, level, settings, item, instruction)
        elif (repeats := repeats + 1) == MAX_REPEATS:
            return


def _example(
    task: str, level: int | None, settings: Mapping[str, Any], item: gym_tasks.Item, instruction: str
) -> Example:
    question, answer = item["question"], item["answer"]
    closing = f"\n\n{instruction}" if instruction else ""
    return {
        "prompt": [{"role": "user", "content": question + closing}],
        "question": question,
        "answer": answer,
        "demonstration": None if answer is None else _answer_block(answer),
        "task": task,
        "level": level,
        "entry": serialize({"task": task, "settings": settings, "item": item}),
    }


def _answer_block(answer: str) -> str:
    return f"<answer>{answer}</answer>"
