"""Environment of tasks that are proposed and solved: initial tasks for training, and held-out tasks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal

from rlm_plugins.equation.knobs import Count, Share
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec
from rlm_selfplay import languages
from rlm_selfplay.languages import JOBS, LANGUAGES, Task, read
from rlm_selfplay.task_scoring import as_message

Kind = Literal["deduction", "abduction", "induction", "question"]
IDENTITY = Task("deduction", "def f(x):\n    return x", ("'Hello World'",), ("'Hello World'",))
"""The only initial task of Absolute Zero."""
DRAWS = 64
"""Random tasks that are drawn for each held-out task."""


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
    """Build the examples of self-play with proposed tasks: half propose, half solve, evenly over `kinds`.

    The rollout source `propose_and_solve` replaces the initial task of an example by a proposed one. The initial task
    of `python` is the identity function, as in Absolute Zero, and those of `questions` are the given ones. Those of
    `lines` are random string programs (``s[1:]+s[:1]``), for models from scratch. Only `lines` has held-out tasks: one
    in eight of the random programs, by the hash of its prompt. Evaluate models of the other languages on another data
    set.

    With `show: solutions` (`lines`) an example has a column `demonstration`, for a supervised stage: a random proposal,
    or a solution. With the probability `slip` a solution is that of the program's first half.

    >>> spec = proposed_tasks(language="lines", train_rows=4, test_rows=1)
    >>> [example["job"] for example in spec.train], len(spec.test)
    (['propose', 'propose', 'propose', 'solve'], 1)
    """
    rng = random.Random(f"tasks {seed}")
    selected_kinds = list(kinds or LANGUAGES[language].kinds)
    _check(language, selected_kinds, questions, show)
    train: list[dict[str, Any]] = []
    for number in range(train_rows):
        kind = selected_kinds[number % len(selected_kinds)]
        job = JOBS[number // len(selected_kinds) % 2]
        task = _initial_task(language, kind, questions, rng)
        train.append(_example(language, task, job))
        if show == "solutions":
            proposal = languages.proposal(_random_proposal(task, rng)) if job == "propose" else None
            train[-1]["demonstration"] = proposal or languages.solution(task, rng.random() < slip)
    test = _held_out(selected_kinds, test_rows) if language == "lines" else []
    return EnvironmentSpec(train=train, test=[_example(language, task, "solve") for task in test])


def _check(language: str, kinds: Sequence[str], questions: Sequence[str], show: str) -> None:
    """Raise RecipeError if the knobs contradict each other."""
    supported = LANGUAGES[language].kinds
    if unknown := [kind for kind in kinds if kind not in supported]:
        problem = f"the language '{language}' has no tasks of the kind '{unknown[0]}'"
        raise RecipeError(problem, where="environment.kinds", allowed=", ".join(supported))
    if language == "questions" and not questions:
        raise RecipeError("expected seed questions, got none", where="environment.questions", allowed="a list of texts")
    if show == "solutions" and language != "lines":
        problem = f"there are no solutions to imitate in the language '{language}'"
        raise RecipeError(problem, where="environment.show", allowed="seeds; solutions for `lines`")


def _initial_task(language: str, kind: str, questions: Sequence[str], rng: random.Random) -> Task:
    if language == "questions":
        return Task(kind, rng.choice(list(questions)), (), ("",))
    if language == "python":
        values = ("'a'", "0", "[1]", "(2, 3)")
        return (
            Task(kind, IDENTITY.program, values, values)
            if kind == "induction"
            else Task(kind, IDENTITY.program, IDENTITY.inputs, IDENTITY.outputs)
        )
    while True:
        task = languages.random_task(kind, rng)
        if not languages.is_held_out(task):
            return task


def _random_proposal(task: Task, rng: random.Random) -> Task:
    """Return a random task of the same kind; for an induction, random inputs of the same program."""
    random_task = languages.random_task(task.kind, rng)
    return Task(task.kind, task.program, random_task.inputs) if task.kind == "induction" else random_task


def _held_out(kinds: Sequence[str], count: int) -> list[Task]:
    """Return up to `count` different held-out tasks, the same for every seed."""
    rng, tasks = random.Random("held-out tasks"), dict[str, Task]()
    for number in range(DRAWS * count):
        task = languages.random_task(kinds[number % len(kinds)], rng)
        if languages.is_held_out(task):
            tasks[LANGUAGES["lines"].task_prompt(task)] = task
    return list(tasks.values())[:count]


def _example(name: str, task: Task, job: str) -> dict[str, Any]:
    language = LANGUAGES[name]
    text = language.task_prompt(task) if job == "solve" else language.proposal_prompt(task.kind, task)
    columns = {"language": name, "task": task.text(), "kind": task.kind, "job": job}
    return {"prompt": as_message(text), **columns, "score": None, "role": 0}


def role(role: Sequence[float]) -> list[float]:
    """Return the number of the completion's role: give it the weight 0, for advantages per role."""
    return [float(number) for number in role]


def self_play(
    completions: Sequence[str], language: Sequence[str], task: Sequence[str], score: Sequence[float | None]
) -> list[float]:
    """Return the score of the source `propose_and_solve`; of a held-out task 1 if it is solved, else 0.

    In training, completions are scored when they are generated, because the reward of a proposal requires the
    policy's answers to it. Held-out tasks are checked by execution, in the sandbox of rlm-sandbox.
    """
    return [
        _solution_score(text, name, task_text) if source_score is None else float(source_score)
        for text, name, task_text, source_score in zip(completions, language, task, score, strict=True)
    ]


def _solution_score(text: str, name: str, task_text: str) -> float:
    language, task = LANGUAGES[name], read(task_text)
    answer = language.read_answer(task, text)
    return float(answer is not None and language.is_right(task, answer))
