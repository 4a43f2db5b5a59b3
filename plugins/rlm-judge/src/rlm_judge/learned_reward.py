"""Scores of a trained reward model, also of one that writes a critique first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PositiveInt

from rlm_plugins.data import tables
from rlm_plugins.equation.knobs import Count
from rlm_plugins.errors import PartError, RecipeError, RlmError
from rlm_plugins.recipe.trainer_settings import LORA, kind_of

if TYPE_CHECKING:
    from rlm_judge.reward_files import RewardModel
    from rlm_plugins.stage import Stage


class LearnedReward:
    """r(x, y), the score of a reward model for prompt and completion, from the hidden state of the last token.

    The model: `stage`, an earlier stage of this recipe with ``algorithm: reward_model``; or `path`, the output folder
    of such a stage, or any model for sequence classification with one label (folder or hub name).

    `shared`: true runs it on the policy's frozen base, as an additional adapter; false on a base of its own; null
    shares the base if it was trained on the same one (weight by weight), as after a `stage`. It is not trained, has no
    dropout, uses no RNG, and does not change the policy's weights. A truncated completion is scored as if it had ended.
    `batch_size` is the number of sequences per forward pass.

    Pitfall: the score is valid near the pairs of its training. A policy that moves away from them finds completions
    with a high score and low quality (reward over-optimization): keep a KL to the model they came from (`ppo` does),
    and log the true score with ``weight: 0`` if available (`recipes/pipelines/over_optimisation.yaml`).
    """

    produces = "reward_model"
    """The output that the trainer of `stage` must produce."""

    def __init__(
        self, *, stage: str | None = None, path: str | None = None, shared: bool | None = None, batch_size: Count = 64
    ) -> None:
        if (stage is None) == (path is None):
            raise RecipeError("requires either `stage`, an earlier stage of the recipe, or `path`, a folder")
        self.stage, self.path, self.shared, self.batch_size = stage, path, shared, batch_size
        self._policy: Any = None
        self._model: RewardModel | None = None

    def check(self) -> None:
        """Check that the folder or hub name is a reward model.

        Raises:
            RecipeError: It is not, or it has no head.
        """
        if self.path is None:
            return
        from rlm_judge import reward_files

        try:
            reward_files.check_files(tables.locate(self.path, where="path") or self.path)
        except RecipeError:
            raise
        except RlmError as error:
            raise RecipeError(f"{error.where}: {error.problem}", where="path", hint=error.hint) from None

    def memory_bytes(self, stage: Stage) -> int:
        """Return the bytes beside the policy: adapter, head, and its own base if any; 0 for the base of a hub name."""
        from rlm_judge import reward_files

        lora = None if self.stage is None else stage.place.earlier[self.stage]
        folder = None if self.path is None else Path(self.path).expanduser()
        shares = self.shared is not False and stage.lora is not None and kind_of(stage.lora) == LORA
        return reward_files.memory_bytes(stage.source.config, lora if folder is None else folder, shares=shares)

    def setup(self, policy: Any, results: Mapping[str, Path]) -> None:
        """Load the reward model, once for each policy.

        Args:
            policy: The model that is trained or evaluated.
            results: Name of an earlier stage → its output folder.

        Raises:
            RlmError: The model is missing, has no head, or was to share a base that it was not trained on.
        """
        from rlm_judge import reward_files

        if self._model is not None and self._policy is policy:
            return
        if self.stage is not None and self.stage not in results:
            raise RlmError(f"the stage '{self.stage}' has not been trained", where="reward_model.stage")
        source = results[self.stage] if self.stage is not None else self.path
        self._model, self._policy = None, policy
        if self.shared is not False:
            self._model = reward_files.load_on_policy_base(Path(str(source)), policy)
        if self._model is None and self.shared:
            problem = "its adapter was trained on another base than the policy's, or the policy's base is not frozen"
            hint = "`shared: false` loads it with its own base; a frozen base requires `model: {lora: …}`"
            raise RlmError(problem, where=str(source), hint=hint)
        if self._model is None:
            self._model = reward_files.load_with_own_base(str(source), policy.device)

    def __call__(self, prompt_messages: Sequence[Any], completion_messages: Sequence[Any]) -> list[float]:
        from rlm_judge.reward_files import conversation_ids

        if self._model is None and self.path is not None:
            from rlm_judge import reward_files
            from rlm_plugins.workers.distributed import processes

            self._model = reward_files.load_with_own_base(self.path, processes().device)
        if self._model is None:
            raise PartError(
                "a reward model of a `stage` requires `setup(policy, results)` first", hint="give it a `path`"
            )
        tokenizer = self._model.tokenizer
        pairs = zip(prompt_messages, completion_messages, strict=True)
        return self._model.scores([conversation_ids(tokenizer, *pair) for pair in pairs], self.batch_size)


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
