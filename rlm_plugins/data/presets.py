"""What the worlds of plugins for well-known data sets share: which set, how it is asked, what is held out of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlm_plugins.data.prompt_columns import Questioner, hold_out, questioner, without
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec


def check_path(path: str) -> None:
    """Refuses a set that nobody named.

    Raises:
        RecipeError: The path is empty.
    """
    if not path:
        raise RecipeError("which data set?", where="environment.path", hint="a file, a folder, or a name on the hub")


def asked_with(column: str, instruction: str, system: str | None, chat: bool) -> Questioner:
    """Asks a column, and after an empty line an instruction, word for word, if there is one.

    >>> asked_with("problem", "Use {}.", None, chat=False).row({"problem": "1+1?"}, 0)
    {'prompt': '1+1?\\n\\nUse {}.'}
    """
    closing = f"\n\n{instruction}" if instruction else ""
    template = f"{{{column}}}" + closing.replace("{", "{{").replace("}", "}}")
    return questioner({}, None, template, system, chat)


def divided(
    rows: Callable[[str, int | None], Any],
    *,
    split: str,
    test_split: str | None,
    test_rows: int,
    max_rows: int | None,
    seed: int,
) -> EnvironmentSpec:
    """A world, some of whose rows are held out; what they ask is not trained on.

    Args:
        rows: (split, how many of its first rows; None: all) → rows with a prompt.
        split: To train on.
        test_split: To be judged by; None: rows of `split` are.
        test_rows: Rows of `test_split` (0: all), or rows of `split` drawn with `seed` (0: none).
        max_rows: Rows of `split` at most; None: all.
        seed: Of that draw.
    """
    train = rows(split, max_rows)
    if test_split is None:
        return EnvironmentSpec(*hold_out(train, test_rows, seed)) if test_rows else EnvironmentSpec(train=train)
    test = rows(test_split, None)
    test = test.select(range(min(test_rows or len(test), len(test))))
    return EnvironmentSpec(train=without(train, test), test=test)
