"""x: reasoning-gym's tasks, mixed, in levels, some of their items held out (hook ``rlm_environments``)."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import pydantic
from pydantic import Field

from rlm_gym import tasks as known
from rlm_gym.entries import written
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Example = dict[str, Any]

INSTRUCTION = "Think first. Then write your final answer, and nothing else, between <answer> and </answer>."
FRUITLESS = 400
"""Items in a row that bring nothing new, before a task is taken to have no more."""


class TaskSpec(pydantic.BaseModel):
    """One task of a mixture.

    Args:
        name: As reasoning-gym calls it.
        weight: Its share of the training rows, relative to the others'.
        level: Difficulty, from 0, in place of the world's `levels`; null: its default settings.
        settings: Fields of its config, turned: ``{max_terms: 3}``.
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
    """Tasks of reasoning-gym 0.1.25, one or a mixture: ``tasks: [gcd, {name: chain_sum, weight: 2, level: 1}]``.

    Columns: ``prompt`` (the question, an empty line, `instruction`), ``question``, ``answer``, ``demonstration`` (the
    answer in its block), ``task``, ``level``, and ``entry``, which `gym_score` reads. A few tasks have no answer of
    their own, and so nothing to demonstrate. ``python -m rlm_gym list`` shows all of them with families and levels.

    `levels` are reasoning-gym's own: level k of a range includes what is below it; a task that has fewer takes its
    last, one without any its defaults. The training rows come in equal blocks, one per level, in the order given, so
    the sampler `in_order` goes through them one after the other.

    One item in eight, chosen by a hash of its question, is never trained on, whatever seed, size, level or mixture.
    The `test_rows` of each task are drawn from these, the same for every `seed`, each once, from all levels alike;
    a task whose world is small may have fewer. Training rows are drawn with replacement.

    `slip`: how often the hand that wrote a training row's ``demonstration`` stopped one letter early, where there are
    two or more. ``answer`` and ``entry`` are right all the same: what a sloppy hand taught, a reward can mend.
    """
    specs = [TaskSpec(name=task) if isinstance(task, str) else task for task in tasks]
    weights = [spec.weight for spec in specs]
    steps: Sequence[int | None] = levels or [None]
    blocks = [[_source(spec, level, place) for place, spec in enumerate(specs)] for level in steps]
    train: list[Example] = []
    for number, sources in enumerate(blocks, start=1):
        train += _training(sources, weights, train_rows * number // len(blocks) - len(train), seed, instruction)
    if slip:
        _spoil(train, slip, random.Random(f"slips {seed}"))
    test = [row for of_task in zip(*blocks, strict=True) for row in _tests(of_task, test_rows, instruction)]
    return EnvironmentSpec(train=train, test=test)


Source = tuple[str, int | None, Mapping[str, Any]]
"""Task, level, settings."""


def _source(spec: TaskSpec, level: int | None, place: int) -> Source:
    where = f"environment.tasks[{place}]"
    if spec.level is None and not known.levels(spec.name, where):
        level = None
    level = level if spec.level is None else spec.level
    return spec.name, level, known.settings(spec.name, level, spec.settings, where)


def _training(
    sources: Sequence[Source], weights: Sequence[float], count: int, seed: int, instruction: str
) -> list[Example]:
    """`count` rows of a mixture."""
    draw = random.Random(f"mixture {seed} {[(task, level) for task, level, _ in sources]}")
    streams = [_rows(source, f"train {seed}", instruction, held_out=False) for source in sources]
    rows = [next(streams[place], None) for place in draw.choices(range(len(sources)), weights, k=count)]
    if None in rows:
        raise RecipeError("every item of a task is held out", where="environment.tasks", hint="let it vary more")
    return [row for row in rows if row is not None]


def _spoil(rows: Sequence[Example], share: float, draw: random.Random) -> None:
    """Takes the last letter from some of the answers that are shown."""
    for row in rows:
        if draw.random() < share and len(row["answer"] or "") > 1:
            row["demonstration"] = _shown(row["answer"][:-1])


def _tests(levels: Sequence[Source], count: int, instruction: str) -> list[Example]:
    """`count` rows of one task, from its different levels alike; no question twice."""
    rows: dict[str, Example] = {}
    different = [source for place, source in enumerate(levels) if source not in levels[:place]]
    for number, source in enumerate(different, start=1):
        fruitless = 0
        for row in _rows(source, "test", instruction, held_out=True):
            if len(rows) >= count * number // len(different) or fruitless == FRUITLESS:
                break
            fruitless = fruitless + 1 if row["question"] in rows else 0
            rows.setdefault(row["question"], row)
    return list(rows.values())


def _rows(source: Source, seed: str, instruction: str, *, held_out: bool) -> Iterator[Example]:
    """The rows of a task that are held out, or those that are not; ends where there seem to be none."""
    task, level, settings = source
    fruitless = 0
    for item in known.items(task, settings, f"{seed} {level}"):
        if _is_held_out(item["question"]) is held_out:
            fruitless = 0
            yield _row(task, level, settings, item, instruction)
        elif (fruitless := fruitless + 1) == FRUITLESS:
            return


def _is_held_out(question: str) -> bool:
    return hashlib.blake2b(question.encode(), digest_size=1).digest()[0] < 32


def _row(task: str, level: int | None, settings: Mapping[str, Any], item: known.Item, instruction: str) -> Example:
    question, answer = item["question"], item["answer"]
    closing = f"\n\n{instruction}" if instruction else ""
    return {
        "prompt": [{"role": "user", "content": question + closing}],
        "question": question,
        "answer": answer,
        "demonstration": None if answer is None else _shown(answer),
        "task": task,
        "level": level,
        "entry": written({"task": task, "settings": settings, "item": item}),
    }


def _shown(answer: str) -> str:
    return f"<answer>{answer}</answer>"
