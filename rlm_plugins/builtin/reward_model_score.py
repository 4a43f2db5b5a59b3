"""The reward that was learned: what a reward model says of an answer. (Offered by `rewards`.)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from rlm_plugins.data import hub
from rlm_plugins.errors import PartError, RecipeError, RlmError

if TYPE_CHECKING:
    from rlm_plugins.models.reward_model import RewardModel
    from rlm_plugins.stage import Stage

Count = Annotated[int, Field(ge=1)]


class LearnedReward:
    """r(x, y), the score of a reward model for question and answer, read off the hidden state of the last token.

    Where it comes from: `stage`, an earlier stage of this recipe with ``algorithm: reward_model``; or `path`, the
    folder such a stage has left, or any model for sequence classification with one label (folder or hub name).

    `shared`: true reads it with the policy's own frozen base, as one more adapter; false with a base of its own; null
    shares where it was trained on the same base (weight by weight), which is so after a `stage`. It learns nothing,
    has no dropout, draws no random number, and leaves the policy's weights as they are. An answer that was cut reads as
    if it had ended. `batch_size` is how many are read at once.

    Pitfall: the score is what raters like as far as the pairs of its training show it. A policy that gets far from the
    answers in these pairs finds what scores high and is not liked: keep a KL to the model they came from (`ppo` does),
    and log the true score beside it with ``weight: 0`` where there is one (`recipes/pipelines/over_optimisation.yaml`).
    """

    produces = "reward_model"
    """What the engine of `stage` must leave."""

    def __init__(
        self, *, stage: str | None = None, path: str | None = None, shared: bool | None = None, batch_size: Count = 64
    ) -> None:
        if (stage is None) == (path is None):
            raise RecipeError("say `stage`, an earlier stage of the recipe, or `path`, a folder: one of them")
        self.stage, self.path, self.shared, self.batch_size = stage, path, shared, batch_size
        self._policy: Any = None
        self._model: RewardModel | None = None

    def check(self) -> None:
        """Whether there is a reward model in the folder, or a model of that name on the hub.

        Raises:
            RecipeError: There is none, or one without a head.
        """
        if self.path is None:
            return
        from rlm_plugins.models import reward_model_io as reward_files

        try:
            reward_files.check_files(hub.locate(self.path, where="path") or self.path)
        except RecipeError:
            raise
        except RlmError as error:
            raise RecipeError(f"{error.where}: {error.problem}", where="path", hint=error.hint) from None

    def memory_bytes(self, stage: Stage) -> int:
        """Bytes beside the policy: adapter and head, and a base where it has its own; of a hub name nobody can tell."""
        from rlm_plugins.models import reward_model_io as reward_files

        lora = None if self.stage is None else stage.earlier[self.stage]
        folder = None if self.path is None else Path(self.path).expanduser()
        shares = self.shared is not False and stage.lora is not None
        return reward_files.memory_bytes(stage.source.config, lora if folder is None else folder, shares=shares)

    def setup(self, policy: Any, results: Mapping[str, Path]) -> None:
        """Finds the reward model, once for each policy.

        Args:
            policy: The model that is trained or judged.
            results: Name of an earlier stage → where its result lies.

        Raises:
            RlmError: It is not there, has no head, or is to share a base that is not its own.
        """
        from rlm_plugins.models import reward_model_io as reward_files

        if self._model is not None and self._policy is policy:
            return
        if self.stage is not None and self.stage not in results:
            raise RlmError(f"the stage '{self.stage}' has not been trained", where="reward_model.stage")
        found = results[self.stage] if self.stage is not None else self.path
        self._model, self._policy = None, policy
        if self.shared is not False:
            self._model = reward_files.load_on_policy_base(Path(str(found)), policy)
        if self._model is None and self.shared:
            problem = "its adapter was trained on another base than the policy's, or the policy's base is not frozen"
            hint = "`shared: false` reads it with its own base; a frozen base needs `model: {lora: …}`"
            raise RlmError(problem, where=str(found), hint=hint)
        if self._model is None:
            self._model = reward_files.load_with_own_base(str(found), policy.device)

    def __call__(self, prompt_messages: Sequence[Any], completion_messages: Sequence[Any]) -> list[float]:
        from rlm_plugins.models.reward_model import conversation_ids

        if self._model is None and self.path is not None:
            from rlm_plugins.distributed import processes
            from rlm_plugins.models import reward_model_io as reward_files

            self._model = reward_files.load_with_own_base(self.path, processes().device)
        if self._model is None:
            raise PartError("has not met the policy whose stages it comes from", hint="give it a `path`")
        tokenizer = self._model.tokenizer
        asked = zip(prompt_messages, completion_messages, strict=True)
        return self._model.scores([conversation_ids(tokenizer, *both) for both in asked], self.batch_size)
