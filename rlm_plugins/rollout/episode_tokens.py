"""Token ids of an episode, and which of them the policy generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rlm_plugins.environment import Episode


@dataclass
class EpisodeTokens:
    """Token ids of an episode.

    Args:
        episode: Its messages and rewards.
        prompt_ids, completion_ids: Token ids; the completion is everything after the prompt.
        mask: Per token of the completion, True if the policy generated it.
        logprobs: Per token of the completion, as reported; 0 on observations.
        ended: True if nothing more is generated.
    """

    episode: Episode
    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] | None = field(default_factory=list)
    ended: bool = False

    @property
    def generated_ids(self) -> list[int]:
        """Tokens that the policy generated."""
        return [token for token, generated in zip(self.completion_ids, self.mask, strict=True) if generated]

    def append(self, ids: Sequence[int], generated: bool, logprobs: Sequence[float] | None) -> None:
        """Append tokens; once log-probs are missing, the episode has none."""
        self.completion_ids += ids
        self.mask += [generated] * len(ids)
        self.logprobs = None if logprobs is None or self.logprobs is None else [*self.logprobs, *logprobs]
