"""The tasks of reasoning-gym: families, levels, settings, and an endless stream of items for each."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from itertools import count
from typing import Any

from rlm_plugins.errors import RecipeError, nearest

COMPOSITE = ("composite",)
"""Names excluded from the tasks: a recipe lists the tasks of its mixture."""
HASH_DEPENDENT = ("isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder")
"""Tasks whose items depend on Python's random hashes: two processes of one run would get different questions."""
WRITING = ("codeio",)
"""Tasks whose generator executes programs that write files to the working directory."""
SETTING_TYPES = (bool, int, float, str, list, tuple, dict, set)
"""Types of settings that a recipe can express; a few configs also hold times of day, or objects of their own."""
CHUNK_SIZE = 1000
"""Items per seed; some tasks generate all of them at once."""
MAX_FAILURES = 100
"""Consecutive failures to generate an item after which a task is an error."""

Item = dict[str, Any]


def names() -> list[str]:
    """Return all task names in alphabetical order."""
    return sorted(_registry().keys() - {*COMPOSITE})


def family(task: str) -> str:
    """Return the family of a task: ``logic``, ``arithmetic``, ``games`` and so on."""
    return str(_registry()[task][0].__module__.split(".")[1])


def levels(task: str, where: str = "") -> int:
    """Return the number of difficulty levels of a task; 0: it has none.

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
            f"unknown reasoning-gym task '{task}'",
            where=where,
            hint=nearest(task, names()) or "`python -m rlm_gym list` lists them",
        )


def is_reproducible(task: str) -> bool:
    """Return True if two processes generate the same items: some tasks require PYTHONHASHSEED for that."""
    return task not in HASH_DEPENDENT or os.environ.get("PYTHONHASHSEED", "").isdecimal()


def settings(task: str, level: int | None, overrides: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the config fields of a task at a level (None: its defaults), with `overrides` fields overridden.

    Raises:
        RecipeError: Unknown task, level or field; values that the task rejects; PYTHONHASHSEED is missing.
    """
    _require(task, where)
    if not is_reproducible(task):
        raise RecipeError(
            f"'{task}' requires PYTHONHASHSEED: its items depend on Python's hashes, which differ between processes",
            where=where,
            hint="PYTHONHASHSEED=0 rlm …",
        )
    config_type = _registry()[task][1]
    allowed = [name for name, value in vars(config_type()).items() if _is_setting(name, value)]
    for name in overrides:
        if name not in allowed:
            raise RecipeError(
                f"unknown setting '{name}' of '{task}'",
                where=f"{where}.settings",
                allowed=", ".join(allowed),
                hint=nearest(name, allowed),
            )
    config = config_type(**{**_level_settings(task, level, where), **overrides})
    try:
        getattr(config, "validate", bool)()  # one config class has no `validate`
    except (AssertionError, ValueError, TypeError) as error:
        raise RecipeError(f"'{task}' rejects these settings: {error}", where=where) from None
    return {name: getattr(config, name) for name in allowed}


def _is_setting(name: str, value: Any) -> bool:
    return name not in ("seed", "size") and (value is None or isinstance(value, SETTING_TYPES))


def _level_settings(task: str, level: int | None, where: str) -> dict[str, Any]:
    """Return every attribute of the task's curriculum at this level, or at its last one."""
    from reasoning_gym.factory import CURRICULA

    if level is None:
        return {}
    if not levels(task):
        raise RecipeError(f"'{task}' has no levels", where=where, hint="set its `settings`")
    curriculum = CURRICULA[task]()
    curriculum.set_global_level(level)
    config = curriculum.generate_configuration()
    return {name: value for name, value in vars(config).items() if _is_setting(name, value)}


def items(task: str, settings: Mapping[str, Any], seed: str) -> Iterator[Item]:
    """Yield items of a task without end; each `seed` (any text) gives another stream.

    Raises:
        RecipeError: The task generates no items with these settings.
    """
    for chunk in count():
        with _own_folder(task):
            dataset = _dataset(task, settings, f"{seed} {chunk}")
        failed = 0
        for index in range(CHUNK_SIZE):
            try:
                with _own_folder(task):
                    item = dataset[index]
            except Exception as error:  # a generator may raise anything; another seed may work
                failed += 1
                if failed == MAX_FAILURES:
                    raise RecipeError(f"'{task}' generates no items: {error!r}", where="environment.tasks") from None
                continue
            failed = 0
            yield _solved(item) if task == "intermediate_integration" else item


def _solved(item: Item) -> Item:
    """Return an item with its integral evaluated: reasoning-gym leaves those of waves as they are (version 0.1.25)."""
    if "Integral(" not in str(item["answer"]):
        return item
    import sympy

    integral = sympy.integrate(sympy.sympify(item["metadata"]["integrand"]), sympy.Symbol(item["metadata"]["variable"]))
    return {**item, "answer": f"{integral} + C"}


@contextmanager
def _own_folder(task: str) -> Iterator[None]:
    """Work in a temporary folder while a task of `WRITING` generates an item."""
    if task not in WRITING:
        yield
        return
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        yield


def _dataset(task: str, settings: Mapping[str, Any], seed: str) -> Any:
    dataset_type, config_type = _registry()[task]
    numeric_seed = int.from_bytes(hashlib.blake2b(f"{task} {seed}".encode(), digest_size=4).digest(), "big") % 2**31
    return dataset_type(config_type(**settings, seed=numeric_seed, size=CHUNK_SIZE))


def _registry() -> dict[str, Any]:
    try:
        import reasoning_gym  # noqa: F401  (registers the tasks)
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise RecipeError(
            f"reasoning-gym cannot be imported: {error}", where="environment", hint="pip install reasoning-gym"
        ) from None
    registry: dict[str, Any] = DATASETS
    return registry
