"""x: single-player games of TextArena as environments; each has its own random generator."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.specs import Environment, EnvironmentSpec
from rlm_worlds.game import Count, demonstrations


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


GAME = -1
"""TextArena's sender id for messages of the game itself."""


class Arena(Environment):
    """One game of TextArena, seeded by its example. The final reward goes to the last turn."""

    turns = 200

    def __init__(self, game: str, knobs: dict[str, Any]) -> None:
        import textarena

        self._game = textarena.make(f"{game}-raw", **knobs)  # unwrapped: new messages only, not the full history
        self._rng = GameRng(0)

    def reset(self, seed: int) -> str:
        """Start the game with a seed and return its rules."""
        self._rng = GameRng(seed)
        with self._rng.active():
            self._game.reset(num_players=1, seed=seed)
            return self._observation()

    def step(self, action: str) -> tuple[str, float, bool]:
        """Make a move; return observation, reward and whether the game is over."""
        with self._rng.active():
            done, _ = self._game.step(action)
            if not done:
                return self._observation(), 0.0, False
            rewards, _ = self._game.close()
            return "", float(rewards[0]), True

    def _observation(self) -> str:
        """Return the game's messages since the last call, without the player's own."""
        _, messages = self._game.get_observation()
        return "\n".join(str(message) for sender, message, *_ in messages if sender == GAME)


def textarena(
    *,
    game: str,
    knobs: dict[str, Any] | None = None,
    show: Sequence[str] = (),
    train_rows: Count = 1024,
    test_rows: Count = 64,
    seed: int = 0,
) -> EnvironmentSpec:
    """Build an environment from a single-player game of TextArena (`GuessTheNumber-v0`, `FrozenLake-v0-random`, …).

    An example is a seed. The first observation, after the prompt (``Game 17.``), has the rules in English. Moves are
    mostly in square brackets. `knobs` are those of the game (`max_turns: 10`). Games for two players are an error,
    because there is no opponent. With `show`, a list of moves (``["[accept]", "[continue]"]``), an example is one move,
    drawn uniformly from the list, for a supervised stage. Requires textarena.
    """
    _check(game, knobs or {})
    examples: list[dict[str, Any]] = [
        {"prompt": [{"role": "user", "content": f"Game {example_seed}.\n"}], "seed": example_seed}
        for example_seed in range(seed, seed + train_rows + test_rows)
    ]
    make, train = partial(Arena, game, knobs or {}), examples[test_rows:]
    if show:
        train = [
            move
            for example in train
            for move in demonstrations(make, example, lambda _, rng: rng.choice(show), example["seed"])
        ]
    return EnvironmentSpec(train=train, test=examples[:test_rows], environment=make)


def _check(game: str, knobs: dict[str, Any]) -> None:
    """Play the beginning of one game.

    Raises:
        RecipeError: The game is unknown, rejects its knobs, or is not for one player.
    """
    check_game(game, package="rlm-worlds", where=("environment", "environment.game"))
    try:
        arena = Arena(game, knobs)
    except TypeError as error:
        raise RecipeError(f"'{game}' rejects its knobs: {error}", where="environment.knobs") from error
    try:
        arena.reset(0)
    except Exception as error:
        problem = f"'{game}' cannot be started with one player: {type(error).__name__}: {error}"
        raise RecipeError(problem, where="environment.game") from error
