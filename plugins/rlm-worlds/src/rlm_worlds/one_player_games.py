"""Games of one player: guessing a number, Nim against an opponent, and a walk on a grid."""

from __future__ import annotations

import random
from functools import partial
from itertools import product
from typing import Annotated

from pydantic import Field

from rlm_plugins.equation.knobs import Count, Share
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec
from rlm_worlds.game import Game, Show, environment_spec

STEPS = {"r": (1, 0), "l": (-1, 0), "u": (0, 1), "d": (0, -1)}


class Walk(Game):
    """Walk from one field of a grid to another. A step is rewarded if it gets closer to the goal than ever before.

    The return is the fraction of the distance covered; 1 on a shortest path, of which there are many.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def reset(self, x: int, y: int, to_x: int, to_y: int) -> None:
        """Start at (x, y) with the goal (to_x, to_y)."""
        self.x, self.y, self.goal = x, y, (to_x, to_y)
        self.initial_distance = self.left = self.nearest = self._distance(x, y)
        self.turns = self.initial_distance

    def _distance(self, x: int, y: int) -> int:
        return abs(self.goal[0] - x) + abs(self.goal[1] - y)

    def _position_after(self, move: str) -> tuple[int, int]:
        return self.x + STEPS[move][0], self.y + STEPS[move][1]

    def legal(self) -> list[str]:
        return [move for move in STEPS if all(0 <= coordinate < self.size for coordinate in self._position_after(move))]

    def best(self) -> list[str]:
        """Return the directions that reduce the distance to the goal."""
        distance = self._distance(self.x, self.y)
        return [move for move in self.legal() if self._distance(*self._position_after(move)) < distance]

    def move(self, move: str) -> tuple[str, float, bool]:
        self.x, self.y = self._position_after(move)
        nearest, self.left = min(self.nearest, self._distance(self.x, self.y)), self.left - 1
        reward, self.nearest = (self.nearest - nearest) / self.initial_distance, nearest
        return f"{self.x},{self.y}", reward, self.left == 0 or nearest == 0


def walk(
    *, size: Count = 5, test_rows: Count = 100, show: Show = "games", skill: Share = 0.25, seed: int = 0
) -> EnvironmentSpec:
    """Build a walk from one field of a `size` × `size` grid to another, with a reward for every step.

    The prompt is start and goal (``0,3>2,3``), an action is ``r``, ``l``, ``u`` or ``d``, and the observation is the
    new position. A step closer to the goal than ever before pays 1/distance. So the return is the fraction covered, and
    per-turn credit (shaper `by_turn`) matters. Pairs of fields are held out.

    >>> game = walk().environment()
    >>> game.reset(0, 3, 2, 3)
    >>> game.step("r"), game.step("u")
    (('1,3', 0.5, False), ('1,4', 0.0, True))
    """
    fields = range(size)
    pairs = [p for p in product(fields, repeat=4) if p[:2] != p[2:]]
    starts = [(f"{x},{y}>{u},{v}", {"x": x, "y": y, "to_x": u, "to_y": v}) for x, y, u, v in pairs]
    return environment_spec(partial(Walk, size), starts, show=show, skill=skill, test_rows=test_rows, seed=seed)


class Heap:
    """A heap of Nim, of which 1 to `take` may be taken."""

    heap: int
    take: int

    def legal(self) -> list[str]:
        """Return the numbers that may be taken."""
        return [str(n) for n in range(1, min(self.take, self.heap) + 1)]

    def best(self) -> list[str]:
        """Return the one winning number, or every legal one in a lost position."""
        remainder = self.heap % (self.take + 1)
        return [str(remainder)] if remainder else self.legal()


class Nim(Heap, Game):
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


Turns = Annotated[int, Field(ge=1, le=10)]


class Guess(Game):
    """Guess a number in a range; each miss is answered with larger or smaller. Reward 1 once it is found.

    Bisection finds any of 2ⁿ − 1 numbers in n guesses. An evasive number is always on the longer side of a guess,
    as far as the hints allow. Then only a strategy that is certain to succeed is rewarded.
    """

    def __init__(self, guesses: int, evasive: bool = False) -> None:
        self.guesses = self.turns = guesses
        self.evasive = evasive

    def reset(self, low: int, high: int, secret: int) -> None:
        """Start with a range and a secret number in it."""
        self.low, self.high, self.secret, self.left = low, high, secret, self.guesses

    def legal(self) -> list[str]:
        return [str(n) for n in range(self.low, self.high + 1)]

    def best(self) -> list[str]:
        """Return the guesses after which the remaining turns are certain to suffice, whatever the hint."""
        reach = 2 ** (self.left - 1) - 1
        safe = [n for n in range(self.low, self.high + 1) if n - self.low <= reach and self.high - n <= reach]
        return [str(n) for n in safe] or self.legal()

    def move(self, move: str) -> tuple[str, float, bool]:
        number, self.left = int(move), self.left - 1
        if self.evasive:
            self.secret = self._evaded(number)
        if number == self.secret:
            return "", 1.0, True
        if number < self.secret:
            self.low = number + 1
        else:
            self.high = number - 1
        return ("+" if number < self.secret else "-"), 0.0, self.left == 0

    def _evaded(self, number: int) -> int:
        """Return the evasive number's new value after a guess."""
        below, above = number - self.low, self.high - number
        if below == above and (self.secret != number or not above):
            return self.secret
        return self.high if above >= below else self.low


def guess(
    *,
    highest: Count = 40,
    guesses: Turns = 3,
    evasive: bool = False,
    test_rows: Count = 100,
    show: Show = "games",
    skill: Share = 0.25,
    seed: int = 0,
) -> EnvironmentSpec:
    """Build the game of finding a number in a range; n guesses suffice for any of 2ⁿ − 1 numbers.

    The prompt is the range (``12-18``), an action is a guess (``15``), and the observation is ``+`` if the number is
    larger, ``-`` if it is smaller. Ranges end at `highest` at most. Whole ranges are held out, with all their numbers.
    Guesses that the hints have ruled out are illegal. With `evasive` the number moves to the longer side of every
    guess; on a tie the example's own number decides.

    >>> game = guess().environment()
    >>> game.reset(12, 18, secret=17)
    >>> game.best(), game.step("15"), game.best(), game.step("17")
    (['15'], ('+', 0.0, False), ['17'], ('', 1.0, True))
    """
    size = 2**guesses - 1
    if size > highest + 1:
        problem = f"{guesses} guesses suffice for {size} numbers, but 0 to {highest} has only {highest + 1}"
        hint = f"fewer guesses, or a `highest` of about {2 * size}"
        raise RecipeError(problem, where="environment.guesses", hint=hint)
    ranges = [(low, low + size - 1) for low in range(highest - size + 2)]
    starts = [(f"{a}-{b}", {"low": a, "high": b, "secret": n}) for a, b in ranges for n in range(a, b + 1)]
    return environment_spec(
        partial(Guess, guesses, evasive), starts, show=show, skill=skill, test_rows=test_rows, seed=seed
    )
