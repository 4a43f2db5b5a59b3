"""Nim with one heap, against an opponent who makes no mistake, or some."""

from __future__ import annotations

import random
from functools import partial

from rlm_games.game import Count, Game, Share, Show, environment_spec
from rlm_plugins.specs import EnvironmentSpec


class Nim(Game):
    """Take 1 to `take` from a heap; who takes the last one wins. 1 for a win, 0 for a loss.

    Who leaves a multiple of `take` + 1 has won: so does the opponent whenever it can, and takes one when it cannot;
    but for its blunders, when it takes any number. When it blunders is a matter of the row's `luck`.
    """

    turns = 200

    def __init__(self, take: int = 3, blunder: float = 0.0) -> None:
        self.take, self.blunder = take, blunder

    def reset(self, heap: int, luck: int = 0) -> None:
        self.heap, self._chance = heap, random.Random(f"{heap} {luck}")

    def legal(self) -> list[str]:
        return [str(n) for n in range(1, min(self.take, self.heap) + 1)]

    def best(self) -> list[str]:
        return [str(rest)] if (rest := self.heap % (self.take + 1)) else self.legal()

    def move(self, move: str) -> tuple[str, float, bool]:
        self.heap -= int(move)
        if self.heap == 0:
            return "", 1.0, True
        blunders = self._chance.random() < self.blunder
        self.heap -= int(self._chance.choice(self.legal())) if blunders else self.heap % (self.take + 1) or 1
        return str(self.heap), 0.0, self.heap == 0


def nim(
    *,
    highest: Count = 24,
    take: Count = 3,
    blunder: Share = 0.0,
    games: Count = 1,
    test_rows: Count = 100,
    show: Show = "games",
    skill: Share = 0.25,
    seed: int = 0,
) -> EnvironmentSpec:
    """Nim with one heap of up to `highest`, of which 1 to `take` are taken in turn: who takes the last one wins.

    The model reads what is left (``17``) and writes how many it takes (``1``). It begins, and every heap can be won;
    the opponent punishes the first mistake, unless it blunders itself: `blunder` is how often it takes any number
    instead, in other turns of each of the `games` that begin with a heap. Heaps are held out as starts; they are met in
    the course of other games.

    >>> world = nim(highest=9)
    >>> game = world.environment()
    >>> game.reset(7)
    >>> game.best(), game.step("3"), game.step("3")
    (['3'], ('3', 0.0, False), ('', 1.0, True))
    """
    heaps = [heap for heap in range(1, highest + 1) if heap % (take + 1)]
    starts = [(str(heap), {"heap": heap, "luck": luck}) for heap in heaps for luck in range(games)]
    return environment_spec(partial(Nim, take, blunder), starts, show=show, skill=skill, test_rows=test_rows, seed=seed)
