"""Checks of a data set before any weight is loaded: valid prompts, and as many as a generation requires."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from rlm_plugins.batch import SAMPLE
from rlm_plugins.data.images import undecoded, without_images
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.messages import expected
from rlm_plugins.recipe.checks.required_columns import columns
from rlm_plugins.specs import EnvironmentSpec


def check_rows(environment_spec: EnvironmentSpec, name: str, where: str, *, with_text: bool = False) -> None:
    """Check that every example has a valid prompt.

    Args:
        environment_spec: Its training set must not be empty.
        name: Of the environment, for errors.
        where: Address of the environment.
        with_text: True if training examples may have an empty prompt: texts without a prompt.

    Raises:
        RecipeError: It names the example, counted from 0.
    """
    if columns(environment_spec.train) == []:
        raise RecipeError(f"the environment '{name}' has no training examples", where=where)
    for kind, rows in (("training", environment_spec.train), ("held-out", environment_spec.test)):
        names = columns(rows)
        if reserved := [column for column in names if column in SAMPLE]:
            raise RecipeError(
                f"the {kind} examples of '{name}' have a column '{reserved[0]}', which is a reserved name",
                where=where,
                hint="rename it",
            )
        if names and "prompt" not in names:
            problem = f"the {kind} examples of '{name}' have no column 'prompt'"
            raise RecipeError(problem, where=where, allowed=", ".join(names), hint=nearest("prompt", names))
        first: Mapping[str, Any] = next(iter(undecoded(rows)), {})
        if with_text and kind == "training" and first.get("prompt") == "":
            continue
        _check_prompts(rows, names, f"{kind} example {{}} of '{name}'", where)


def _check_prompts(rows: Any, names: list[str], title: str, where: str) -> None:
    prompt_type: type | None = None
    for number, prompt in enumerate(_prompts(rows, names, title, where)):
        row = title.format(number)
        if not prompt or (isinstance(prompt, str) and not prompt.strip()):
            hint = "texts without a prompt (the column `text`) train `algorithm: sft` alone" if prompt == "" else ""
            raise RecipeError(f"{row} has an empty prompt: {prompt!r}", where=where, hint=hint)
        if not isinstance(prompt, str) and not _is_chat(prompt):
            raise RecipeError(
                f"{row}: {expected('a string or a list of messages with `role` and `content`', prompt)}", where=where
            )
        prompt_type = prompt_type or type(prompt)
        if type(prompt) is not prompt_type:
            raise RecipeError(f"{row}: a string among conversations, or a conversation among strings", where=where)


def _is_chat(prompt: Any) -> bool:
    return isinstance(prompt, list) and all(isinstance(m, Mapping) and "role" in m for m in prompt)


def _prompts(rows: Any, names: list[str], title: str, where: str) -> Iterable[Any]:
    """Return the prompts of all examples; of a stream, that of the first."""
    if not isinstance(rows, list | tuple):
        rows = without_images(rows)
        return rows["prompt"] if hasattr(rows, "__len__") and names else (row["prompt"] for row in islice(rows, 1))
    for number, row in enumerate(rows):
        if mismatched := set(names) ^ set(row):
            column = min(mismatched)
            problem = "has no" if column in names else "alone has a"
            raise RecipeError(f"{title.format(number)} {problem} column '{column}'", where=where)
    return (row["prompt"] for row in rows)


def check_indexable(environment_spec: EnvironmentSpec, reason: str, name: str, where: str) -> None:
    """Check that prompts can be sampled by index.

    Args:
        environment_spec: Its training set must support indices.
        reason: The reason for sampling by index, as a clause; empty: none.
        name: Of the environment, for errors.
        where: Address of the algorithm.

    Raises:
        RecipeError: The training set is a stream.
    """
    if reason and not (hasattr(environment_spec.train, "__len__") and hasattr(environment_spec.train, "__getitem__")):
        raise RecipeError(
            f"{reason}, but the training set of '{name}' is a stream: prompts cannot be sampled by index",
            where=where,
            hint="load it without `streaming`",
        )


def check_refill(environment_spec: EnvironmentSpec, reason: str, where: str) -> None:
    """Check that batches of these examples can be refilled: those with images cannot.

    Args:
        environment_spec: Its training set is checked.
        reason: The filter that refills, as a clause; empty: none.
        where: Address of the filters.

    Raises:
        RecipeError: The data set has a column of images.
    """
    if reason and (image_columns := {"image", "images"} & {*columns(environment_spec.train)}):
        problem = (
            f"{reason}, but the examples have a column '{min(image_columns)}': a batch with images cannot be refilled"
        )
        raise RecipeError(problem, where=where, hint="remove `refill`; the filter then leaves the batch smaller")


def check_size(environment_spec: EnvironmentSpec, config: Any, where: str) -> None:
    """Check that there are enough prompts for one generation batch.

    TRL drops an incomplete generation batch: with fewer examples it trains nothing, and reports success.

    Args:
        environment_spec: Its training set, of known length.
        config: The trainer's; one without ``num_generations`` takes any number of examples.
        where: Address of the environment.

    Raises:
        RecipeError: With both numbers.
    """
    if not hasattr(config, "num_generations") or not hasattr(environment_spec.train, "__len__"):
        return
    num_prompts = config.generation_batch_size // config.num_generations
    if len(environment_spec.train) < num_prompts:
        raise RecipeError(
            f"{len(environment_spec.train)} training examples are fewer than the {num_prompts} prompts of a generation",
            where=where,
            hint=f"{config.generation_batch_size} completions ÷ num_generations {config.num_generations} = "
            f"{num_prompts}: take more examples, or a smaller batch",
        )
