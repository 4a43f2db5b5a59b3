"""Looks at the rows of a world before any weight is loaded: prompts, and the columns that parts name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from rlm_plugins.batch import SAMPLE
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.messages import expected
from rlm_plugins.registry.import_path import called
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import ChecksItself, columns_of
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage import Reward

NOT_FOR_REWARDS = ("prompt", "completion", "demonstration")
"""Columns that mean something to the machine itself; a reward gets ``prompts`` and ``completions`` instead."""


def check_rows(environment_spec: EnvironmentSpec, name: str, where: str) -> None:
    """Whether every row can be asked.

    Args:
        world: Its training rows must not be empty.
        name: Of the environment, for errors.
        where: Address of the environment.

    Raises:
        RecipeError: With the number of the row, counted from 0.
    """
    if columns(environment_spec.train) == []:
        raise RecipeError(f"the environment '{name}' has no training rows", where=where)
    for kind, rows in (("training", environment_spec.train), ("held-out", environment_spec.test)):
        names = columns(rows)
        if reserved := [column for column in names if column in SAMPLE]:
            raise RecipeError(
                f"the {kind} rows of '{name}' have a column '{reserved[0]}', a name that means something else here",
                where=where,
                hint="rename it",
            )
        if names and "prompt" not in names:
            problem = f"the {kind} rows of '{name}' have no column 'prompt'"
            raise RecipeError(problem, where=where, allowed=", ".join(names), hint=nearest("prompt", names))
        _check_prompts(rows, names, f"{kind} row {{}} of '{name}'", where)


def _check_prompts(rows: Any, names: list[str], title: str, where: str) -> None:
    kind: type | None = None
    for number, prompt in enumerate(_prompts(rows, names, title, where)):
        row = title.format(number)
        if not prompt or (isinstance(prompt, str) and not prompt.strip()):
            raise RecipeError(f"{row} has an empty prompt: {prompt!r}", where=where)
        if not isinstance(prompt, str) and not _is_chat(prompt):
            raise RecipeError(
                f"{row}: {expected('a string or a list of messages with `role` and `content`', prompt)}", where=where
            )
        if type(prompt) is not (kind := kind or type(prompt)):
            raise RecipeError(f"{row}: text among conversations, or the other way round", where=where)


def _is_chat(prompt: Any) -> bool:
    return isinstance(prompt, list) and all(isinstance(m, Mapping) and "role" in m for m in prompt)


def _prompts(rows: Any, names: list[str], title: str, where: str) -> Iterable[Any]:
    """The prompts of all rows; of a stream, those of the first row."""
    if not isinstance(rows, list | tuple):
        return rows["prompt"] if hasattr(rows, "__len__") and names else (row["prompt"] for row in islice(rows, 1))
    for number, row in enumerate(rows):
        if odd := set(names) ^ set(row):
            column = min(odd)
            problem = "has no" if column in names else "alone has a"
            raise RecipeError(f"{title.format(number)} {problem} column '{column}'", where=where)
    return (row["prompt"] for row in rows)


def columns(rows: Any) -> list[str]:
    """The columns of rows in any form; empty where there are no rows."""
    named = getattr(rows, "column_names", None)
    if hasattr(rows, "__len__") and len(rows) == 0:
        return []
    return list(named) if named else list(next(iter(rows), {}))


def check_columns(
    environment_spec: EnvironmentSpec, kind: str, rewards: Sequence[Reward], name: str, where: str
) -> None:
    """Whether every reward finds the data it names.

    Args:
        world: Whose rows they score.
        kind: Which rows: ``training`` or ``held-out``.
        rewards: In the order of the recipe.
        name: Of the environment, for errors.
        where: Address of the rewards.

    Raises:
        RecipeError: It names the reward, the column, and the columns there are.
    """
    rows = environment_spec.train if kind == "training" else environment_spec.test
    names = [column for column in columns(rows) if column not in NOT_FOR_REWARDS]
    for number, reward in enumerate(rewards if columns(rows) else ()):
        for need in reward.part.part.needs:
            sample = reward.part.part.sample
            if need not in sample and need not in names:
                raise RecipeError(
                    f"the reward '{reward.label}' needs the column '{need}', which the {kind} rows of '{name}' do not "
                    "have",
                    where=f"{where}[{number}]",
                    allowed=f"the columns {', '.join(names) or '(none)'}; or {', '.join(sample)}",
                    hint=nearest(need, [*names, *sample]),
                )
            if need in ("episodes", "environments") and not environment_spec.multi_turn:
                problem = f"the reward '{reward.label}' needs {need}, and '{name}' is a world of one turn: it has none"
                raise RecipeError(problem, where=f"{where}[{number}]")


def check_engine_columns(
    environment_spec: EnvironmentSpec, needed: Sequence[str], name: str, where: str, *, held_out: bool = False
) -> None:
    """Whether the rows (or the held-out rows) have what the engine itself learns from, such as ``demonstration``.

    Raises:
        RecipeError: It names the column and those there are.
    """
    rows, whose = (environment_spec.test, "held-out") if held_out else (environment_spec.train, "training")
    names = columns(rows)
    for need in (need for need in needed if need not in names and (names or not held_out)):
        problem = f"the algorithm learns from the column '{need}', which the {whose} rows of '{name}' do not have"
        raise RecipeError(problem, where=where, allowed=", ".join(names), hint=nearest(need, names))


def check_parts(
    parts: Iterable[tuple[Bound, str]], lora: Mapping[str, Any] | None, environment_spec: EnvironmentSpec
) -> None:
    """Lets every part with a method `check` look for what it needs.

    Args:
        parts: Rewards and parts of the equation, with their addresses.
        lora: The policy's adapter (None: all weights are trained), which a `check` may name.
        world: Of the stage; a `check` may name `columns`, those of its training rows.

    Raises:
        RecipeError: What it lacks, and the address of its knob.
    """
    for part, where in parts:
        if isinstance(part.target, ChecksItself):
            with stands_at(where):
                called(part.target.check, {"lora": lora, "columns": columns(environment_spec.train)})


def check_source_columns(environment_spec: EnvironmentSpec, sources: Sequence[Bound], name: str, where: str) -> None:
    """Whether every rollout source finds the columns it says it reads, and whatever else it looks for itself.

    A source with a method ``check`` is asked; where that names ``prompts``, it is given those of the training rows.

    Raises:
        RecipeError: It names the source, the column, and the columns there are.
    """
    names = columns(environment_spec.train)
    for number, source in enumerate(sources):
        for need in (need for need in columns_of(source.target) if need not in names):
            problem = f"'{source.part.name}' writes from the column '{need}', which the rows of '{name}' do not have"
            allowed, hint = ", ".join(names), nearest(need, names)
            raise RecipeError(problem, where=f"{where}[{number}]", allowed=allowed, hint=hint)
        if isinstance(source.target, ChecksItself):
            with stands_at(f"{where}[{number}]"):
                _look(source.target.check, environment_spec)


def _look(check: Callable[..., None], environment_spec: EnvironmentSpec) -> None:
    rows = environment_spec.train
    if "prompts" not in inspect.signature(check).parameters:
        check()
    elif not hasattr(rows, "__len__"):
        check(prompts=None)
    else:
        check(prompts=[row["prompt"] for row in rows] if isinstance(rows, Sequence) else rows["prompt"])


@contextmanager
def stands_at(where: str) -> Iterator[None]:
    """A part knows its knobs, not where in the recipe it stands; a section not the stage. Empty: at the top."""
    try:
        yield
    except RecipeError as error:
        place = ".".join(filter(None, (where, error.where)))
        raise RecipeError(error.problem, where=place, allowed=error.allowed, hint=error.hint) from error.__cause__


def check_drawn(environment_spec: EnvironmentSpec, why: str, name: str, where: str) -> None:
    """Whether problems can be drawn from the rows one generation at a time.

    Args:
        world: Its training rows must be numbered.
        why: Why they are drawn, as a clause; empty: they are not.
        name: Of the environment, for errors.
        where: Address of the algorithm.

    Raises:
        RecipeError: The rows are a stream.
    """
    if why and not (hasattr(environment_spec.train, "__len__") and hasattr(environment_spec.train, "__getitem__")):
        raise RecipeError(
            f"{why}, but the training rows of '{name}' are a stream: problems cannot be drawn from it",
            where=where,
            hint="load them whole (of a data set: without `streaming`)",
        )


def check_refill(environment_spec: EnvironmentSpec, why: str, where: str) -> None:
    """Whether a batch of these rows can be refilled: rows with images cannot be put together anew.

    Args:
        world: Its training rows are looked at.
        why: Which filter refills, as a clause; empty: none.
        where: Address of the filters.

    Raises:
        RecipeError: They have a column of images.
    """
    if why and (seen := {"image", "images"} & {*columns(environment_spec.train)}):
        problem = f"{why}, but the rows have a column '{min(seen)}': a batch with images cannot be refilled"
        raise RecipeError(problem, where=where, hint="take `refill` out; the filter then leaves the batch smaller")


def check_size(environment_spec: EnvironmentSpec, config: Any, where: str) -> None:
    """Whether there is a problem for every place in one generation.

    TRL drops an incomplete generation: with fewer rows than one it trains nothing, and says that it finished.

    Args:
        world: Its training rows are counted, where they can be.
        config: The engine's; one without ``num_generations`` takes any number of rows.
        where: Address of the environment.

    Raises:
        RecipeError: With both numbers.
    """
    if not hasattr(config, "num_generations") or not hasattr(environment_spec.train, "__len__"):
        return
    needed = config.generation_batch_size // config.num_generations
    if len(environment_spec.train) < needed:
        raise RecipeError(
            f"{len(environment_spec.train)} training rows are fewer than the {needed} problems of one generation",
            where=where,
            hint=f"{config.generation_batch_size} completions ÷ num_generations {config.num_generations} = {needed}: "
            "take more rows, or a smaller batch",
        )
