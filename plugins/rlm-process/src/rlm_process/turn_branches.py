"""Rollout source of episodes that branch after tool calls, where the next turn began with high entropy (ARPO)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, PositiveInt

from rlm_plugins.rollout.chat_tokens import EpisodeTokens, Fork


class TurnBranches:
    """Episodes of a group branch after observations, if the next turn begins with higher entropy than the first turn.

    The first `trunks` episodes of a group are played from the start. Then, in rounds, episodes branch before a turn u
    with P > τ, until the group is full: P = α + β · ΔH, ΔH = (Hᵤ − H₀) / H₀. Hᵤ is the mean entropy of the first
    `tokens` tokens of turn u, and H₀ of the first turn. ARPO, arXiv 2507.19849 §3.1; α is `base`, β `weight`, τ
    `threshold`. A branch replays the turns before u, then continues independently. Turns with the largest P come first,
    each with `branches` branches, the paper's Z. The rest of the group is played from the start.

    The paper branches during the first episodes, and its code at random with probability P. Here episodes branch after
    the first ones have ended, deterministically. ΔH is relative to H₀ here. The paper sums Hᵤ − H₀ over the tokens and
    divides by the vocabulary size V; its code divides by log V and has only the 10 largest log-probs. A branch branches
    again only at later turns. Turns that a branch replays are trained on again; the advantage `tree` weights them
    accordingly. Where H₀ is 0, ΔH is 0.
    """

    whole_groups = True
    plays_episodes = True

    def __init__(
        self,
        *,
        trunks: PositiveInt = 1,
        branches: PositiveInt = 1,
        tokens: PositiveInt = 20,
        base: float = 0.5,
        weight: float = 0.2,
        threshold: Annotated[float, Field(ge=-1e6, le=1e6)] = 0.5,
    ) -> None:
        self.trunks, self.branches, self.tokens = trunks, branches, tokens
        self.base, self.weight, self.threshold = base, weight, threshold

    def __call__(
        self,
        prompts: Sequence[Any],
        inputs: Sequence[Mapping[str, Any]],
        source_index: Sequence[int],
        trainer: Any,
    ) -> dict[str, Any]:
        group_size = max(source_index, default=-1) + 1
        waiting: dict[int, list[Fork]] = {start: [] for start, number in enumerate(source_index) if number == 0}
        columns: dict[str, dict[int, Any]] = {}
        num_played, num_new = 0, min(self.trunks, group_size)
        while True:
            plan = _plan(waiting, num_played, num_new)
            indices, starts = list(plan), list(plan.values())
            episodes = trainer.play([prompts[i] for i in indices], [inputs[i] for i in indices], starts)
            for name, values in episodes.items():
                columns.setdefault(name, {}).update(zip(indices, values, strict=True))
            num_played += num_new
            if num_played >= group_size:
                return {name: [values[i] for i in range(len(prompts))] for name, values in columns.items()}
            for index, forks in zip(indices, self._forks(trainer, episodes, starts), strict=True):
                waiting[index - source_index[index]] += forks
            num_new = min(max(map(len, waiting.values())) or group_size, group_size - num_played)

    def _forks(self, trainer: Any, played: Mapping[str, Any], starts: Sequence[Fork | None]) -> list[list[Fork]]:
        """Return the branches of each new episode, the highest entropy first; turns that it replayed have none."""
        episodes: list[EpisodeTokens] = played["episode_tokens"]
        _, entropy = trainer.token_statistics(
            [episode.prompt_ids for episode in episodes], [episode.completion_ids or [0] for episode in episodes]
        )
        return [
            self._of_episode(episode, values, fork.turns if fork is not None else 0)
            for episode, values, fork in zip(episodes, entropy.tolist(), starts, strict=True)
        ]

    def _of_episode(self, episode: EpisodeTokens, entropy: Sequence[float], replayed: int) -> list[Fork]:
        turn_entropies = []
        for turn in episode.turns:
            beginning = entropy[turn][: self.tokens]
            turn_entropies.append(sum(beginning) / len(beginning) if beginning else 0.0)
        first_entropy = turn_entropies[0] if turn_entropies else 0.0
        scores = []
        for number in range(replayed + 1, len(turn_entropies)):
            change = (turn_entropies[number] - first_entropy) / first_entropy if first_entropy else 0.0
            scores.append((self.base + self.weight * change, number))
        chosen = sorted((-score, number) for score, number in scores if score > self.threshold)
        return [Fork(episode, number) for _, number in chosen for _ in range(self.branches)]


def _plan(waiting: dict[int, list[Fork]], grown: int, new: int) -> dict[int, Fork | None]:
    """Return the next episodes of all groups: index → its branch, which is removed; None: from the start."""
    plan: dict[int, Fork | None] = {}
    for start, forks in waiting.items():
        for number in range(new):
            plan[start + grown + number] = forks.pop(0) if forks else None
    return plan
