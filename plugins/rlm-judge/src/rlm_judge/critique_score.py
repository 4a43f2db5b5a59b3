"""r: score of a reward model that writes a critique first (CLoud)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PositiveInt

from rlm_judge.learned_reward import LearnedReward
from rlm_plugins.errors import PartError

if TYPE_CHECKING:
    from rlm_plugins.stage import Stage


class CritiqueScore(LearnedReward):
    """r(x, y, c), the score of prompt, completion and a critique c of it, by a model of `critique_reward_model`.

    The critic is the base of the reward model: it gets prompt, completion and `request`, and writes c greedily, up to
    `longest` tokens. Source: CLoud, arXiv 2408.11791; the mean over several sampled critiques is not included. `stage`,
    `path` and `shared` are those of the reward `reward_model`. The critic is one more copy of the base in memory.

    Pitfall: `request` must be that of the training data, or the critic sees an unknown prompt.
    """

    def __init__(
        self,
        *,
        request: Annotated[str, Field(min_length=1)],
        stage: str | None = None,
        path: str | None = None,
        shared: bool | None = None,
        longest: PositiveInt = 256,
        batch_size: PositiveInt = 64,
    ) -> None:
        super().__init__(stage=stage, path=path, shared=shared, batch_size=batch_size)
        self.request, self.longest = request, longest
        self._critic: Any = None

    def memory_bytes(self, stage: Stage) -> int:
        """Return the bytes beside the policy: those of the reward model, and the critic."""
        from rlm_plugins.models.scratch import skeleton

        critic = sum(x.numel() * x.element_size() for x in skeleton(stage.source.config, None).parameters())
        return super().memory_bytes(stage) + critic

    def setup(self, policy: Any, results: Mapping[str, Path]) -> None:
        """Load the reward model and, once, its base as the critic."""
        super().setup(policy, results)
        if self._critic is None:
            self._load_critic(results[self.stage] if self.stage is not None else Path(str(self.path)), policy.device)

    def _load_critic(self, folder: Path, device: Any) -> None:
        from rlm_judge.reward_files import base_path
        from rlm_plugins.models.pretrained import Checkpoint

        checkpoint = Checkpoint(str(base_path(folder)))
        self._critic = checkpoint.model().to(device).requires_grad_(False).eval(), checkpoint.tokenizer()

    def __call__(self, prompt_messages: Sequence[Any], completion_messages: Sequence[Any]) -> list[float]:
        from rlm_algorithms.auxiliary_part import messages_without_special_tokens

        from rlm_plugins.evaluation.completions import complete

        if self._critic is None:
            raise PartError("requires `setup(policy, results)` first", where="critique_score")
        model, tokenizer = self._critic
        answers = [messages_without_special_tokens(tokenizer, messages) for messages in completion_messages]
        pairs = zip(prompt_messages, answers, strict=True)
        requests = [[*prompt, *answer, {"role": "user", "content": self.request}] for prompt, answer in pairs]
        critiques: list[str] = []
        for first in range(0, len(requests), self.batch_size):
            examples = [{"prompt": messages} for messages in requests[first : first + self.batch_size]]
            critiques += complete(model, tokenizer, examples, self.longest, {}).texts
        written = [{"role": "assistant", "content": critique} for critique in critiques]
        critiqued = [[*messages, critique] for messages, critique in zip(requests, written, strict=True)]
        return super().__call__(prompt_messages, critiqued)
