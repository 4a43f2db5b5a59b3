"""Games of the real textarena, where it is installed; what is said where it is not."""

from __future__ import annotations

import random
from importlib.util import find_spec
from typing import Any

import pytest
from rlm_games import textarena

from rlm_plugins.errors import RecipeError

needs_textarena = pytest.mark.skipif(find_spec("textarena") is None, reason="textarena is not installed")


def begun(game: str, seed: int, **knobs: Any) -> tuple[Any, str]:
    environment: Any = textarena(game=game, knobs=knobs, train_rows=2, test_rows=1).environment()  # type: ignore[misc]
    return environment, environment.reset(seed)


@needs_textarena
def test_a_game_is_played_to_its_end() -> None:
    game, rules = begun("GuessTheNumber-v0", 3)
    assert "between 1 and 20" in rules
    said, low, high = "", 1, 20
    for _ in range(10):
        guess = (low + high) // 2
        said, reward, done = game.step(f"I say [{guess}]")
        if done:
            break
        low, high = (guess + 1, high) if "higher" in said else (low, guess - 1)
        assert "I say" not in said, "what the player said is in the row already"
        assert reward == 0.0
    assert (said, reward, done) == ("", 1.0, True)


@needs_textarena
@pytest.mark.parametrize(
    "name", ["GuessTheNumber-v0", "FrozenLake-v0-random", "TowerOfHanoi-v0", "Bandit-v0", "Mastermind-v0"]
)
def test_a_game_is_a_function_of_its_row_and_the_moves(name: str) -> None:
    """Whoever else draws random numbers; and nobody else's are used up."""
    moves, told = ["[1]", "[up]", "[crane]", "[1 2 3 4]", "[red]"], []
    for noise in range(2):
        random.seed(noise)
        game, rules = begun(name, 5)
        said: list[Any] = [rules]
        for move in moves:
            random.random()
            said.append(game.step(move))
            if said[-1][-1]:
                break
        told.append(said)
        random.seed(noise)
        first = random.random()
        random.seed(noise)
        begun(name, 5)
        assert random.random() == first
    assert told[0] == told[1]


@needs_textarena
def test_other_rows_are_other_games() -> None:
    environment_spec = textarena(game="GuessTheNumber-v0", train_rows=30, test_rows=2)
    environments: list[Any] = [environment_spec.environment() for _ in environment_spec.train]  # type: ignore[misc]
    for environment, row in zip(environments, environment_spec.train, strict=True):
        environment.reset(row["seed"])
    assert len({e._game.state.game_state["game_number"] for e in environments}) > 5


@needs_textarena
def test_moves_are_shown_as_they_are_played() -> None:
    moves = ["[accept]", "[continue]"]
    environment_spec = textarena(game="Secretary-v0", show=moves, train_rows=20, test_rows=2)
    assert {row["demonstration"] for row in environment_spec.train} == {*moves}
    for row in environment_spec.train:
        game: Any = environment_spec.environment()  # type: ignore[misc]
        first, *said = row["prompt"]
        assert first["content"].endswith(game.reset(row["seed"]))
        for move, answer in zip(said[::2], said[1::2], strict=True):
            assert game.step(move["content"])[::2] == (answer["content"], False)
        if row["demonstration"] == "[accept]":
            assert game.step("[accept]")[2]


@needs_textarena
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"game": "GuessTheNumbr-v0"}, ["environment.game", "did you mean 'GuessTheNumber-v0'?"]),
        ({"game": "TicTacToe-v0"}, ["environment.game", "cannot be begun by one player"]),
        ({"game": "Bandit-v0", "knobs": {"levers": 4}}, ["environment.knobs", "levers"]),
    ],
)
def test_what_cannot_be_played(said: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(RecipeError) as caught:
        textarena(**said)
    for word in words:
        assert word in str(caught.value)


def test_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm_games.arena.find_spec", lambda name: None)
    with pytest.raises(RecipeError, match=r"rlm-games\[textarena\]"):
        textarena(game="Wordle-v0")
