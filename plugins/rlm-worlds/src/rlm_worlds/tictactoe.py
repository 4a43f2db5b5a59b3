"""Tic-tac-toe against a fixed, beatable opponent."""

from __future__ import annotations

from functools import cache
from itertools import permutations

from rlm_plugins.specs import EnvironmentSpec
from rlm_worlds.game import Count, Game, Share, Show, environment_spec

LINES = ("012", "345", "678", "036", "147", "258", "048", "246")
_LINES = [tuple(map(int, line)) for line in LINES]
MODEL, OPPONENT, FREE = "x", "o", "."


class TicTacToe(Game):
    """Tic-tac-toe: reward 1 for a win, ½ for a draw, 0 for a loss. The model is x.

    The opponent completes its own line if it can, else blocks a line, else takes the first free field. Two open lines
    at once beat it.
    """

    def reset(self, board: str) -> None:
        """Start from a position."""
        self.board = board

    def legal(self) -> list[str]:
        """Return the free fields."""
        return [str(n) for n in _free(self.board)]

    def best(self) -> list[str]:
        """Return the moves with the highest value against this opponent."""
        values = {move: _value(_put(self.board, int(move), MODEL)) for move in self.legal()}
        return [move for move in values if values[move] == max(values.values())]

    def move(self, move: str) -> tuple[str, float, bool]:
        """Place x, let the opponent answer, and return the board."""
        self.board = _put(self.board, int(move), MODEL)
        if _outcome(self.board) is None:
            self.board = _put(self.board, _opponent_move(self.board), OPPONENT)
        outcome = _outcome(self.board)
        return self.board, outcome or 0.0, outcome is not None


def _free(board: str) -> list[int]:
    return [n for n, field in enumerate(board) if field == FREE]


def _put(board: str, field: int, mark: str) -> str:
    return board[:field] + mark + board[field + 1 :]


def _outcome(board: str) -> float | None:
    """Return the reward of x if the game is over, else None."""
    for mark, reward in ((MODEL, 1.0), (OPPONENT, 0.0)):
        if any(all(board[n] == mark for n in line) for line in _LINES):
            return reward
    return None if FREE in board else 0.5


def _opponent_move(board: str) -> int:
    for mark in (OPPONENT, MODEL):
        for field in _free(board):
            if _outcome(_put(board, field, mark)) == (0.0 if mark == OPPONENT else 1.0):
                return field
    return _free(board)[0]


@cache
def _value(board: str) -> float:
    """Return the highest value x can still get when the opponent is to move."""
    outcome = _outcome(board)
    if outcome is None:
        board = _put(board, _opponent_move(board), OPPONENT)
        outcome = _outcome(board)
    return _best_value(board) if outcome is None else outcome


def _best_value(board: str) -> float:
    """Return the highest value x can still get when x is to move."""
    return max(_value(_put(board, n, MODEL)) for n in _free(board))


def tictactoe(*, test_rows: Count = 100, show: Show = "games", skill: Share = 0.25, seed: int = 0) -> EnvironmentSpec:
    """Build tic-tac-toe against a fixed opponent that completes and blocks lines and plans no further.

    The observation is the board (``x...o....``, fields 0 to 8), an action is the field for an ``x``. The model begins
    from a position after up to two moves of each side: the example, one of those that x need not lose. Boards are held
    out. The value of best play is known (`best` searches the whole game tree): at least a draw.

    >>> game = tictactoe().environment()
    >>> game.reset("xx.oo....")
    >>> game.best(), game.step("2")
    (['2'], ('xxxoo....', 1.0, True))
    """
    boards = {"." * 9}
    for moves in (1, 2):
        for fields in permutations(range(9), 2 * moves):
            board = "." * 9
            for turn, field in enumerate(fields):
                board = _put(board, field, MODEL if turn % 2 == 0 else OPPONENT)
            boards.add(board)
    starts = [(board, {"board": board}) for board in sorted(boards) if _best_value(board)]
    return environment_spec(TicTacToe, starts, show=show, skill=skill, test_rows=test_rows, seed=seed)
