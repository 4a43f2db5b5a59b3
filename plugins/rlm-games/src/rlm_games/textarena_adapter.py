"""Single-player games of TextArena (arXiv 2504.11442), by name."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

from rlm_games.game import Count, demonstrations
from rlm_plugins.environment import Environment
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.specs import EnvironmentSpec

GAME = -1
"""TextArena's sender id for messages of the game itself."""


class Arena(Environment):
    """One game of TextArena, seeded by its example. The final reward goes to the last turn.

    TextArena uses Python's global generator, which all games would share. So each game swaps in a state of its own.
    """

    turns = 200

    def __init__(self, game: str, knobs: dict[str, Any]) -> None:
        import textarena

        self._game = textarena.make(f"{game}-raw", **knobs)  # unwrapped: new messages only, not the full history
        self._rng_state: Any = None

    def reset(self, seed: int) -> str:
        """Start the game with a seed and return its rules."""
        self._rng_state = random.Random(seed).getstate()
        with self._private_rng():
            self._game.reset(num_players=1, seed=seed)
            return self._observation()

    def step(self, action: str) -> tuple[str, float, bool]:
        """Make a move; return observation, reward and whether the game is over."""
        with self._private_rng():
            done, _ = self._game.step(action)
            if not done:
                return self._observation(), 0.0, False
            rewards, _ = self._game.close()
            return "", float(rewards[0]), True

    def _observation(self) -> str:
        """Return the game's messages since the last call, without the player's own."""
        _, messages = self._game.get_observation()
        return "\n".join(str(message) for sender, message, *_ in messages if sender == GAME)

    @contextmanager
    def _private_rng(self) -> Iterator[None]:
        """Run the block with this game's state of Python's global generator, then restore the previous state."""
        global_state = random.getstate()
        random.setstate(self._rng_state)
        try:
            yield
        finally:
            self._rng_state = random.getstate()
            random.setstate(global_state)


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

    An example is a seed. The game states its rules itself, in English, after the prompt (``Game 17.``). Moves are
    mostly in square brackets. `knobs` go to the game (`max_turns: 10`). Games for two players are an error: there is no
    opponent. With `show`, a list of moves (``["[accept]", "[continue]"]``), an example is one move, drawn uniformly
    from the list, for a supervised stage. Requires textarena.
    """
    if find_spec("textarena") is None:
        problem, hint = "`textarena` requires the package textarena", "pip install 'rlm-games[textarena]'"
        raise RecipeError(problem, where="environment", hint=hint)
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
    from textarena.envs.registration import ENV_REGISTRY

    names = [name.removesuffix("-raw") for name in ENV_REGISTRY if name.endswith("-raw")]
    if game not in names:
        raise RecipeError(f"unknown TextArena game '{game}'", where="environment.game", hint=nearest(game, names))
    try:
        arena = Arena(game, knobs)
    except TypeError as error:
        raise RecipeError(f"'{game}' rejects its knobs: {error}", where="environment.knobs") from error
    try:
        arena.reset(0)
    except Exception as error:
        problem = f"'{game}' cannot be started with one player: {type(error).__name__}: {error}"
        raise RecipeError(problem, where="environment.game") from error
