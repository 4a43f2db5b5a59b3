"""Checks of the content of all examples: gold answers, duplicates, overlap of training and held-out examples, damage.

What cannot be trained on is an error. A defect of up to `TOLERATED` of the examples, or one that only wastes steps, is
a warning with the numbers of the examples.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
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
_LARGE = 1_000_000
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
    prompts: dict[str, list[str]] = {}
    images: dict[str, list[str]] = {}
    gold = _gold_columns(environment_spec, rewards)
    for kind, rows in (("training", environment_spec.train), ("held-out", environment_spec.test)):
        if not hasattr(rows, "__len__") or not len(rows) or "prompt" not in columns(rows):
            continue
        title = f"{kind} examples of '{name}'"
        values = _column(rows, "prompt")
        if not any(values):
            continue  # texts without a prompt
        texts = prompts[kind] = [_text(prompt) for prompt in values]
        shown = images[kind] = image_ids(rows)
        _check_messages(values, title, where)
        large = [i for i, text in enumerate(texts) if len(text) > _LARGE]
        if large:
            size = len(texts[large[0]]) / 1e6
            raise RecipeError(f"prompt {large[0]} of the {title} has {size:.1f} million characters", where=where)
        for character, meaning in _DAMAGED.items():
            _judge(
                [i for i, text in enumerate(texts) if character in text], len(texts), title, f"have {meaning}", where
            )
        answers = {column: _column(rows, column) for column in gold if column in columns(rows)}
        for column, listed in answers.items():
            missing = [i for i, answer in enumerate(listed) if _is_missing(answer)]
            without = f"have no answer in the column '{column}'"
            if all(column in reward.part.part.needs for reward in rewards) and not generated:
                _judge(missing, len(listed), title, without, where)
            elif not generated:  # in a mixture of tasks, other rewards score the rest
                _warn(missing, len(listed), title, without, where)
            if column == "answer" and any(reward.part.part.name.endswith("accuracy") for reward in rewards):
                nested = [i for i, answer in enumerate(listed) if isinstance(answer, list | Mapping)]
                defect = "have a list or an object in the column 'answer', and a correct answer is text or a number"
                _judge(sorted({*nested} - {*missing}), len(listed), title, defect, where)
        if kind == "training" and not generated:
            _check_repeats([*map(str.__add__, texts, shown)], answers, title, where)
    if "held-out" in prompts:
        spelled = {kind: [*map(str.__add__, map(_spelled, prompts[kind]), images[kind])] for kind in prompts}
        known = set(spelled.get("training", ()))
        seen = [i for i, text in enumerate(spelled["held-out"]) if text in known]
        _warn(seen, len(prompts["held-out"]), f"held-out examples of '{name}'", "are also training examples", where)


def _gold_columns(environment_spec: EnvironmentSpec, rewards: Sequence[Reward]) -> list[str]:
    names = columns(environment_spec.train) if hasattr(environment_spec.train, "__len__") else []
    needs = dict.fromkeys(need for reward in rewards for need in reward.part.part.needs)
    return [need for need in needs if need in names and need not in ("prompt", "prompts")]


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


def _spelled(text: str) -> str:
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
        other = first.setdefault(text, number)
        if other != number:
            differ = any(listed[number] != listed[other] for listed in answers.values())
            (contradicting if differ else repeated).append(number)
    _judge(contradicting, len(texts), title, "repeat a prompt with another answer", where)
    _warn(repeated, len(texts), title, "repeat a prompt and its answer", where)


def _judge(numbers: Sequence[int], total: int, title: str, defect: str, where: str) -> None:
    """Warn of a defect of few examples.

    Raises:
        RecipeError: More than `TOLERATED` have it.
    """
    if len(numbers) > TOLERATED * total:
        problem = f"{len(numbers)} of {total} {title} {defect}: {_some(numbers)}"
        raise RecipeError(problem, where=where, hint=f"correct or remove them; up to {TOLERATED:.0%} are tolerated")
    _warn(numbers, total, title, defect, where)


def _warn(numbers: Sequence[int], total: int, title: str, defect: str, where: str) -> None:
    if numbers:
        _LOG.warning("%s: %d of %d %s %s: %s", where, len(numbers), total, title, defect, _some(numbers))


def _some(numbers: Sequence[int]) -> str:
    return "examples " + ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "") + " (counted from 0)"
