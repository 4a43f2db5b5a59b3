"""Import of a third-party function by its address: ``package.module:function``, or ``folder/file.py:function``."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from rlm_plugins.errors import RecipeError, nearest

ALLOWED = "`package.module:name`, or `folder/file.py:name` from the working directory"


def borrow(address: str, *, where: str) -> Any:
    """Return the object at an address.

    Args:
        address: ``trl.rewards:think_format_reward``, ``./scores.py:compute_score``.
        where: Recipe path of the knob, for errors.

    Raises:
        RecipeError: Unknown module, file or name, or the import fails.
    """
    place, _, name = address.rpartition(":")
    if not place or not name:
        raise RecipeError(f"expected an address, got '{address}'", where=where, allowed=ALLOWED)
    try:
        module = _file(Path(place).expanduser()) if place.endswith(".py") else importlib.import_module(place)
    except (Exception, SystemExit) as error:
        problem = f"'{place}' cannot be loaded: {type(error).__name__}: {error}"
        raise RecipeError(problem, where=where, allowed=ALLOWED) from error
    found: Any = module
    for step in name.split("."):
        if not hasattr(found, step):
            hint = nearest(step, [each for each in dir(found) if not each.startswith("_")])
            raise RecipeError(f"unknown name '{name}' in '{place}'", where=where, hint=hint)
        found = getattr(found, step)
    return found


def borrow_function(address: str, *, where: str) -> Callable[..., Any]:
    """Return the function at an address.

    Raises:
        RecipeError: As :func:`borrow`, or the object cannot be called.
    """
    found = borrow(address, where=where)
    if not callable(found):
        raise RecipeError(f"expected a function at '{address}', got {type(found).__name__}", where=where)
    return found  # type: ignore[no-any-return]


def _file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"rlm_borrowed_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def called(function: Callable[..., Any], known: Mapping[str, Any]) -> Any:
    """Call `function` with those of the known values that it takes by name."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return function(**known)
    return function(**{name: value for name, value in known.items() if name in parameters})


def settled(said: Sequence[Any]) -> list[Any]:
    """Return results, with those of asynchronous functions awaited together."""
    if not any(inspect.isawaitable(each) for each in said):
        return list(said)

    async def one(each: Any) -> Any:
        return await each if isinstance(each, Awaitable) else each

    async def together() -> list[Any]:
        return await asyncio.gather(*map(one, said))

    return asyncio.run(together())
