"""Every game: value of best play, held-out starts, demonstrations, illegal actions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from rlm_testing import conformance
from rlm_worlds import guess, nim, walk
from rlm_worlds.game import Game

from rlm_plugins.rollout.episodes import accepted_columns
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
    game.reset(**accepted_columns(game.reset, row))
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
