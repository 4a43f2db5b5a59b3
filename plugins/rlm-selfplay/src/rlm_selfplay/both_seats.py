"""Rollout source in which the policy plays both sides of a game (SPIRAL)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlm_plugins.environment import Episode
from rlm_plugins.errors import RecipeError
from rlm_plugins.rollout.chat_tokens import ChatTokens
from rlm_plugins.rollout.episode_tokens import EpisodeTokens
from rlm_selfplay.starts import begin


class BothSeats:
    """Games of the policy against itself; each gives two completions, one per player.

    A completion has the turns of one player, and what that player sees of the other's moves. Completions 2k and 2k + 1
    of a group are the first and the second player of the k-th game from the same start. A player sees the game, never
    the other's text, so reasoning before a move is hidden. The payoff is the reward of the last turn. The column
    `role` is the player, 0 or 1. SPIRAL, arXiv 2506.24119 §3.

    A move that is illegal, or cut off by the length limit, forfeits the game: −1, and 0 for the other player. A player
    whose opponent ended the game before the first move has no trained token. It requires rows of `duel`.
    """

    whole_groups = True
    plays_episodes = True
    columns = ("start",)

    def validate(self, config: Any) -> None:
        """Check that a group has whole games.

        Raises:
            RecipeError: Its size is odd.
        """
        if config.num_generations % 2:
            problem = f"expected two completions per game, got groups of {config.num_generations}"
            raise RecipeError(problem, where="num_generations", allowed="an even number")

    def __call__(
        self, prompts: Sequence[Any], inputs: Sequence[Mapping[str, Any]], source_index: Sequence[int], trainer: Any
    ) -> dict[str, Any]:
        """Return the episodes of both players of each game."""
        chat = ChatTokens(trainer.tokenizer, [], trainer.chat_template_kwargs)
        pairs = zip(prompts, inputs, source_index, strict=True)
        matches = [
            _Match(prompt, row["start"], chat, trainer.max_completion_length, {*trainer.eos_token_ids})
            for prompt, row, number in pairs
            if number % 2 == 0
        ]
        generation, running = trainer.components.generation, matches
        while True:
            running = [match for match in running if match.next_turn()]
            if not len(running) + generation.unused_rows(len(running)):
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
            "role": [number % 2 for number in range(len(players))],
            "episode_tokens": players,
            "episodes": [player.episode for player in players],
            "environments": [player.episode.environment for player in players],
        }


class _Match:
    """One game and the conversations of its players.

    Args:
        prompt: Of the row; it ends with the number of its player, which is replaced.
        start: Text of the start.
        chat: Renders observations.
        room: Largest number of tokens of a completion.
        ends: Token ids that end a turn.
    """

    def __init__(self, prompt: Any, start: str, chat: ChatTokens, room: int, ends: set[int]) -> None:
        self.game, self._chat, self._room, self._ends = begin(start), chat, room, ends
        text = prompt[-1]["content"][: -len("1:")]
        self._prompts = [[*prompt[:-1], {**prompt[-1], "content": f"{text}{role + 1}:"}] for role in (0, 1)]
        self._players: dict[int, EpisodeTokens] = {}

    def next_turn(self) -> bool:
        """Append what the next player sees; return False if the game is over."""
        if self.game.payoffs is None:
            player = self._players.get(self.game.mover)
            if player is None:
                self._players[self.game.mover] = self._enter(self.game.mover, self.game.view())
            else:
                observation = [{"role": "user", "content": self.game.view()}]
                ids = self._chat.render_reply(observation, chat=True)
                if len(player.completion_ids) + len(ids) < self._room:
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
        """Return the tokens after which the next player moves."""
        player = self._players[self.game.mover]
        return [*player.prompt_ids, *player.completion_ids]

    def take(self, ids: list[int], logprobs: Sequence[float] | None) -> None:
        """Append a generated turn and play it."""
        player = self._players[self.game.mover]
        ids = ids[: self._room - len(player.completion_ids)]
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
        """Return the episodes of the first and the second player, with their payoffs."""
        assert self.game.payoffs is not None
        for role, payoff in enumerate(self.game.payoffs):
            if role not in self._players:
                self._players[role] = self._enter(role, "")
            player = self._players[role]
            player.ended = player.episode.done = True
            if player.episode.turn_rewards:
                player.episode.turn_rewards[-1] = payoff
        return [self._players[0], self._players[1]]
