"""Single-player games of TextArena (arXiv 2504.11442), by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rlm_games.arena_registry import GameRng, check_game
from rlm_games.game import Count, demonstrations
from rlm_plugins.environment import Environment
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec

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
    check_game(game, package="rlm-games", where=("environment", "environment.game"))
    try:
        arena = Arena(game, knobs)
    except TypeError as error:
        raise RecipeError(f"'{game}' rejects its knobs: {error}", where="environment.knobs") from error
    try:
        arena.reset(0)
    except Exception as error:
        problem = f"'{game}' cannot be started with one player: {type(error).__name__}: {error}"
        raise RecipeError(problem, where="environment.game") from error
