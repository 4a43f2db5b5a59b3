"""Multi-turn environments. Importing this loads neither torch nor textarena."""

from rlm_games.calculator import calculator
from rlm_games.guess import guess
from rlm_games.interpreter import interpreter
from rlm_games.nim import nim
from rlm_games.textarena_adapter import textarena
from rlm_games.tictactoe import tictactoe
from rlm_games.walk import walk
from rlm_plugins import hookimpl

__all__ = ["calculator", "guess", "interpreter", "nim", "textarena", "tictactoe", "walk"]


@hookimpl
def rlm_environments() -> dict[str, object]:
    """Return the environments of this package by name."""
    games = {"guess": guess, "nim": nim, "tictactoe": tictactoe, "walk": walk, "textarena": textarena}
    return {**games, "calculator": calculator, "interpreter": interpreter}
