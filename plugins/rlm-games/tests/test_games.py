"""Every game: its best play is worth what is said of it, its rows are held apart, and no action breaks it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from rlm_games import guess, nim, tictactoe, walk
from rlm_games.game import Game, shown

from rlm_plugins.environment import Environment
from rlm_plugins.errors import RecipeError
from rlm_plugins.rollout.tools import accepted_columns
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.testing import conformance

test_nim = conformance("rlm_environments", nim)
test_guess = conformance("rlm_environments", guess)
test_blunders = conformance("rlm_environments", nim, knobs={"blunder": 0.5, "games": 3})
test_evasion = conformance("rlm_environments", guess, knobs={"evasive": True})
test_walk = conformance("rlm_environments", walk)
test_tictactoe = conformance("rlm_environments", tictactoe)

GAMES: dict[str, tuple[Callable[..., EnvironmentSpec], int]] = {
    "nim": (nim, 18),
    "guess": (guess, 35 * 7),
    "walk": (walk, 600),
    "tictactoe": (tictactoe, 801),
}
"""Name → the game, and how many starts it has."""


def test_more_guesses_than_there_are_numbers_for() -> None:
    with pytest.raises(RecipeError, match="are enough for 1023 numbers, and from 0 to 40 there are 41") as told:
        guess(guesses=10)
    assert told.value.where == "environment.guesses"
    assert guess(guesses=5).train


def begun(environment_spec: EnvironmentSpec, row: Any) -> Game:
    game: Game = environment_spec.environment()  # type: ignore[misc]
    game.reset(**accepted_columns(game.reset, row))
    return game


def played(game: Game, choose: Callable[[Game], Sequence[str]]) -> float:
    """The return of a game in which any of the chosen moves is made."""
    paid, over, turns, chance = 0.0, False, 0, random.Random(0)
    while not over:
        _, reward, over = game.step(f"so: {chance.choice(choose(game))}")
        paid, turns = paid + reward, turns + 1
    assert turns <= game.turns
    return paid


@pytest.mark.parametrize("name", GAMES)
def test_best_play_gets_what_there_is_and_any_play_less(name: str) -> None:
    made, count = GAMES[name]
    environment_spec = made(test_rows=10**6)
    rows = [*environment_spec.train, *environment_spec.test]
    assert len(rows) == count
    assert 0.05 < len(environment_spec.test) / count < 0.25
    best = [played(begun(environment_spec, row), lambda game: game.best()) for row in rows]
    anyhow = [played(begun(environment_spec, row), lambda game: game.legal()) for row in rows]
    assert min(best) == pytest.approx(0.5 if name == "tictactoe" else 1.0)
    assert max(best) == pytest.approx(1.0)
    assert sum(anyhow) < 0.8 * sum(best)


@pytest.mark.parametrize("name", ["nim", "walk", "tictactoe"])
def test_only_the_best_moves_lead_to_the_most(name: str) -> None:
    """Against every game there is from the position on."""
    environment_spec = GAMES[name][0]()

    def most(row: Any, moves: list[str]) -> float:
        game, paid = begun(environment_spec, row), 0.0
        for move in moves:
            _, reward, over = game.step(move)
            paid += reward
        return paid if over else max(most(row, [*moves, move]) for move in game.legal())

    short = {"nim": lambda row: row["heap"] < 12, "walk": lambda row: abs(row["x"] - row["to_x"]) < 2}
    rows = [row for row in environment_spec.train if short.get(name, lambda row: row["board"].count(".") == 5)(row)]
    for row in rows[:12]:
        game = begun(environment_spec, row)
        worth = {move: most(row, [move]) for move in game.legal()}
        assert {m for m in worth if worth[m] == pytest.approx(max(worth.values()))} == {*game.best()}


def test_only_who_halves_finds_every_number() -> None:
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


def test_a_game_that_never_ends_is_shown_up_to_its_last_turn() -> None:
    class Never(Environment):
        turns = 3

        def step(self, action: str) -> tuple[str, float, bool]:
            return "again", 0.0, False

    row = {"prompt": [{"role": "user", "content": "?"}]}
    moves = shown(Never, row, lambda game, chance: "on", 0)
    assert [len(move["prompt"]) for move in moves] == [1, 3, 5]


@pytest.mark.parametrize("name", GAMES)
def test_moves_are_shown_as_they_are_played(name: str) -> None:
    """Played again, a game that is shown says what it was shown to say; and no start of the test is among them."""
    environment_spec = GAMES[name][0](show="moves")
    tested = {row["prompt"][0]["content"] for row in environment_spec.test}
    for row in random.Random(0).sample(list(environment_spec.train), 20):
        first, *said = row["prompt"]
        assert first["content"] not in tested
        game = begun(environment_spec, row)
        for move, answer in zip(said[::2], said[1::2], strict=True):
            assert game.step(move["content"])[::2] == (answer["content"], False)
        assert row["demonstration"] in game.legal()


@pytest.mark.parametrize("action", ["", " ", "99", "1 or 2, no: x", "-1"])
def test_what_is_not_allowed_ends_the_game(action: str) -> None:
    for made, _ in GAMES.values():
        environment_spec = made()
        assert begun(environment_spec, environment_spec.train[0]).step(action) == ("no", 0.0, True)


def test_an_opponent_who_blunders_can_be_beaten_by_less_than_best_play() -> None:
    """Best play wins all the same; luck differs from game to game, and is that of the row."""

    def won(blunder: float, moves: Callable[[Game], Sequence[str]]) -> list[float]:
        environment_spec = nim(blunder=blunder, games=20)
        return [
            played(begun(environment_spec, row), moves) for row in [*environment_spec.train, *environment_spec.test]
        ]

    best = won(0.5, lambda game: game.best())
    assert (len(best), min(best)) == (18 * 20, 1.0)
    careful, careless = (won(blunder, lambda game: game.legal()) for blunder in (0.0, 0.5))
    assert sum(careful) < 0.25 * len(careful)
    assert sum(careless) > 0.3 * len(careless)
    assert careless == won(0.5, lambda game: game.legal())


def test_who_guesses_at_luck_never_finds_what_is_evasive() -> None:
    """In two guesses of three numbers: only the one in the middle, and then the one that is left."""
    environment_spec = guess(guesses=2, evasive=True)
    for row in environment_spec.test:
        for first in range(row["low"], row["high"] + 1):
            for second in range(row["low"], row["high"] + 1):
                game = begun(environment_spec, row)
                told, paid, _ = game.step(str(first))
                right = first == row["low"] + 1 and second == first + (1 if told == "+" else -1)
                assert paid + game.step(str(second))[1] == float(right)
    halves = {row["secret"]: begun(environment_spec, row).step(str(row["low"] + 1))[0] for row in environment_spec.test}
    assert {*halves.values()} == {"+", "-"}
