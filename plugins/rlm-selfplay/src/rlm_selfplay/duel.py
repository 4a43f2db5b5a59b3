"""Self-play of two-player games: a rollout source in which the policy plays all sides (SPIRAL), and an environment."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from rlm_worlds.game import is_held_out

from rlm_plugins.equation.knobs import Count
from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.rollout.chat_tokens import ChatTokens, EpisodeTokens
from rlm_plugins.specs import Environment, EnvironmentSpec, Episode
from rlm_selfplay.games import TwoPlayerGame, begin, starts_of


class BothSeats:
    """Games of the policy against itself; each gives one completion per player.

    A completion has the turns of one player, and the observations of that player between them. In a game of two,
    completions 2k and 2k + 1 of a group are the players of its k-th game, all from one start. Observations have the
    state of the game, never the other player's text, so reasoning before a move is hidden. The payoff is the reward of
    the last turn. The column `role` is the player, 0 or 1. SPIRAL, arXiv 2506.24119 §3.

    A move that is illegal, or truncated by the length limit, ends the game with −1, and 0 for the other players. If a
    game ends before the first move of a player, its completion has no trained token. The examples must be those of
    `duel`. With N players `num_generations` must be a multiple of N.
    """

    whole_groups = True
    plays_episodes = True
    columns = ("start",)

    def __call__(
        self, prompts: Sequence[Any], inputs: Sequence[Mapping[str, Any]], source_index: Sequence[int], trainer: Any
    ) -> dict[str, Any]:
        """Return the episodes of all players of each game.

        Raises:
            PartError: A group has no whole number of games.
        """
        chat = ChatTokens(trainer.tokenizer, [], trainer.chat_template_kwargs)
        ends, matches, num_missing = {*trainer.eos_token_ids}, list[_Match](), 0
        for prompt, example, number in zip(prompts, inputs, source_index, strict=True):
            if num_missing and not number:
                break
            if not num_missing:
                matches.append(_Match(prompt, example["start"], chat, trainer.max_completion_length, ends))
                num_missing = matches[-1].game.players
            num_missing -= 1
        if num_missing:
            problem = f"a game has {matches[-1].game.players} players, which does not divide the completions of a group"
            raise PartError(problem, where="trainer.num_generations", allowed="a multiple of the number of players")
        generation, running = trainer.components.generation, matches
        while True:
            running = [match for match in running if match.next_turn()]
            if not len(running) + generation.num_dummies(len(running)):
                break
            ids, logprobs = generation.continue_ids([match.so_far() for match in running])
            for number, match in enumerate(running):
                match.take(ids[number], None if logprobs is None else logprobs[number])
        players = [player for match in matches for player in match.finish()]
        end = trainer.tokenizer.eos_token_id
        return {
            "prompt_ids": [player.prompt_ids for player in players],
            "completion_ids": [player.completion_ids or [end] for player in players],
            "mask": [player.mask or [False] for player in players],
            "logprobs": [player.logprobs or None for player in players],
            "role": [role for match in matches for role in range(match.game.players)],
            "episode_tokens": players,
            "episodes": [player.episode for player in players],
            "environments": [player.episode.environment for player in players],
        }


class _Match:
    """One game and the conversations of its players.

    Args:
        prompt: Prompt of the example; the number of the player at its end is replaced.
        start: Start of the game, as text.
        chat: Renderer of observations.
        max_tokens: Largest number of tokens of a completion.
        ends: Token ids that end a turn.
    """

    def __init__(self, prompt: Any, start: str, chat: ChatTokens, max_tokens: int, ends: set[int]) -> None:
        self.game, self._chat, self._max_tokens, self._ends = begin(start), chat, max_tokens, ends
        text = prompt[-1]["content"][: -len("1:")]
        roles = range(self.game.players)
        self._prompts = [[*prompt[:-1], {**prompt[-1], "content": f"{text}{role + 1}:"}] for role in roles]
        self._players: dict[int, EpisodeTokens] = {}

    def next_turn(self) -> bool:
        """Append the observation of the next player; return False if the game is over."""
        if self.game.payoffs is None:
            player = self._players.get(self.game.mover)
            if player is None:
                self._players[self.game.mover] = self._enter(self.game.mover, self.game.view())
            else:
                observation = [{"role": "user", "content": self.game.view()}]
                ids = self._chat.render_reply(observation, chat=True)
                if len(player.completion_ids) + len(ids) < self._max_tokens:
                    player.append(ids, False, [0.0] * len(ids))
                    player.episode.messages += observation
                else:
                    player.episode.truncated = True
                    self.game.forfeit()
        return self.game.payoffs is None

    def _enter(self, role: int, view: str) -> EpisodeTokens:
        prompt, ids = self._chat.render_prompt(self._prompts[role], view)
        return EpisodeTokens(Episode(self.game, prompt), ids)

    def so_far(self) -> list[int]:
        """Return the token ids before the next player's turn."""
        player = self._players[self.game.mover]
        return [*player.prompt_ids, *player.completion_ids]

    def take(self, ids: list[int], logprobs: Sequence[float] | None) -> None:
        player = self._players[self.game.mover]
        ids = ids[: self._max_tokens - len(player.completion_ids)]
        message = self._chat.parse_turn(ids, self.so_far())
        player.append(ids, True, None if logprobs is None else logprobs[: len(ids)])
        player.episode.messages.append(message)
        player.episode.turn_ends.append(max(len(player.completion_ids) - 1, 0))
        player.episode.turn_rewards.append(0.0)
        if ids and ids[-1] in self._ends:
            self.game.act(message["content"])
        else:
            player.episode.truncated = True
            self.game.forfeit()

    def finish(self) -> list[EpisodeTokens]:
        assert self.game.payoffs is not None
        for role, payoff in enumerate(self.game.payoffs):
            if role not in self._players:
                self._players[role] = self._enter(role, "")
            player = self._players[role]
            player.ended = player.episode.done = True
            if player.episode.turn_rewards:
                player.episode.turn_rewards[-1] = payoff
        return [self._players[role] for role in range(self.game.players)]


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
        train = [start for start in starts if not is_held_out(start)]
        test = [start for start in starts if is_held_out(start)]
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
