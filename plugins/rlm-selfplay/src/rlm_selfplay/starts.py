"""Games by name, and the text in an example that describes the start of its game."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rlm_plugins.errors import RecipeError, nearest
from rlm_selfplay.board_games import KuhnPoker, Nim, TicTacToe, kuhn_starts, nim_starts, tictactoe_starts
from rlm_selfplay.two_player import Start, TwoPlayerGame

GAMES: dict[str, tuple[Callable[[], TwoPlayerGame], Callable[..., list[Start]]]] = {
    "nim": (Nim, nim_starts),
    "tictactoe": (TicTacToe, tictactoe_starts),
    "kuhn": (KuhnPoker, kuhn_starts),
}
"""Name → the game, and the function that returns its starts."""


def starts_of(game: str, knobs: dict[str, Any]) -> list[str]:
    """Return every start of a game as text.

    Args:
        game: Its name.
        knobs: Arguments of the function that returns its starts.
    """
    if game not in GAMES:
        problem, allowed = f"unknown game '{game}'", ", ".join(GAMES)
        raise RecipeError(problem, where="environment.game", allowed=allowed, hint=nearest(game, GAMES))
    try:
        starts = GAMES[game][1](**knobs)
    except TypeError as error:
        raise RecipeError(f"'{game}' rejects its knobs: {error}", where="environment.knobs") from error
    return [json.dumps({"game": game, **start}) for start in starts]


def begin(start: str) -> TwoPlayerGame:
    """Return the game that a text of `starts_of` describes.

    >>> begin('{"game": "nim", "heap": 7}').view()
    '7'
    """
    position = json.loads(start)
    game = GAMES[position.pop("game")][0]()
    game.start(**position)
    return game
