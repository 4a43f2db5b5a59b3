"""Games of TextArena (arXiv 2504.11442) by name: those that one player plays."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

from rlm_games.game import Count, shown
from rlm_plugins.environment import Environment
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.specs import EnvironmentSpec

GAME = -1
"""Who TextArena says is speaking when it is the game."""


class Arena(Environment):
    """One game of TextArena, seeded by its row. What it pays at the end pays the last turn.

    TextArena draws from Python's own generator, which every player would share; so each game is given one of its own.
    """

    turns = 200

    def __init__(self, game: str, knobs: dict[str, Any]) -> None:
        import textarena

        self._game = textarena.make(f"{game}-raw", **knobs)  # without wrappers: what is new, and not all that was said
        self._chance: Any = None

    def reset(self, seed: int) -> str:
        self._chance = random.Random(seed).getstate()
        with self._own_chance():
            self._game.reset(num_players=1, seed=seed)
            return self._told()

    def step(self, action: str) -> tuple[str, float, bool]:
        with self._own_chance():
            done, _ = self._game.step(action)
            if not done:
                return self._told(), 0.0, False
            rewards, _ = self._game.close()
            return "", float(rewards[0]), True

    def _told(self) -> str:
        """What the game has said since it was asked last; not what the player said."""
        _, said = self._game.get_observation()
        return "\n".join(str(message) for who, message, *_ in said if who == GAME)

    @contextmanager
    def _own_chance(self) -> Iterator[None]:
        others = random.getstate()
        random.setstate(self._chance)
        try:
            yield
        finally:
            self._chance = random.getstate()
            random.setstate(others)


def textarena(
    *,
    game: str,
    knobs: dict[str, Any] | None = None,
    show: Sequence[str] = (),
    train_rows: Count = 1024,
    test_rows: Count = 64,
    seed: int = 0,
) -> EnvironmentSpec:
    """A game of TextArena by its name (`GuessTheNumber-v0`, `Sudoku-v0`, `FrozenLake-v0-random`, …), for one player.

    A row is a seed; the game says its rules itself, in English, after the prompt (``Game 17.``). Moves are mostly
    written in square brackets. `knobs` go to the game (`max_turns: 10`). Games for two need somebody to play with: they
    are refused. With `show`, some moves (``["[accept]", "[continue]"]``), a row is one move of somebody who makes any
    of them, for a supervised stage. Needs textarena.
    """
    if find_spec("textarena") is None:
        problem, hint = "the games come from textarena, which is not installed", "pip install 'rlm-games[textarena]'"
        raise RecipeError(problem, where="environment", hint=hint)
    _check(game, knobs or {})
    rows: list[dict[str, Any]] = [
        {"prompt": [{"role": "user", "content": f"Game {number}.\n"}], "seed": number}
        for number in range(seed, seed + train_rows + test_rows)
    ]
    make, train = partial(Arena, game, knobs or {}), rows[test_rows:]
    if show:
        train = [move for row in train for move in shown(make, row, lambda _, chance: chance.choice(show), row["seed"])]
    return EnvironmentSpec(train=train, test=rows[:test_rows], environment=make)


def _check(game: str, knobs: dict[str, Any]) -> None:
    """Plays the beginning of one.

    Raises:
        RecipeError: There is no such game, it takes no such knobs, or it is not for one player.
    """
    from textarena.envs.registration import ENV_REGISTRY

    names = [name.removesuffix("-raw") for name in ENV_REGISTRY if name.endswith("-raw")]
    if game not in names:
        raise RecipeError(f"TextArena has no game '{game}'", where="environment.game", hint=nearest(game, names))
    try:
        made = Arena(game, knobs)
    except TypeError as error:
        raise RecipeError(f"'{game}' takes other knobs: {error}", where="environment.knobs") from error
    try:
        made.reset(0)
    except Exception as error:
        problem = f"'{game}' cannot be begun by one player: {type(error).__name__}: {error}"
        raise RecipeError(problem, where="environment.game") from error
