"""x: where problems come from (hook ``rlm_environments``)."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from typing import Annotated, Any

from pydantic import Field

from rlm_plugins import hookimpl
from rlm_plugins.builtin.gist import gist_environment
from rlm_plugins.builtin.verifiers_adapter import verifiers
from rlm_plugins.data.addition import Kind, Problem
from rlm_plugins.data.prompt_columns import hold_out, prompt_builder, without
from rlm_plugins.data.tables import open_split
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec

Count = Annotated[int, Field(ge=1)]
Digits = Annotated[int, Field(ge=1, le=100)]
Natural = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


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
) -> EnvironmentSpec:
    """Sums of two numbers of equal length, worked column by column: ``347+285=?`` → 632.

    Columns: ``prompt``, ``answer`` and ``demonstration``, by default with its chain of thought:
    ``<think>7+5+0=12;4+8+1=13;3+2+1=6</think><answer>632</answer>``; without `thinking` only the answer block.

    Difficulty: `digits` (lengths from `min_digits` to `digits`, each as likely) and how many columns carry, from
    `min_carries` to `max_carries`. `slip` makes the training demonstrations sloppy: a due carry is forgotten with
    this probability and the answer follows the mistake, so a supervised stage learns the procedure together with
    its errors and leaves reinforcement something to do.

    One problem in eight, chosen by a hash of the problem (a+b and b+a are one), is never trained on, whatever
    `seed` or `train_rows`. The test rows are drawn from these, the same for every seed, each once; training rows
    are drawn with replacement.

    >>> addition(min_carries=2, train_rows=1, test_rows=1).test[0]["demonstration"]
    '<think>9+4+0=13;7+0+1=8;7+6+0=13</think><answer>1383</answer>'
    """
    most = digits if max_carries is None else max_carries
    kind = Kind(range(min_digits or digits, digits + 1), min_carries, most)
    slips = random.Random(f"slips {seed}")
    training = islice(kind.training(seed), train_rows)
    return EnvironmentSpec(
        train=[_row(problem, thinking, lambda: slips.random() < slip) for problem in training],
        test=[_row(problem, thinking) for problem in kind.tests(test_rows)],
    )


def _row(problem: Problem, thinking: bool, forget: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    columns, result = problem.work(forget)
    thought = f"<think>{columns}</think>" if thinking else ""
    return {
        "prompt": [{"role": "user", "content": problem.question}],
        "answer": str(problem.a + problem.b),
        "demonstration": f"{thought}<answer>{result}</answer>",
    }


def dataset(
    *,
    path: str,
    config: str | None = None,
    revision: str | None = None,
    split: str = "train",
    test_split: str | None = None,
    test_rows: Natural = 0,
    columns: dict[str, str] | None = None,
    prompt: str | None = None,
    template: str | None = None,
    system: str | None = None,
    chat: bool = True,
    max_rows: Count | None = None,
    seed: int = 0,
    streaming: bool = False,
) -> EnvironmentSpec:
    """Any data set: a json, jsonl, csv, tsv or parquet file, a folder of them or of ``save_to_disk``, a hub name.

    What is asked: the column `prompt` (default: "prompt"; text, or a list of chat messages), or a `template` with
    columns in braces: ``"Question: {question}"``. `chat` makes text the message of a user, after `system` if there
    is one; ``chat: false`` keeps plain text, for models without a chat template. `columns` names things as the
    rewards do: ``{answer: solution}`` gives them the column `solution` as `answer`; all other columns stay, except
    those whose name means something else to a reward (`completions`, `completion_ids`, …).

    Held out: `test_rows` rows of `test_split` (0: all of them), or, without one, `test_rows` rows of `split`, drawn
    with `seed`; a question that is held out is not trained on where it occurs again. `max_rows`: use only the
    first rows of `split`. `streaming` reads a large set row by row: then the first `test_rows` rows are held out.
    A relative `path` starts at the working directory.
    """
    ask = prompt_builder(columns or {}, prompt, template, system, chat)

    def rows(split: str, most: int | None) -> Any:
        table: Any = open_split(path, split, config=config, revision=revision, streaming=streaming)
        if most is not None:
            table = table.take(most) if streaming else table.select(range(min(most, len(table))))
        if not streaming and len(table) == 0:
            raise RecipeError(f"split '{split}' of '{path}' has no rows", where="environment.path")
        return ask(table)

    train = rows(split, max_rows)
    if test_split is not None:
        test = rows(test_split, test_rows or None)
        test = list(test) if streaming else test
        return EnvironmentSpec(train=without(train, test), test=test)
    if not test_rows:
        return EnvironmentSpec(train=train)
    if streaming:
        first = list(train.take(test_rows))
        return EnvironmentSpec(train=without(train.skip(test_rows), first), test=first)
    return EnvironmentSpec(*hold_out(train, test_rows, seed))


@hookimpl
def rlm_environments() -> dict[str, object]:
    return {"addition": addition, "dataset": dataset, "verifiers": verifiers, "gist": gist_environment}
