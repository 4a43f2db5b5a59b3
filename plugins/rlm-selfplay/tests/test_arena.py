"""Games of the real textarena for two and three players where it is installed; the error where it is not."""

from __future__ import annotations

import random
from importlib.util import find_spec
from typing import Any

import pytest
from rlm_selfplay import duel
from rlm_selfplay.starts import begin, starts_of

from rlm_plugins.errors import RecipeError

needs_textarena = pytest.mark.skipif(find_spec("textarena") is None, reason="textarena is not installed")
FIELDS = [f"[{n}]" for n in range(9)]
TICTACTOE = {"name": "TicTacToe-v0", "seeds": 2, "moves": FIELDS}


@needs_textarena
@pytest.mark.parametrize(
    ("name", "players", "actions"),
    [
        ("TicTacToe-v0", 2, ["[0]", "[3]", "[0]", "[1]"]),
        ("KuhnPoker-v0", 2, ["[check]", "[bet]", "[call]", "[check]", "[check]"]),
        ("LiarsDice-v0-small", 3, ["[Bid: 1, 2]", "[Bid: 2, 2]", "[Call]", "[Bid: 1, 3]"]),
    ],
)
def test_game_depends_on_seed_and_actions_only(name: str, players: int, actions: list[str]) -> None:
    """Other users of the global generator do not change the game, and the game does not change its state."""
    transcripts = []
    knobs = {"name": name, "players": players, "seeds": 3, "moves": ["[0]"]}
    for noise in range(2):
        random.seed(noise)
        game = begin(starts_of("textarena", knobs)[2])
        transcript: list[Any] = []
        for action in actions:
            random.random()
            if game.payoffs is None:
                transcript.append((game.mover, game.view()))
                game.act(action)
        transcripts.append((transcript, game.payoffs))
        assert len({player for player, _ in transcript}) >= 2
    assert transcripts[0] == transcripts[1]


@needs_textarena
@pytest.mark.parametrize(
    ("knobs", "where"),
    [
        ({"name": "TicTacTo-v0", "moves": ["[0]"]}, "environment.knobs.name"),
        ({"name": "TicTacToe-v0", "players": 5, "moves": ["[0]"]}, "environment.knobs"),
        ({"name": "TicTacToe-v0"}, "environment.knobs.moves"),
    ],
)
def test_wrong_knobs_are_named(knobs: dict[str, Any], where: str) -> None:
    with pytest.raises(RecipeError) as failure:
        duel(game="textarena", knobs=knobs)
    assert failure.value.where == where


@pytest.mark.skipif(find_spec("textarena") is not None, reason="textarena is installed")
def test_missing_textarena_is_named() -> None:
    with pytest.raises(RecipeError, match="require the package textarena"):
        duel(game="textarena", knobs=TICTACTOE)
