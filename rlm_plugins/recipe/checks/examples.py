"""Checks of the content of all examples: answers, duplicates, overlap of training and held-out examples, damage.

Examples that cannot be trained on are an error. A defect of up to `TOLERATED` of the examples, or one that only wastes
steps, is a warning with the numbers of the examples.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from rlm_plugins.data.images import image_ids
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.checks.required_columns import columns
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage_settings import Reward

_LOG = logging.getLogger(__name__)
TOLERATED = 0.05
"""Share of examples with a defect above which training on the rest is refused."""
ROLES = {"system", "developer", "user", "assistant", "tool"}
_NO_ANSWER = {
    "",
    "n/a",
    "na",
    "nan",
    "none",
    "null",
    "nil",
    "unknown",
    "todo",
    "tbd",
    "?",
    "-",
    "--",
    "...",
    "[]",
    "{}",
}
_DAMAGED = {"�": "U+FFFD, the mark of a decoding error", "\0": "a NUL character"}
_MAX_CHARACTERS = 1_000_000
"""Characters of one prompt; several hundred thousand tokens."""


def check_content(
    environment_spec: EnvironmentSpec, rewards: Sequence[Reward], name: str, where: str, *, generated: bool
) -> None:
    """Check the content of training and held-out examples.

    Args:
        environment_spec: The data sets; of a stream nothing is read.
        rewards: The columns that they require are gold answers.
        name: Of the environment, for messages.
        where: Its address.
        generated: True if the environment computes its examples, and may repeat them.

    Raises:
        RecipeError: Examples that cannot be used; it names the first of them, counted from 0.
    """
    keys: dict[str, list[str]] = {}  # equal for examples that differ in case and blanks alone
    gold = _gold_columns(environment_spec, rewards)
    for kind, rows in (("training", environment_spec.train), ("held-out", environment_spec.test)):
        if not hasattr(rows, "__len__") or not len(rows) or "prompt" not in columns(rows):
            continue
        title = f"{kind} examples of '{name}'"
        prompts = _column(rows, "prompt")
        if not any(prompts):
            continue  # texts without a prompt
        texts, images = [_text(prompt) for prompt in prompts], image_ids(rows)
        keys[kind] = [_normalized(text) + image for text, image in zip(texts, images, strict=True)]
        _check_messages(prompts, title, where)
        _check_texts(texts, title, where)
        answers = {column: _column(rows, column) for column in gold if column in columns(rows)}
        _check_answers(answers, rewards, title, where, generated=generated)
        if kind == "training" and not generated:
            _check_repeats([*map(str.__add__, texts, images)], answers, title, where)
    training = set(keys.get("training", ()))
    overlap = [i for i, key in enumerate(keys.get("held-out", ())) if key in training]
    _warn(overlap, len(keys.get("held-out", ())), f"held-out examples of '{name}'", "are also training examples", where)


def _check_texts(texts: Sequence[str], title: str, where: str) -> None:
    """Check prompts for their size and for damaged characters."""
    for number, text in enumerate(texts):
        if len(text) > _MAX_CHARACTERS:
            size = len(text) / 1e6
            raise RecipeError(f"prompt {number} of the {title} has {size:.1f} million characters", where=where)
    for character, meaning in _DAMAGED.items():
        damaged = [i for i, text in enumerate(texts) if character in text]
        _check_share(damaged, len(texts), title, f"have {meaning}", where)


def _check_answers(
    answers: Mapping[str, Sequence[Any]], rewards: Sequence[Reward], title: str, where: str, *, generated: bool
) -> None:
    """Check each column of gold answers for missing ones, and the column `answer` for lists and objects."""
    for column, values in answers.items():
        missing = [i for i, answer in enumerate(values) if _is_missing(answer)]
        defect = f"have no answer in the column '{column}'"
        if all(column in reward.part.part.required_data for reward in rewards) and not generated:
            _check_share(missing, len(values), title, defect, where)
        elif not generated:  # in a mixture of tasks, other rewards score the rest
            _warn(missing, len(values), title, defect, where)
        if column == "answer" and any(reward.part.part.name.endswith("accuracy") for reward in rewards):
            nested = [i for i, answer in enumerate(values) if isinstance(answer, list | Mapping)]
            defect = "have a list or an object in the column 'answer', and a correct answer is text or a number"
            _check_share(sorted({*nested} - {*missing}), len(values), title, defect, where)


def _gold_columns(environment_spec: EnvironmentSpec, rewards: Sequence[Reward]) -> list[str]:
    names = columns(environment_spec.train) if hasattr(environment_spec.train, "__len__") else []
    required = dict.fromkeys(chain.from_iterable(reward.part.part.required_data for reward in rewards))
    return [column for column in required if column in names and column not in ("prompt", "prompts")]


def _column(rows: Any, name: str) -> list[Any]:
    return [row.get(name) for row in rows] if isinstance(rows, list | tuple) else list(rows[name])


def _text(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{m.get('role')}: {_content(m.get('content'))}" for m in prompt)


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(block.get("text", "")) for block in content if isinstance(block, Mapping))
    return str(content or "")


def _normalized(text: str) -> str:
    return " ".join(text.casefold().split())


def _is_missing(answer: Any) -> bool:
    if isinstance(answer, float):
        return not math.isfinite(answer)  # NaN: an empty cell of a table
    if isinstance(answer, list | tuple | Mapping):
        return all(map(_is_missing, answer.values() if isinstance(answer, Mapping) else answer))
    return answer is None or (isinstance(answer, str) and answer.strip().casefold() in _NO_ANSWER)


def _check_messages(prompts: Iterable[Any], title: str, where: str) -> None:
    for number, prompt in enumerate(prompts):
        for message in prompt if isinstance(prompt, list) else ():
            if message.get("role") not in ROLES:
                problem = f"prompt {number} of the {title} has a message of the role {message.get('role')!r}"
                raise RecipeError(problem, where=where, allowed=", ".join(sorted(ROLES)))
        if isinstance(prompt, list) and not any(_content(m.get("content")).strip() for m in prompt):
            raise RecipeError(f"prompt {number} of the {title} has only empty messages", where=where)


def _check_repeats(texts: Sequence[str], answers: Mapping[str, Sequence[Any]], title: str, where: str) -> None:
    """Report prompts that occur more than once: with another answer, or with the same."""
    first: dict[str, int] = {}
    repeated: list[int] = []
    contradicting: list[int] = []
    for number, text in enumerate(texts):
        original = first.setdefault(text, number)
        if original != number:
            differ = any(values[number] != values[original] for values in answers.values())
            (contradicting if differ else repeated).append(number)
    _check_share(contradicting, len(texts), title, "repeat a prompt with another answer", where)
    _warn(repeated, len(texts), title, "repeat a prompt and its answer", where)


def _check_share(numbers: Sequence[int], total: int, title: str, defect: str, where: str) -> None:
    """Warn about a defect of few examples.

    Raises:
        RecipeError: More than `TOLERATED` have it.
    """
    if len(numbers) > TOLERATED * total:
        problem = f"{len(numbers)} of {total} {title} {defect}: {_number_text(numbers)}"
        raise RecipeError(problem, where=where, hint=f"correct or remove them; up to {TOLERATED:.0%} are tolerated")
    _warn(numbers, total, title, defect, where)


def _warn(numbers: Sequence[int], total: int, title: str, defect: str, where: str) -> None:
    if numbers:
        _LOG.warning("%s: %d of %d %s %s: %s", where, len(numbers), total, title, defect, _number_text(numbers))


def _number_text(numbers: Sequence[int]) -> str:
    return "examples " + ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "") + " (counted from 0)"
