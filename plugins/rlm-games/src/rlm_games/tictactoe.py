"""Noughts and crosses against a player with a plan that can be seen through."""

from __future__ import annotations

from functools import cache
from itertools import permutations

from rlm_games.game import Count, Game, Share, Show, environment_spec
from rlm_plugins.specs import EnvironmentSpec

LINES = ("012", "345", "678", "036", "147", "258", "048", "246")
_LINES = [tuple(map(int, line)) for line in LINES]
ME, YOU, FREE = "x", "o", "."


class TicTacToe(Game):
    """Noughts and crosses: 1 for a win, ½ for a draw, 0 for a loss. The model is x.

    The opponent completes its own line if it can, else blocks a line of ours, else takes the first free field: two
    lines at once beat it.
    """

    def reset(self, board: str) -> None:
        self.board = board

    def legal(self) -> list[str]:
        return [str(n) for n in _free(self.board)]

    def best(self) -> list[str]:
        worth = {move: _value(_put(self.board, int(move), ME)) for move in self.legal()}
        return [move for move in worth if worth[move] == max(worth.values())]

    def move(self, move: str) -> tuple[str, float, bool]:
        self.board = _put(self.board, int(move), ME)
        if _ended(self.board) is None:
            self.board = _put(self.board, _answer(self.board), YOU)
        paid = _ended(self.board)
        return self.board, paid or 0.0, paid is not None


def _free(board: str) -> list[int]:
    return [n for n, field in enumerate(board) if field == FREE]


def _put(board: str, place: int, who: str) -> str:
    return board[:place] + who + board[place + 1 :]


def _ended(board: str) -> float | None:
    """What x is paid, if it is over."""
    for who, paid in ((ME, 1.0), (YOU, 0.0)):
        if any(all(board[n] == who for n in line) for line in _LINES):
            return paid
    return None if FREE in board else 0.5


def _answer(board: str) -> int:
    for who in (YOU, ME):
        for place in _free(board):
            if _ended(_put(board, place, who)) == (0.0 if who == YOU else 1.0):
                return place
    return _free(board)[0]


@cache
def _value(board: str) -> float:
    """What x can still get against this opponent, which is to answer."""
    if (paid := _ended(board)) is None:
        board = _put(board, _answer(board), YOU)
        paid = _ended(board)
    return _hope(board) if paid is None else paid


def _hope(board: str) -> float:
    """The same where x is to move."""
    return max(_value(_put(board, n, ME)) for n in _free(board))


def tictactoe(*, test_rows: Count = 100, show: Show = "games", skill: Share = 0.25, seed: int = 0) -> EnvironmentSpec:
    """Noughts and crosses against a fixed opponent that blocks and completes lines, and looks no further.

    The model reads the board (``x...o....``, fields 0 to 8) and writes the field for its ``x``; it begins, after each
    side has made up to two moves, which are the row: those after which x need not lose. Boards are held out. What best
    play gets is known (`best` looks at every game there is): a draw at least.

    >>> game = tictactoe().environment()
    >>> game.reset("xx.oo....")
    >>> game.best(), game.step("2")
    (['2'], ('xxxoo....', 1.0, True))
    """
    boards = {"." * 9}
    for moves in (1, 2):
        for places in permutations(range(9), 2 * moves):
            board = "." * 9
            for n, place in enumerate(places):
                board = _put(board, place, ME if n % 2 == 0 else YOU)
            boards.add(board)
    starts = [(board, {"board": board}) for board in sorted(boards) if _hope(board)]
    return environment_spec(TicTacToe, starts, show=show, skill=skill, test_rows=test_rows, seed=seed)
