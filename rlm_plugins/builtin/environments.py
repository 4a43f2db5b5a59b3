"""x: sources of prompts (hook ``rlm_environments``)."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from typing import Annotated, Any

from pydantic import Field

from rlm_plugins import hookimpl
from rlm_plugins.builtin.dataset_environment import dataset
from rlm_plugins.data.addition import Difficulty, Problem
from rlm_plugins.equation.knobs import Count, Natural, Share
from rlm_plugins.specs import EnvironmentSpec, Successes

Digits = Annotated[int, Field(ge=1, le=100)]


def addition(
    *,
    digits: Digits = 3,
    min_digits: Digits | None = None,
    min_carries: Natural = 0,
    max_carries: Natural | None = None,
    train_rows: Count = 16384,
    test_rows: Natural = 256,
    seed: int = 0,
    slip: Share = 0.0,
    thinking: bool = True,
    instruction: str = "",
) -> EnvironmentSpec:
    """Addition of two numbers of equal length column by column: ``347+285=?`` → 632.

    Columns: ``prompt``, ``answer`` and ``demonstration``. By default it has a chain of thought:
    ``<think>7+5+0=12;4+8+1=13;3+2+1=6</think><answer>632</answer>``; without `thinking` only the answer block.

    Difficulty: `digits` (lengths from `min_digits` to `digits`, equally likely) and the number of columns that carry,
    from `min_carries` to `max_carries`. `slip` adds mistakes to the training demonstrations: each carry is dropped with
    this probability, and the answer follows from the mistake. So a supervised stage learns the procedure with its
    errors, which a reinforcement stage can then remove.

    For a pre-trained chat model, `instruction` follows the question after an empty line; one with ``{question}`` is a
    template, and the question stands at that place.

    One problem in eight, chosen by a hash (a+b and b+a are one problem), is never in the training set, for any `seed`
    or `train_rows`. The test examples are drawn from these, the same for every seed, each once; training
    examples are drawn with replacement.

    >>> addition(min_carries=2, train_rows=1, test_rows=1).test[0]["demonstration"]
    '<think>9+4+0=13;7+0+1=8;7+6+0=13</think><answer>1383</answer>'
    """
    limit = digits if max_carries is None else max_carries
    kind = Difficulty(range(min_digits or digits, digits + 1), min_carries, limit)
    slips = random.Random(f"slips {seed}")
    training = islice(kind.training(seed), train_rows)
    return EnvironmentSpec(
        train=[_row(problem, thinking, instruction, lambda: slips.random() < slip) for problem in training],
        test=[_row(problem, thinking, instruction) for problem in kind.tests(test_rows)],
    )


def _row(
    problem: Problem, thinking: bool, instruction: str, forget: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    columns, result = problem.solve(forget)
    thought = f"<think>{columns}</think>" if thinking else ""
    text = instruction.replace("{question}", problem.question)
    text = text if text != instruction else "\n\n".join(filter(None, (problem.question, instruction)))
    return {
        "prompt": [{"role": "user", "content": text}],
        "answer": str(problem.a + problem.b),
        "demonstration": f"{thought}<answer>{result}</answer>",
    }


def successes(*, stage: str, per_prompt: Count = 1, at_least: float = 1.0) -> EnvironmentSpec:
    """Rejection sampling: the examples of an earlier stage of this recipe, each with a completion that succeeded there.

    The column ``demonstration`` holds the latest completions of the stage with a reward of `at_least`, at most
    `per_prompt` different ones per prompt; prompts without one are left out. The other columns and the held-out
    examples are those of that stage, which needs ``callbacks: [keep_successes]``. So the stages of DeepSeek-R1 (arXiv
    2501.12948 §2.3) are one recipe: cold start, RL, fine-tuning on its own successes, RL.

    Until the stage starts, the examples of the earlier stage stand in for checks.
    """
    return EnvironmentSpec(train=(), successes=Successes(stage, per_prompt, at_least))


successes.produces = "successes"  # type: ignore[attr-defined]


@hookimpl
def rlm_environments() -> dict[str, object]:
    return {"addition": addition, "dataset": dataset, "successes": successes}
