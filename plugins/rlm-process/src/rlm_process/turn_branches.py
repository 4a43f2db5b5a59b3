"""Rollout source of episodes that branch after tool calls, where the next turn began uncertainly (ARPO)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, PositiveInt

from rlm_plugins.rollout.episode_tokens import EpisodeTokens, Fork


class TurnBranches:
    """Episodes of a group branch after observations, if the turn that follows begins more uncertainly than the first.

    The first `trunks` episodes of a group are played from the start. Then, in rounds, episodes branch before a turn u
    with P > τ, until the group is full: P = α + β · ΔH, ΔH = (Hᵤ − H₀) / H₀. Hᵤ is the mean entropy of the first
    `tokens` tokens of turn u, and H₀ of the first turn. ARPO, arXiv 2507.19849 §3.1; α is `base`, β `weight`, τ
    `threshold`. A branch replays the turns before u and goes on by itself. Turns with the largest P come first, each
    with `branches` branches, the paper's Z. What is left of the group is played from the start.

    The paper decides during the first episodes, and its code at random with probability P; here it is decided once
    they have ended, and without chance. ΔH is relative to H₀ here. The paper sums Hᵤ − H₀ over the tokens and divides
    by the vocabulary size V; its code divides by log V and has the 10 largest log-probs only. A branch branches again
    at later turns only. Turns of a branch that it replays are trained on again; the advantage `tree` weights for that.
    Where H₀ is 0, ΔH is 0.
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
        """Return the episodes of each group."""
        size = max(source_index, default=-1) + 1
        waiting: dict[int, list[Fork]] = {start: [] for start, number in enumerate(source_index) if number == 0}
        columns: dict[str, dict[int, Any]] = {}
        grown, new = 0, min(self.trunks, size)
        while True:
            plan = _plan(waiting, grown, new)
            rows, starts = list(plan), list(plan.values())
            played = trainer.play([prompts[i] for i in rows], [inputs[i] for i in rows], starts)
            for name, values in played.items():
                columns.setdefault(name, {}).update(zip(rows, values, strict=True))
            grown += new
            if grown >= size:
                return {name: [values[i] for i in range(len(prompts))] for name, values in columns.items()}
            for row, forks in zip(rows, self._forks(trainer, played, starts), strict=True):
                waiting[row - source_index[row]] += forks
            new = min(max(map(len, waiting.values())) or size, size - grown)

    def _forks(self, trainer: Any, played: Mapping[str, Any], starts: Sequence[Fork | None]) -> list[list[Fork]]:
        """Return the branches of each new episode, the most uncertain first; turns that it replayed have none."""
        episodes: list[EpisodeTokens] = played["episode_tokens"]
        _, entropy = trainer.token_statistics(
            [episode.prompt_ids for episode in episodes], [episode.completion_ids or [0] for episode in episodes]
        )
        return [
            self._of_episode(episode, values, fork.turns if fork is not None else 0)
            for episode, values, fork in zip(episodes, entropy.tolist(), starts, strict=True)
        ]

    def _of_episode(self, episode: EpisodeTokens, entropy: Sequence[float], replayed: int) -> list[Fork]:
        uncertain = []
        for turn in episode.turns:
            beginning = entropy[turn][: self.tokens]
            uncertain.append(sum(beginning) / len(beginning) if beginning else 0.0)
        scores = []
        for number in range(replayed + 1, len(uncertain)):
            change = (uncertain[number] - uncertain[0]) / uncertain[0] if uncertain[0] else 0.0
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
