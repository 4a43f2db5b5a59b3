"""The tasks of reasoning-gym by name: their families, levels and settings, and an endless stream of items of each."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from rlm_plugins.errors import RecipeError, nearest

MADE_OF_OTHERS = ("composite",)
"""Names that are no task: a mixture is written into the recipe."""
UNSTEADY = ("isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder")
"""Tasks whose items depend on Python's random hashes: two processes of one run would ask different questions."""
PLAIN = (bool, int, float, str, list, tuple, dict, set)
"""What a setting of a recipe may be; a few configs also hold times of day, or objects of their own."""
CHUNK = 1000
"""Items of one seed; some tasks make all of them at once."""
PATIENCE = 100
"""Items in a row that could not be made, before a task is given up."""

Item = dict[str, Any]


def names() -> list[str]:
    """Every task, in alphabetical order."""
    return sorted(_known().keys() - {*MADE_OF_OTHERS})


def family(task: str) -> str:
    """``logic``, ``arithmetic``, ``games``, …"""
    return str(_known()[task][0].__module__.split(".")[1])


def levels(task: str, where: str = "") -> int:
    """How many levels of difficulty it has; 0: none are known.

    Raises:
        RecipeError: There is no such task.
    """
    _require(task, where)
    from reasoning_gym.factory import CURRICULA

    attributes = CURRICULA[task]().attributes if task in CURRICULA else {}
    return max((len(attribute.levels) for attribute in attributes.values()), default=0)


def _require(task: str, where: str) -> None:
    if task not in names():
        raise RecipeError(
            f"reasoning-gym has no task '{task}'",
            where=where,
            hint=nearest(task, names()) or "`python -m rlm_gym list` shows them",
        )


def settings(task: str, level: int | None, changed: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of its config at a level (None: its own defaults), some of them `changed`.

    Raises:
        RecipeError: No such task, level or field; values that the task refuses; hashes without a seed.
    """
    _require(task, where)
    if task in UNSTEADY and not os.environ.get("PYTHONHASHSEED", "").isdecimal():
        raise RecipeError(
            f"the items of '{task}' depend on Python's hashes, which differ from process to process",
            where=where,
            hint="give them a seed: PYTHONHASHSEED=0 rlm …",
        )
    config_type = _known()[task][1]
    allowed = [name for name, value in vars(config_type()).items() if _may_be_turned(name, value)]
    for name in changed:
        if name not in allowed:
            raise RecipeError(
                f"'{task}' has no setting '{name}'",
                where=f"{where}.settings",
                allowed=", ".join(allowed),
                hint=nearest(name, allowed),
            )
    config = config_type(**{**_of_level(task, level, where), **changed})
    try:
        getattr(config, "validate", bool)()  # one has none
    except (AssertionError, ValueError, TypeError) as error:
        raise RecipeError(f"'{task}' refuses these settings: {error}", where=where) from None
    return {name: getattr(config, name) for name in allowed}


def _may_be_turned(name: str, value: Any) -> bool:
    return name not in ("seed", "size") and (value is None or isinstance(value, PLAIN))


def _of_level(task: str, level: int | None, where: str) -> dict[str, Any]:
    """Every attribute of its curriculum at this level, or at its last one."""
    from reasoning_gym.factory import CURRICULA

    if level is None:
        return {}
    if not levels(task):
        raise RecipeError(f"'{task}' has no levels", where=where, hint="turn its `settings`")
    curriculum = CURRICULA[task]()
    curriculum.set_global_level(level)
    config = curriculum.generate_configuration()
    return {name: value for name, value in vars(config).items() if _may_be_turned(name, value)}


def items(task: str, settings: Mapping[str, Any], seed: str) -> Iterator[Item]:
    """Its items without end; another `seed` (any text) gives others.

    Raises:
        RecipeError: The task makes none with these settings.
    """
    for chunk in count():
        dataset = _made(task, settings, f"{seed} {chunk}")
        failed = 0
        for index in range(CHUNK):
            try:
                item = dataset[index]
            except Exception as error:  # whatever a generator trips over: the next seed may suit it
                failed += 1
                if failed == PATIENCE:
                    raise RecipeError(f"'{task}' makes no items: {error!r}", where="environment.tasks") from None
                continue
            failed = 0
            yield item


def _made(task: str, settings: Mapping[str, Any], seed: str) -> Any:
    kind, config_type = _known()[task]
    number = int.from_bytes(hashlib.blake2b(f"{task} {seed}".encode(), digest_size=4).digest(), "big") % 2**31
    return kind(config_type(**settings, seed=number, size=CHUNK))


def _known() -> dict[str, Any]:
    try:
        import reasoning_gym  # noqa: F401  (registers the tasks)
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise RecipeError(
            f"reasoning-gym cannot be imported: {error}", where="environment", hint="pip install reasoning-gym"
        ) from None
    known: dict[str, Any] = DATASETS
    return known
