"""Token ids of an episode, and which of them the policy generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
    def turns(self) -> list[slice]:
        """Position of each turn of the policy in the completion; an empty turn has none."""
        ends, starts = [end + 1 for end in self.episode.turn_ends], list[int]()
        for end in ends:
            start = end
            while start and self.mask[start - 1] and start - 1 not in self.episode.turn_ends[: len(starts)]:
                start -= 1
            starts.append(start)
        return [slice(start, end) for start, end in zip(starts, ends, strict=True)]

    @property
    def generated_ids(self) -> list[int]:
        """Tokens that the policy generated."""
        return [token for token, generated in zip(self.completion_ids, self.mask, strict=True) if generated]

    def append(self, ids: Sequence[int], generated: bool, logprobs: Sequence[float] | None) -> None:
        """Append tokens; once log-probs are missing, the episode has none."""
        self.completion_ids += ids
        self.mask += [generated] * len(ids)
        self.logprobs = None if logprobs is None or self.logprobs is None else [*self.logprobs, *logprobs]


class Fork(NamedTuple):
    """Beginning of an episode: the first turns of another one, replayed.

    Args:
        parent: The other episode, of the same example.
        turns: How many of its turns are taken as they are.
    """

    parent: EpisodeTokens
    turns: int
