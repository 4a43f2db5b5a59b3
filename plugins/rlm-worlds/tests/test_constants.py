"""No constant and no parroting move is paid more than random legal moves, in any game."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from rlm_worlds import guess, nim, walk

GAMES: dict[str, Any] = {
    "nim": lambda: nim(blunder=0.3, games=8),
    "guess": guess,
    "evasive guess": lambda: guess(evasive=True),
    "walk": walk,
}
CONSTANTS = (
    """
0|1|2|3|4|5|6|7|8|9|12|15|20|-1|nan|inf|r|l|u|d|+|-|no|yes|x|o|X|O|a1|b2|[]|{}|None|True|1.0|01|１|½|0x1|1e0|1 2 3
r l u d|1 2 3 no|move: 1|1.|\u200b1|1\u00a0|| |r r r r|0 1 2 3 4 5 6 7 8
""".strip()
    .replace("\n", "|")
    .split("|")
)
Player = Callable[[str, str, list[str]], str]
"""(prompt, last observation, legal moves) → the turn."""


def mean_return(name: str, player: Player, rows: int = 60) -> float:
    """Return the mean return of a player on held-out and training starts; a game that does not end is cut off."""
    spec = GAMES[name]()
    starts = [*spec.test, *spec.train]
    chosen, total = random.Random(0).sample(starts, min(rows, len(starts))), 0.0
    for example in chosen:
        game = spec.environment()
        columns = {key: value for key, value in example.items() if key not in ("prompt", "demonstration")}
        prompt, seen, over, turns = example["prompt"][0]["content"], "", False, 0
        seen = game.reset(**columns) or ""
        while not over and turns < min(game.turns, 40):
            seen, reward, over = game.step(player(prompt, seen, game.legal()))
            total, turns = total + reward, turns + 1
    return total / len(chosen)


def chance(name: str) -> float:
    """Return the mean return of uniformly random legal moves."""
    rng = random.Random(1)
    return mean_return(name, lambda prompt, seen, legal: rng.choice(legal), rows=300)


@pytest.mark.parametrize("name", GAMES)
def test_no_constant_is_paid_above_chance(name: str) -> None:
    limit = max(chance(name), 0.0) + 0.1
    players: dict[str, Player] = {f"always {text!r}": lambda p, s, legal, text=text: text for text in CONSTANTS}  # type: ignore[misc]
    players |= {
        "the prompt": lambda prompt, seen, legal: prompt,
        "the observation": lambda prompt, seen, legal: seen,
        "the last word of the prompt": lambda prompt, seen, legal: prompt.split()[-1],
        "all legal moves and none": lambda prompt, seen, legal: f"{' '.join(legal)} or none",
    }
    paid = {label: mean_return(name, player) for label, player in players.items()}
    assert {label: value for label, value in paid.items() if value > limit} == {}, limit
