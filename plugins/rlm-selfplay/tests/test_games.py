"""Two-player games: rules, optimal play, duels with a scripted opponent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rlm_selfplay import duel
from rlm_selfplay.duel import Duel
from rlm_selfplay.games import Nim, begin
from rlm_testing import conformance

from rlm_plugins.errors import RecipeError

test_laws = conformance("rlm_environments", duel, knobs={"knobs": {"highest": 12}})


def value(state: Any, moves: list[str]) -> float:
    """Return the payoff of the first player under optimal play, by search over whole games."""
    game = begin(state)
    for move in moves:
        game.move(move)
    if game.payoffs is not None:
        return game.payoffs[0]
    values = [value(state, [*moves, move]) for move in game.legal()]
    return max(values) if game.mover == 0 else min(values)


@pytest.mark.parametrize("heap", range(1, 9))
def test_best_moves_of_nim_reach_the_value_of_the_game(heap: int) -> None:
    start = json.dumps({"game": "nim", "heap": heap})
    assert value(start, []) == (1.0 if heap % 4 else -1.0)
    game = begin(start)
    winning = [move for move in game.legal() if value(start, [move]) == value(start, [])]
    assert game.best() == winning


@pytest.mark.parametrize(
    ("cards", "moves", "payoffs"),
    [
        ("KJ", "cc", (0.5, -0.5)),
        ("JK", "bf", (0.5, -0.5)),
        ("JK", "bc", (-1.0, 1.0)),
        ("QJ", "cbf", (-0.5, 0.5)),
        ("QJ", "cbc", (1.0, -1.0)),
    ],
)
def test_kuhn_poker_pays_by_its_rules(cards: str, moves: str, payoffs: tuple[float, float]) -> None:
    game = begin(json.dumps({"game": "kuhn", "cards": cards}))
    for number, move in enumerate(moves):
        assert game.payoffs is None
        assert game.view() == f"{cards[number % 2]}:{moves[:number]}", "a player sees the own card only"
        assert move in game.legal()
        game.move(move)
    assert game.payoffs == payoffs


@pytest.mark.parametrize("action", ["9", "", "take"])
def test_illegal_move_forfeits(action: str) -> None:
    game = Nim()
    game.start(5)
    game.act(action)
    assert game.payoffs == (-1.0, 0.0)
    game = Nim()
    game.start(5)
    game.act("I take 2")
    game.act(action)
    assert game.payoffs == (0.0, -1.0)


@pytest.mark.parametrize("role", [0, 1])
def test_optimal_player_wins_every_winnable_duel(role: int) -> None:
    for heap in range(1, 20):
        player = Duel("best")
        view = player.reset(json.dumps({"game": "nim", "heap": heap}), role, luck=heap)
        total, over = 0.0, not view
        while not over:
            view, reward, over = player.step(player.game.best()[0])
            total += reward
        if view or total:
            assert total == (1.0 if bool(heap % 4) == (role == 0) else -1.0)


def test_starts_are_held_out_and_random_demonstrations_are_legal() -> None:
    spec = duel(knobs={"highest": 40}, games=2)
    trained = {row["start"] for row in spec.train}
    assert trained.isdisjoint(row["start"] for row in spec.test)
    assert {row["role"] for row in spec.test} == {0, 1}
    for row in duel(game="tictactoe", show="moves", games=1).train[:200]:
        board = row["prompt"][-1]["content"][-9:]
        assert board[int(row["demonstration"])] == "."


@pytest.mark.parametrize(
    ("knobs", "where", "allowed"),
    [
        ({"game": "chess"}, "environment.game", "nim, tictactoe, kuhn"),
        ({"game": "nim", "knobs": {"size": 3}}, "environment.knobs", ""),
        ({"game": "kuhn", "opponent": "best"}, "environment.opponent", ""),
    ],
)
def test_wrong_knobs_are_named(knobs: dict[str, Any], where: str, allowed: str) -> None:
    with pytest.raises(RecipeError) as failure:
        duel(**knobs)
    assert failure.value.where == where
    assert allowed in (failure.value.allowed or "")
