"""The score of a trained reward model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
