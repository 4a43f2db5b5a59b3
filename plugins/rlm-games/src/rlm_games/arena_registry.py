"""Access to TextArena: the names of its games, and a random generator for each game."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from rlm_plugins.errors import RecipeError, nearest


class GameRng:
    """State of Python's global generator that belongs to one game.

    TextArena uses the global generator, which all games would share. So each game has its own state, which is set
    while the game runs.

    >>> first, second = GameRng(0), GameRng(0)
    >>> with first.active():
    ...     drawn = random.random()
    >>> with second.active():
    ...     random.random() == drawn
    True
    """

    def __init__(self, seed: int) -> None:
        self._state: Any = random.Random(seed).getstate()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Run the block with this state of the global generator, then restore the previous one."""
        global_state = random.getstate()
        random.setstate(self._state)
        try:
            yield
        finally:
            self._state = random.getstate()
            random.setstate(global_state)


def check_game(name: str, *, package: str, where: tuple[str, str]) -> None:
    """Check that TextArena is installed and has a game.

    Args:
        name: Of the game, without the suffix ``-raw``.
        package: Package whose extra `textarena` installs it, for the hint.
        where: Address of the environment in the recipe, and of the name.

    Raises:
        RecipeError: It is not installed, or the game is unknown.
    """
    if find_spec("textarena") is None:
        problem, hint = "games of TextArena require the package textarena", f"pip install '{package}[textarena]'"
        raise RecipeError(problem, where=where[0], hint=hint)
    from textarena.envs.registration import ENV_REGISTRY

    names = [env_id.removesuffix("-raw") for env_id in ENV_REGISTRY if env_id.endswith("-raw")]
    if name not in names:
        raise RecipeError(f"unknown TextArena game '{name}'", where=where[1], hint=nearest(name, names))
