"""Contract of games for two players who move in turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

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
