"""Every game: value of best play, held-out starts, demonstrations, illegal actions, and moves that parrot."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from rlm_testing import conformance
from rlm_worlds import guess, nim, walk
from rlm_worlds.game import Game

from rlm_plugins.registry.loading import call_with_accepted
from rlm_plugins.specs import EnvironmentSpec

test_nim = conformance("rlm_environments", nim)
test_guess = conformance("rlm_environments", guess)
test_blunders = conformance("rlm_environments", nim, knobs={"blunder": 0.5, "games": 3})
test_evasion = conformance("rlm_environments", guess, knobs={"evasive": True})
test_walk = conformance("rlm_environments", walk)

GAMES: dict[str, tuple[Callable[..., EnvironmentSpec], int]] = {
    "nim": (nim, 18),
    "guess": (guess, 35 * 7),
    "walk": (walk, 600),
}
"""Name → the game and its number of starts."""


def start_game(environment_spec: EnvironmentSpec, row: Any) -> Game:
    game: Game = environment_spec.environment()  # type: ignore[misc]
    call_with_accepted(game.reset, row)
    return game


def play(game: Game, choose: Callable[[Game], Sequence[str]]) -> float:
    """Return the return of a game in which any of the chosen moves is made."""
    episode_return, over, turns, rng = 0.0, False, 0, random.Random(0)
    while not over:
        _, reward, over = game.step(f"so: {rng.choice(choose(game))}")
        episode_return, turns = episode_return + reward, turns + 1
    assert turns <= game.turns
    return episode_return


@pytest.mark.parametrize("name", GAMES)
def test_return_of_best_and_random_play(name: str) -> None:
    build, count = GAMES[name]
    environment_spec = build(test_rows=10**6)
    rows = [*environment_spec.train, *environment_spec.test]
    assert len(rows) == count
    assert 0.05 < len(environment_spec.test) / count < 0.25
    best_play = [play(start_game(environment_spec, row), lambda game: game.best()) for row in rows]
    random_play = [play(start_game(environment_spec, row), lambda game: game.legal()) for row in rows]
    assert min(best_play) == pytest.approx(1.0)
    assert max(best_play) == pytest.approx(1.0)
    assert sum(random_play) < 0.8 * sum(best_play)


@pytest.mark.parametrize("name", ["nim", "walk"])
def test_best_moves_match_exhaustive_search(name: str) -> None:
    """The oracle searches every continuation of the position."""
    environment_spec = GAMES[name][0]()

    def highest_return(row: Any, moves: list[str]) -> float:
        game, paid = start_game(environment_spec, row), 0.0
        for move in moves:
            _, reward, over = game.step(move)
            paid += reward
        return paid if over else max(highest_return(row, [*moves, move]) for move in game.legal())

    short = {"nim": lambda row: row["heap"] < 12, "walk": lambda row: abs(row["x"] - row["to_x"]) < 2}
    rows = [row for row in environment_spec.train if short[name](row)]
    for row in rows[:12]:
        game = start_game(environment_spec, row)
        values = {move: highest_return(row, [move]) for move in game.legal()}
        assert {m for m in values if values[m] == pytest.approx(max(values.values()))} == {*game.best()}


def test_guess_best_moves_match_exhaustive_search() -> None:
    """A guess is among the best if and only if some plan after it finds every number in time."""

    def sure(low: int, high: int, left: int) -> bool:
        return low > high or (left > 0 and any(_safe(low, high, n, left) for n in range(low, high + 1)))

    def _safe(low: int, high: int, n: int, left: int) -> bool:
        return sure(low, n - 1, left - 1) and sure(n + 1, high, left - 1)

    for guesses, size in ((3, 7), (3, 5), (2, 3), (2, 4)):
        game: Any = guess(guesses=guesses).environment()  # type: ignore[misc]
        game.reset(10, 9 + size, 10)
        moves = {str(n) for n in range(10, 10 + size) if _safe(10, 9 + size, n, guesses)}
        assert {*game.best()} == (moves or {*game.legal()})


@pytest.mark.parametrize("name", GAMES)
def test_demonstrations_replay_exactly(name: str) -> None:
    """Replaying a demonstration gives its observations, and no held-out start is among them."""
    environment_spec = GAMES[name][0](show="moves")
    tested = {row["prompt"][0]["content"] for row in environment_spec.test}
    for row in random.Random(0).sample(list(environment_spec.train), 20):
        first, *conversation = row["prompt"]
        assert first["content"] not in tested
        game = start_game(environment_spec, row)
        for move, answer in zip(conversation[::2], conversation[1::2], strict=True):
            assert game.step(move["content"])[::2] == (answer["content"], False)
        assert row["demonstration"] in game.legal()


@pytest.mark.parametrize("action", ["", " ", "99", "1 or 2, no: x", "-1"])
def test_illegal_action_ends_the_game(action: str) -> None:
    for game, _ in GAMES.values():
        environment_spec = game()
        assert start_game(environment_spec, environment_spec.train[0]).step(action) == ("no", 0.0, True)


def test_evasive_number_is_found_by_bisection_only() -> None:
    """Three numbers take two guesses: the middle one, then the remaining one."""
    environment_spec = guess(guesses=2, evasive=True)
    for row in environment_spec.test:
        for first in range(row["low"], row["high"] + 1):
            for second in range(row["low"], row["high"] + 1):
                game = start_game(environment_spec, row)
                hint, paid, _ = game.step(str(first))
                right = first == row["low"] + 1 and second == first + (1 if hint == "+" else -1)
                assert paid + game.step(str(second))[1] == float(right)
    halves = {
        row["secret"]: start_game(environment_spec, row).step(str(row["low"] + 1))[0] for row in environment_spec.test
    }
    assert {*halves.values()} == {"+", "-"}


VARIANTS: dict[str, Any] = {
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
    spec = VARIANTS[name]()
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


@pytest.mark.parametrize("name", VARIANTS)
def test_no_constant_is_paid_above_chance(name: str) -> None:
    """No constant and no parroting move is paid more than random legal moves."""
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
