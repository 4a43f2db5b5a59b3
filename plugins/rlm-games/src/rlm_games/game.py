"""What our games have in common: rules that say which moves are allowed and best, rows to play, moves to be shown."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from rlm_plugins.environment import Environment
from rlm_plugins.rollout.tools import accepted_columns
from rlm_plugins.specs import EnvironmentSpec

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Show = Literal["games", "moves"]
ILLEGAL = "no"


Choose = Callable[[Any, random.Random], str]
"""The game, and chance → the move."""


class Game(Environment):
    """A game of one player, or of one against a fixed opponent: a move per turn, the same game for the same row.

    A move that is not allowed ends the game and pays nothing: so there is something to learn about the rules, too.
    """

    def legal(self) -> list[str]:
        """The moves that are allowed now."""
        raise NotImplementedError

    def best(self) -> list[str]:
        """Those of them that lead to the most that can still be had."""
        raise NotImplementedError

    def move(self, move: str) -> tuple[str, float, bool]:
        """Makes an allowed move; answers as `step` does."""
        raise NotImplementedError

    def step(self, action: str) -> tuple[str, float, bool]:
        """The move is the last word of what the model says, so that it may think before."""
        words = action.split()
        if not words or words[-1] not in self.legal():
            return ILLEGAL, 0.0, True
        return self.move(words[-1])


def environment_spec(
    game: Callable[[], Game],
    starts: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    show: Show,
    skill: float,
    test_rows: int,
    seed: int,
) -> EnvironmentSpec:
    """The world of a game.

    One start in eight, by the hash of its prompt, is never trained on; the test rows are the first of these in an order
    of their own. Positions that are reached in the course of a game may occur in both.

    Args:
        game: Makes it.
        starts: Prompt and columns of every game there is.
        show: ``games``: a row is the start of a game. ``moves``: it is one move (column `demonstration`) of a player of
            habit, who makes the first that is allowed: for a supervised stage.
        skill: How often that player makes a best move instead.
        test_rows: How many starts are held out at most.
        seed: Of the order, and of the player's chance.
    """
    rows = [
        ({"prompt": [{"role": "user", "content": prompt}], **columns}, _held_out(prompt)) for prompt, columns in starts
    ]
    random.Random(f"order {seed}").shuffle(rows)
    train, test = ([row for row, held in rows if held is kept] for kept in (False, True))
    if show == "moves":
        habit = partial(_habitual, skill)
        train = [move for number, row in enumerate(train) for move in shown(game, row, habit, seed + number)]
    return EnvironmentSpec(train=train, test=test[:test_rows], environment=game)


def _habitual(skill: float, game: Game, chance: random.Random) -> str:
    return chance.choice(game.best()) if chance.random() < skill else game.legal()[0]


def shown(game: Callable[[], Any], row: Mapping[str, Any], choose: Choose, seed: int) -> list[dict[str, Any]]:
    """The moves of one game by somebody who chooses so, each with all that was said before it; at most `turns`."""
    chance, made, said = random.Random(seed), game(), []
    messages: Sequence[Mapping[str, str]] = list(row["prompt"])
    if observation := made.reset(**accepted_columns(made.reset, row)):
        messages = [{"role": "user", "content": messages[0]["content"] + observation}]
    over = False
    while not over and len(said) < made.turns:
        move = choose(made, chance)
        said.append({**row, "prompt": messages, "demonstration": move})
        answer, _, over = made.step(move)
        messages = [*messages, {"role": "assistant", "content": move}, {"role": "user", "content": answer}]
    return said


def _held_out(prompt: str) -> bool:
    return hashlib.sha256(prompt.encode()).digest()[0] % 8 == 0
