"""Nim with one heap, against an optimal or a blundering opponent."""

from __future__ import annotations

import random
from functools import partial

from rlm_plugins.equation.knobs import Count, Share
from rlm_plugins.specs import EnvironmentSpec
from rlm_worlds.game import Game, Show, environment_spec


class Nim(Game):
    """Take 1 to `take` from a heap; taking the last one wins. Reward 1 for a win, 0 for a loss.

    Leaving a multiple of `take` + 1 wins. The opponent does so whenever it can, and takes one when it cannot. In a
    blunder it takes any legal number. The example's `luck` determines when it blunders.
    """

    turns = 200

    def __init__(self, take: int = 3, blunder: float = 0.0) -> None:
        self.take, self.blunder = take, blunder

    def reset(self, heap: int, luck: int = 0) -> None:
        """Start with a heap; `luck` seeds the opponent's blunders."""
        self.heap, self._rng = heap, random.Random(f"{heap} {luck}")

    def legal(self) -> list[str]:
        return [str(n) for n in range(1, min(self.take, self.heap) + 1)]

    def best(self) -> list[str]:
        """Return the one winning number, or every legal one in a lost position."""
        remainder = self.heap % (self.take + 1)
        return [str(remainder)] if remainder else self.legal()

    def move(self, move: str) -> tuple[str, float, bool]:
        self.heap -= int(move)
        if self.heap == 0:
            return "", 1.0, True
        blunders = self._rng.random() < self.blunder
        self.heap -= int(self._rng.choice(self.legal())) if blunders else self.heap % (self.take + 1) or 1
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
    """Build Nim with one heap of up to `highest`, of which 1 to `take` are taken in turn; taking the last one wins.

    The observation is the heap (``17``), an action is the number taken (``1``). The model begins, and every heap can be
    won. After the first mistake of the model the opponent wins, unless it blunders: with probability `blunder` it takes
    any number instead. Each heap starts `games` games, which differ in where it blunders. Heaps are held out as starts
    only; they occur in the course of other games.

    >>> game = nim(highest=9).environment()
    >>> game.reset(7)
    >>> game.best(), game.step("3"), game.step("3")
    (['3'], ('3', 0.0, False), ('', 1.0, True))
    """
    heaps = [heap for heap in range(1, highest + 1) if heap % (take + 1)]
    starts = [(str(heap), {"heap": heap, "luck": luck}) for heap in heaps for luck in range(games)]
    return environment_spec(partial(Nim, take, blunder), starts, show=show, skill=skill, test_rows=test_rows, seed=seed)
