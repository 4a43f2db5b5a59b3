"""Guess a number from hints."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import Field

from rlm_games.game import Count, Game, Share, Show, environment_spec
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec

Turns = Annotated[int, Field(ge=1, le=10)]


class Guess(Game):
    """Guess a number between two others; after each guess one is told whether it is larger. 1 once it is found.

    Who halves what is left finds any of 2ⁿ − 1 numbers in n guesses. A number that is evasive is always on the longer
    side of a guess, as far as the hints allow: so luck finds nothing, and only a plan that is sure is paid.
    """

    def __init__(self, guesses: int, evasive: bool = False) -> None:
        self.guesses = self.turns = guesses
        self.evasive = evasive

    def reset(self, low: int, high: int, secret: int) -> None:
        self.low, self.high, self.secret, self.left = low, high, secret, self.guesses

    def legal(self) -> list[str]:
        return [str(n) for n in range(self.low, self.high + 1)]

    def best(self) -> list[str]:
        """Guesses after which what is left can be found in the turns that are left, whatever the answer."""
        reach = 2 ** (self.left - 1) - 1
        safe = [n for n in range(self.low, self.high + 1) if n - self.low <= reach and self.high - n <= reach]
        return [str(n) for n in safe] or self.legal()

    def move(self, move: str) -> tuple[str, float, bool]:
        number, self.left = int(move), self.left - 1
        if self.evasive:
            self.secret = self._fled(number)
        if number == self.secret:
            return "", 1.0, True
        if number < self.secret:
            self.low = number + 1
        else:
            self.high = number - 1
        return ("+" if number < self.secret else "-"), 0.0, self.left == 0

    def _fled(self, number: int) -> int:
        """Where the number is after a guess."""
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
    """A number between two others, to be found in `guesses` guesses: n of them are enough for any of 2ⁿ − 1 numbers.

    The model reads the range (``12-18``), writes a guess (``15``) and reads ``+`` where the number is larger, ``-``
    where it is smaller. Ranges end at `highest` at most; whole ranges are held out, with all their numbers. Guesses
    that the hints have ruled out are not allowed. With `evasive` the number flees to the longer side of every guess;
    the row's own says which, where both are as long.

    >>> game = guess().environment()
    >>> game.reset(12, 18, secret=17)
    >>> game.best(), game.step("15"), game.best(), game.step("17")
    (['15'], ('+', 0.0, False), ['17'], ('', 1.0, True))
    """
    size = 2**guesses - 1
    if size > highest + 1:
        problem = f"{guesses} guesses are enough for {size} numbers, and from 0 to {highest} there are {highest + 1}"
        hint = f"fewer guesses, or a `highest` of {2 * size} or so"
        raise RecipeError(problem, where="environment.guesses", hint=hint)
    ranges = [(low, low + size - 1) for low in range(highest - size + 2)]
    starts = [(f"{a}-{b}", {"low": a, "high": b, "secret": n}) for a, b in ranges for n in range(a, b + 1)]
    return environment_spec(
        partial(Guess, guesses, evasive), starts, show=show, skill=skill, test_rows=test_rows, seed=seed
    )
