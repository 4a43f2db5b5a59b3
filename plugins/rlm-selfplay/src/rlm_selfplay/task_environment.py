"""Environment of tasks that are proposed and solved: seeds to train from, and held-out tasks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec
from rlm_selfplay import string_programs
from rlm_selfplay.languages import LANGUAGES
from rlm_selfplay.task_scoring import as_message
from rlm_selfplay.tasks import JOBS, Task

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Kind = Literal["deduction", "abduction", "induction", "question"]
IDENTITY = Task("deduction", "def f(x):\n    return x", ("'Hello World'",), ("'Hello World'",))
"""The only seed of Absolute Zero."""
DRAWS = 64
"""Random tasks that are drawn for each held-out one."""


def proposed_tasks(
    *,
    language: Literal["lines", "python", "questions"] = "python",
    kinds: Sequence[Kind] | None = None,
    questions: Sequence[str] = (),
    train_rows: Count = 256,
    test_rows: int = 256,
    show: Literal["seeds", "solutions"] = "seeds",
    slip: Share = 0.0,
    seed: int = 0,
) -> EnvironmentSpec:
    """Build the rows of self-play with proposed tasks: half of them propose, half of them solve, evenly over `kinds`.

    The rollout source `propose_and_solve` replaces the task of a row by those that were proposed. Seeds: of `python`
    the identity function alone, as in Absolute Zero; of `questions` the given ones; of `lines` random string programs
    (``s[1:]+s[:1]``), for models from scratch. `lines` alone has held-out tasks: of those with random programs, one
    in eight, by the hash of its prompt. Evaluate models of the other languages on a data set of your own.

    With `show: solutions` (`lines`) a row has a column `demonstration`, for a supervised stage: a random proposal, or a
    solution. With the probability `slip` a solution is that of the program's first half.

    >>> spec = proposed_tasks(language="lines", train_rows=4, test_rows=1)
    >>> [row["job"] for row in spec.train], len(spec.test)
    (['propose', 'propose', 'propose', 'solve'], 1)
    """
    rng, known = random.Random(f"tasks {seed}"), LANGUAGES[language].kinds
    chosen = list(kinds or known)
    _check(language, chosen, questions, show)
    train: list[dict[str, Any]] = []
    for number in range(train_rows):
        kind, job = chosen[number % len(chosen)], JOBS[number // len(chosen) % 2]
        task = _seed(language, kind, questions, rng)
        train.append(_row(language, task, job))
        if show == "solutions":
            written = string_programs.proposal(_another(task, rng)) if job == "propose" else None
            train[-1]["demonstration"] = written or string_programs.solution(task, rng.random() < slip)
    test = _held_out(chosen, test_rows) if language == "lines" else []
    return EnvironmentSpec(train=train, test=[_row(language, task, "solve") for task in test])


def _check(language: str, kinds: Sequence[str], questions: Sequence[str], show: str) -> None:
    """Raise RecipeError if the knobs contradict each other."""
    known = LANGUAGES[language].kinds
    if unknown := [kind for kind in kinds if kind not in known]:
        problem = f"the language '{language}' has no tasks of the kind '{unknown[0]}'"
        raise RecipeError(problem, where="environment.kinds", allowed=", ".join(known))
    if language == "questions" and not questions:
        raise RecipeError("expected seed questions, got none", where="environment.questions", allowed="a list of texts")
    if show == "solutions" and language != "lines":
        problem = f"there are no solutions to imitate in the language '{language}'"
        raise RecipeError(problem, where="environment.show", allowed="seeds; solutions for `lines`")


def _seed(language: str, kind: str, questions: Sequence[str], rng: random.Random) -> Task:
    if language == "questions":
        return Task(kind, rng.choice(list(questions)), (), ("",))
    if language == "python":
        four = ("'a'", "0", "[1]", "(2, 3)")
        return (
            Task(kind, IDENTITY.program, four, four)
            if kind == "induction"
            else Task(kind, IDENTITY.program, IDENTITY.inputs, IDENTITY.outputs)
        )
    while True:
        task = string_programs.random_task(kind, rng)
        if not string_programs.is_held_out(task):
            return task


def _another(task: Task, rng: random.Random) -> Task:
    """Return another task; of an induction with other inputs for the same program."""
    other = string_programs.random_task(task.kind, rng)
    return Task(task.kind, task.program, other.inputs) if task.kind == "induction" else other


def _held_out(kinds: Sequence[str], count: int) -> list[Task]:
    """Return up to `count` different held-out tasks, the same for every seed."""
    rng, tasks = random.Random("held-out tasks"), dict[str, Task]()
    for number in range(DRAWS * count):
        task = string_programs.random_task(kinds[number % len(kinds)], rng)
        if string_programs.is_held_out(task):
            tasks[LANGUAGES["lines"].task_prompt(task)] = task
    return list(tasks.values())[:count]


def _row(language: str, task: Task, job: str) -> dict[str, Any]:
    words = LANGUAGES[language]
    text = words.task_prompt(task) if job == "solve" else words.proposal_prompt(task.kind, task)
    columns = {"language": language, "task": task.text(), "kind": task.kind, "job": job}
    return {"prompt": as_message(text), **columns, "score": None, "role": 0}
