"""Environment of a two-player game: self-play in training, a fixed opponent in evaluation."""

from __future__ import annotations

import hashlib
import random
from functools import partial
from typing import Any, Literal

from rlm_plugins.equation.knobs import Count
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import Environment, EnvironmentSpec
from rlm_selfplay.starts import begin, starts_of
from rlm_selfplay.two_player import TwoPlayerGame

Opponent = Literal["random", "best"]
ENOUGH = 8
"""Smallest number of starts of which some are held out."""


class Duel(Environment):
    """One player of a game, against a scripted opponent; the last turn gets the payoff."""

    turns = 200

    def __init__(self, opponent: Opponent = "random") -> None:
        self._opponent = opponent

    def reset(self, start: str, role: int, luck: int) -> str:
        """Start a game; `role` is the player, `luck` seeds the opponent."""
        self.game, self.role, self._rng = begin(start), role, random.Random(f"{start} {luck}")
        self._reply()
        return self.game.view() if self.game.payoffs is None else ""

    def step(self, action: str) -> tuple[str, float, bool]:
        """Make a move and let the opponent answer."""
        if self.game.payoffs is None:
            self.game.act(action)
            self._reply()
        payoffs = self.game.payoffs
        return (self.game.view(), 0.0, False) if payoffs is None else ("", payoffs[self.role], True)

    def _reply(self) -> None:
        while self.game.payoffs is None and self.game.mover != self.role:
            moves = self.game.best() if self._opponent == "best" else self.game.legal()
            self.game.act(self._rng.choice(moves))


def duel(
    *,
    game: str = "nim",
    knobs: dict[str, Any] | None = None,
    opponent: Opponent = "random",
    explain: bool = False,
    games: Count = 1,
    test_games: Count = 8,
    test_rows: Count = 256,
    show: Literal["games", "moves"] = "games",
    seed: int = 0,
) -> EnvironmentSpec:
    """Build a game of two players: `nim`, `tictactoe` or `kuhn`.

    With the rollout source `both_seats` the policy plays both sides in training. Evaluation, and training without that
    source, is against `opponent`: uniformly random legal moves, or optimal play. The prompt has the public start and
    the player's number (``17 1:``), with `explain` after the rules; the game appends the player's observation. `knobs`
    are those of the game: ``{highest: 24, take: 3}`` of Nim, ``{moves: 2}`` of tic-tac-toe (moves before the start).

    An example is a start and a player (column `role`). One start in eight, by its hash, is held out; positions within
    other games may be equal. Games with fewer than eight starts (Kuhn poker's deals) hold out none. Each start has
    `games` examples per player, held-out ones `test_games`, which differ in the opponent's choices. With `show: moves`
    an example is one random legal move (column `demonstration`) for a supervised stage, to train the rules.

    >>> player = Duel("best")
    >>> player.reset('{"game": "nim", "heap": 7}', role=0, luck=0), player.step("3"), player.step("1")
    ('7', ('3', 0.0, False), ('', -1.0, True))
    """
    starts = starts_of(game, knobs or {})
    if opponent == "best" and not begin(starts[-1]).best():
        problem, hint = f"optimal play of '{game}' is mixed and not included", "opponent: random"
        raise RecipeError(problem, where="environment.opponent", hint=hint)
    train, test = starts, starts
    if len(starts) >= ENOUGH:
        train = [start for start in starts if not _is_held_out(start)]
        test = [start for start in starts if _is_held_out(start)]
    training_set = _examples(train, explain, range(games))
    test_set = _examples(test, explain, range(games, games + test_games))
    random.Random(f"order {seed}").shuffle(training_set)
    random.Random("order of the test set").shuffle(test_set)
    if show == "moves":
        training_set = [
            move for number, example in enumerate(training_set) for move in _random_play(example, seed + number)
        ]
    return EnvironmentSpec(train=training_set, test=test_set[:test_rows], environment=partial(Duel, opponent))


def prompt_of(game: TwoPlayerGame, role: int, explain: bool) -> list[dict[str, str]]:
    """Return the prompt of a player, without the first observation."""
    return [{"role": "user", "content": f"{game.rules if explain else ''}{game.public()} {role + 1}:"}]


def _examples(starts: list[str], explain: bool, seeds: range) -> list[dict[str, Any]]:
    """Return an example per start, player and seed of the opponent."""
    examples = []
    for start in starts:
        game = begin(start)
        for role in range(game.players):
            prompt = prompt_of(game, role, explain)
            examples += [{"prompt": prompt, "start": start, "role": role, "luck": seed} for seed in seeds]
    return examples


def _is_held_out(start: str) -> bool:
    return hashlib.sha256(start.encode()).digest()[0] % 8 == 0


def _random_play(example: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Return each move of a player with random legal moves, with the conversation before it."""
    rng, player, moves = random.Random(seed), Duel(), list[dict[str, Any]]()
    observation, done = player.reset(example["start"], example["role"], example["luck"]), False
    messages = [{"role": "user", "content": example["prompt"][0]["content"] + observation}]
    while not done and player.game.payoffs is None:
        move = rng.choice(player.game.legal())
        moves.append({**example, "prompt": messages, "demonstration": move})
        observation, _, done = player.step(move)
        messages = [*messages, {"role": "assistant", "content": move}, {"role": "user", "content": observation}]
    return moves
