"""Games of the real textarena for two and three players where it is installed; the error where it is not."""

from __future__ import annotations

import random
import re
from importlib.util import find_spec
from typing import Any

import pytest
from rlm_selfplay import duel
from rlm_selfplay.duel import Duel
from rlm_selfplay.starts import begin, starts_of

from rlm_plugins.errors import RecipeError

needs_textarena = pytest.mark.skipif(find_spec("textarena") is None, reason="textarena is not installed")
FIELDS = [f"[{n}]" for n in range(9)]
TICTACTOE = {"name": "TicTacToe-v0", "seeds": 2, "moves": FIELDS}


@needs_textarena
def test_game_of_two_can_be_won_and_pays_both() -> None:
    game = begin(starts_of("textarena", TICTACTOE)[0])
    first, seen = game.mover, []
    for move in ("[0]", "[3]", "[1]", "[4]", "[2]"):
        assert game.payoffs is None
        seen.append(game.view())
        game.act(f"I take {move}")
    assert game.payoffs is not None
    assert game.payoffs[first] == 1.0
    assert sum(game.payoffs) == 0.0
    assert all("I take" not in text.partition("Current Board")[0] or n for n, text in enumerate(seen))
    assert "Available Moves" in seen[2]


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
def test_duel_has_one_row_per_player_and_random_opponents_finish_games() -> None:
    spec = duel(game="textarena", knobs={**TICTACTOE, "seeds": 8}, test_games=1)
    rows = [*spec.train, *spec.test]
    assert {row["role"] for row in rows} == {0, 1}
    for row in rows[:4]:
        player, rng, over, view = Duel(), random.Random(0), False, ""
        view = player.reset(row["start"], row["role"], 0)
        assert "Tic Tac Toe" in view
        while not over:
            moves = re.findall(r"\[\d\]", view.rpartition("Available Moves")[2]) or FIELDS
            view, reward, over = player.step(rng.choice(moves))
        assert reward in (-1.0, 0.0, 1.0)


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
