"""Games of the real textarena where it is installed; the error where it is not."""

from __future__ import annotations

import random
from importlib.util import find_spec
from typing import Any

import pytest
from rlm_worlds import textarena

from rlm_plugins.errors import RecipeError

needs_textarena = pytest.mark.skipif(find_spec("textarena") is None, reason="textarena is not installed")


def start_game(game: str, seed: int, **knobs: Any) -> tuple[Any, str]:
    environment: Any = textarena(game=game, knobs=knobs, train_rows=2, test_rows=1).environment()  # type: ignore[misc]
    return environment, environment.reset(seed)


@needs_textarena
def test_game_can_be_won() -> None:
    game, rules = start_game("GuessTheNumber-v0", 3)
    assert "between 1 and 20" in rules
    observation, low, high = "", 1, 20
    for _ in range(10):
        guess = (low + high) // 2
        observation, reward, done = game.step(f"I say [{guess}]")
        if done:
            break
        low, high = (guess + 1, high) if "higher" in observation else (low, guess - 1)
        assert "I say" not in observation, "the player's move is part of the conversation already"
        assert reward == 0.0
    assert (observation, reward, done) == ("", 1.0, True)


@needs_textarena
@pytest.mark.parametrize(
    "name", ["GuessTheNumber-v0", "FrozenLake-v0-random", "TowerOfHanoi-v0", "Bandit-v0", "Mastermind-v0"]
)
def test_game_depends_on_seed_and_moves_only(name: str) -> None:
    """Other users of the global generator do not change the game, and the game does not change its state."""
    moves, transcripts = ["[1]", "[up]", "[crane]", "[1 2 3 4]", "[red]"], []
    for noise in range(2):
        random.seed(noise)
        game, rules = start_game(name, 5)
        transcript: list[Any] = [rules]
        for move in moves:
            random.random()
            transcript.append(game.step(move))
            if transcript[-1][-1]:
                break
        transcripts.append(transcript)
        random.seed(noise)
        first = random.random()
        random.seed(noise)
        start_game(name, 5)
        assert random.random() == first
    assert transcripts[0] == transcripts[1]


@needs_textarena
@pytest.mark.parametrize(
    ("knobs", "fragments"),
    [
        ({"game": "GuessTheNumbr-v0"}, ["environment.game", "did you mean 'GuessTheNumber-v0'?"]),
        ({"game": "TicTacToe-v0"}, ["environment.game", "cannot be started with one player"]),
        ({"game": "Bandit-v0", "knobs": {"levers": 4}}, ["environment.knobs", "levers"]),
    ],
)
def test_rejected_games_and_knobs(knobs: dict[str, Any], fragments: list[str]) -> None:
    with pytest.raises(RecipeError) as caught:
        textarena(**knobs)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_missing_textarena_is_a_recipe_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm_worlds.textarena_games.find_spec", lambda name: None)
    with pytest.raises(RecipeError, match=r"rlm-worlds\[textarena\]"):
        textarena(game="Wordle-v0")
