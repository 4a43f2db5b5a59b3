"""Games of two players who move in turn: Nim, tic-tac-toe and Kuhn poker, and their starts in examples."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from itertools import permutations
from typing import Any, ClassVar

from rlm_worlds.one_player_games import Heap

from rlm_plugins.errors import RecipeError, nearest

FORFEIT = -1.0
"""Payoff of an illegal move; the other player gets 0."""


class TwoPlayerGame:
    """A game in progress: a function of its start and of the actions.

    Attributes:
        rules: The rules in English, for pre-trained models.
        players: Number of players.
        mover: The player who moves next, 0 or 1.
        payoffs: Payoff of each player; None while the game goes on.
    """

    rules: ClassVar[str] = ""
    players: ClassVar[int] = 2

    def __init__(self) -> None:
        self.mover = 0
        self.payoffs: tuple[float, ...] | None = None

    def start(self, *_: Any, **position: Any) -> None:  # so that type checkers accept any override
        """Start from a position."""
        raise NotImplementedError

    def public(self) -> str:
        """Return the public part of the start."""
        return ""

    def view(self) -> str:
        """Return the observation of the player who moves next."""
        raise NotImplementedError

    def legal(self) -> list[str]:
        """Return the moves that are allowed now."""
        raise NotImplementedError

    def move(self, move: str) -> None:
        """Make a legal move; it changes `mover`, or sets `payoffs`."""
        raise NotImplementedError

    def best(self) -> list[str]:
        """Return the optimal moves; empty: unknown."""
        return []

    def act(self, action: str) -> None:
        """Play the last word of a turn, so that reasoning may precede it; an illegal move forfeits the game."""
        words = action.split()
        if words and words[-1] in self.legal():
            self.move(words[-1])
        else:
            self.forfeit()

    def forfeit(self) -> None:
        """End the game: the player who had to move gets −1."""
        self.payoffs = tuple(FORFEIT if player == self.mover else 0.0 for player in range(self.players))

    def win(self, player: int) -> None:
        """End a game of two with payoff 1 for `player` and −1 for the other."""
        self.payoffs = (1.0, -1.0) if player == 0 else (-1.0, 1.0)


Start = Mapping[str, Any]
"""Arguments of `TwoPlayerGame.start`."""


LINES = [tuple(map(int, line)) for line in ("012", "345", "678", "036", "147", "258", "048", "246")]
MARKS, FREE = "xo", "."


class Nim(Heap, TwoPlayerGame):
    """Take 1 to `take` from a heap; the player who takes the last one wins. The view is the heap."""

    rules = "Nim: the number is the heap. Answer how many to take, from 1 to 3. Who takes the last one wins. "

    def start(self, heap: int, take: int = 3) -> None:
        self.heap, self.take = heap, take

    def view(self) -> str:
        return str(self.heap)

    public = view

    def move(self, move: str) -> None:
        self.heap -= int(move)
        if self.heap == 0:
            self.win(self.mover)
        self.mover = 1 - self.mover


class TicTacToe(TwoPlayerGame):
    """Tic-tac-toe; the view is the board with ``x`` for the player who moves next. A draw pays 0."""

    rules = "Tic-tac-toe: fields 0 to 8, you are x, a dot is free. Answer with the number of a free field. "

    def start(self, board: str) -> None:
        self.board = board

    def view(self) -> str:
        return self.board

    public = view

    def legal(self) -> list[str]:
        return [str(n) for n, mark in enumerate(self.board) if mark == FREE]

    def best(self) -> list[str]:
        """Return the moves of the highest value against optimal play."""
        values = {move: -_value(_after(self.board, int(move))) for move in self.legal()}
        return [move for move in values if values[move] == max(values.values())]

    def move(self, move: str) -> None:
        self.board = _after(self.board, int(move))
        if _has_line(self.board):
            self.win(self.mover)
        elif FREE not in self.board:
            self.payoffs = (0.0, 0.0)
        self.mover = 1 - self.mover


def _after(board: str, field: int) -> str:
    """Return the board after a move, from the perspective of the other player."""
    return (board[:field] + "x" + board[field + 1 :]).translate(str.maketrans("xo", "ox"))


def _has_line(board: str) -> bool:
    """Return True if the player who moved last has three in a line."""
    return any(all(board[n] == "o" for n in line) for line in LINES)


@cache
def _value(board: str) -> float:
    """Return the value of a board for the player who moves next."""
    if _has_line(board):
        return -1.0
    free = [n for n, mark in enumerate(board) if mark == FREE]
    return max((-_value(_after(board, n)) for n in free), default=0.0)


class KuhnPoker(TwoPlayerGame):
    """Kuhn poker: one card of J, Q, K each; check or bet one (``c``, ``b``), then fold or call (``f``, ``c``).

    The view is the own card and the moves so far (``K:cb``). The payoff is 1 after a call, else ½: chips by two.
    Optimal play is mixed, so `best` is empty.
    """

    rules = "Kuhn poker, K beats Q beats J: your card, and the moves. Answer c (check, call), b (bet) or f (fold). "

    def start(self, cards: str) -> None:
        """Deal a card to each player, such as ``KJ``."""
        self.cards, self.moves = cards, ""

    def view(self) -> str:
        return f"{self.cards[self.mover]}:{self.moves}"

    def legal(self) -> list[str]:
        return ["f", "c"] if self.moves.endswith("b") else ["c", "b"]

    def move(self, move: str) -> None:
        self.moves += move
        mover, self.mover = self.mover, 1 - self.mover
        if move == "f":
            self._pay(1 - mover, 0.5)
        elif self.moves in ("cc", "bc", "cbc"):
            winner = 0 if "JQK".index(self.cards[0]) > "JQK".index(self.cards[1]) else 1
            self._pay(winner, 0.5 if self.moves == "cc" else 1.0)

    def _pay(self, winner: int, chips: float) -> None:
        self.payoffs = (chips, -chips) if winner == 0 else (-chips, chips)


def nim_starts(highest: int = 24, take: int = 3) -> list[Start]:
    """Return every heap."""
    return [{"heap": heap, "take": take} for heap in range(1, highest + 1)]


def tictactoe_starts(moves: int = 2) -> list[Start]:
    """Return every board after 0, 2, … `moves` moves; with up to 4 moves none has a line."""
    starts = {FREE * 9}
    for number in range(2, moves + 1, 2):
        for fields in permutations(range(9), number):
            board = FREE * 9
            for field in fields:
                board = _after(board, field)
            starts.add(board)
    return [{"board": board} for board in sorted(starts)]


def kuhn_starts() -> list[Start]:
    """Return every deal."""
    return [{"cards": "".join(deal)} for deal in permutations("JQK", 2)]


GAMES: dict[str, tuple[Callable[[], TwoPlayerGame], Callable[..., list[Start]]]] = {
    "nim": (Nim, nim_starts),
    "tictactoe": (TicTacToe, tictactoe_starts),
    "kuhn": (KuhnPoker, kuhn_starts),
}
"""Name → the game, and the function that returns its starts."""


def starts_of(game: str, knobs: dict[str, Any]) -> list[str]:
    """Return every start of a game as text."""
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
