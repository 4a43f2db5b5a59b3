"""Guessing a number from hints."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import Field

from rlm_plugins.equation.knobs import Count, Share
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec
from rlm_worlds.game import Game, Show, environment_spec

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
