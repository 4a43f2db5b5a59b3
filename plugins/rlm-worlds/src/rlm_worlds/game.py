"""Base of this package's games: legal and best moves, held-out starts, demonstrations."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from rlm_plugins.registry.loading import call_with_accepted
from rlm_plugins.specs import Environment, EnvironmentSpec

Show = Literal["games", "moves"]
ILLEGAL = "no"


class Game(Environment):
    """A game of one player, or against a fixed opponent: one move per turn, deterministic given the example.

    An illegal move ends the game with reward 0, so that the rules are learned, too.
    """

    def legal(self) -> list[str]:
        """Return the moves that are allowed now."""
        raise NotImplementedError

    def best(self) -> list[str]:
        """Return the legal moves that lead to the highest return still possible."""
        raise NotImplementedError

    def move(self, move: str) -> tuple[str, float, bool]:
        """Make a legal move and return what `step` returns."""
        raise NotImplementedError

    def step(self, action: str) -> tuple[str, float, bool]:
        """Play the last word of the turn, so that reasoning may precede it."""
        words = action.split()
        if not words or words[-1] not in self.legal():
            return ILLEGAL, 0.0, True
        return self.move(words[-1])


def environment_spec(
    game: Callable[[], Game],
    starts: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    show: Show,
    skill: float,
    test_rows: int,
    seed: int,
) -> EnvironmentSpec:
    """Build the environment of a game.

    One start in eight, by the hash of its prompt, is never trained on. The test examples are the first of these in
    shuffled order. Positions reached in the course of a game may occur in both.

    Args:
        game: Makes it.
        starts: Prompt and columns of every possible start.
        show: ``games``: an example is the start of a game. ``moves``: it is one move (column `demonstration`) of a
            demonstrator that makes the first legal move: for a supervised stage.
        skill: Probability that the demonstrator makes a best move instead.
        test_rows: Largest number of held-out starts.
        seed: Seed of the order and of the demonstrator.
    """
    examples = [
        ({"prompt": [{"role": "user", "content": prompt}], **columns}, is_held_out(prompt))
        for prompt, columns in starts
    ]
    random.Random(f"order {seed}").shuffle(examples)
    train = [example for example, held_out in examples if not held_out]
    test = [example for example, held_out in examples if held_out]
    if show == "moves":
        per_game = (_demonstrations(game, example, skill, seed + number) for number, example in enumerate(train))
        train = [move for moves in per_game for move in moves]
    return EnvironmentSpec(train=train, test=test[:test_rows], environment=game)


def _demonstrations(
    game: Callable[[], Game], example: Mapping[str, Any], skill: float, seed: int
) -> list[dict[str, Any]]:
    """Play one game and return each move with the conversation before it; at most `turns`."""
    rng, environment = random.Random(seed), game()
    moves: list[dict[str, Any]] = []
    messages: Sequence[Mapping[str, str]] = list(example["prompt"])
    if observation := call_with_accepted(environment.reset, example):
        messages = [{"role": "user", "content": messages[0]["content"] + observation}]
    over = False
    while not over and len(moves) < environment.turns:
        move = rng.choice(environment.best()) if rng.random() < skill else environment.legal()[0]
        moves.append({**example, "prompt": messages, "demonstration": move})
        answer, _, over = environment.step(move)
        messages = [*messages, {"role": "assistant", "content": move}, {"role": "user", "content": answer}]
    return moves


def is_held_out(prompt: str) -> bool:
    """Return True for one prompt in eight, by its hash."""
    return hashlib.sha256(prompt.encode()).digest()[0] % 8 == 0
