"""A part that owns auxiliary language models on the policy's frozen base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import PartError, RecipeError

if TYPE_CHECKING:
    from rlm_plugins.models.auxiliary_lm import AuxiliaryLM
    from rlm_plugins.stage import Stage

COPIES = 3
"""Copies per trained weight: itself and two moments of AdamW; the gradient is freed after each step."""


class AuxiliaryPart:
    """Base class of parts with auxiliary language models: check, setup, memory and checkpoint state.

    Args:
        name: Name of the part in a recipe, of the adapters, and of the models in errors.
        seeds: Seed of the initialization of each model.
        settings: The other keyword arguments of :class:`~rlm_plugins.models.auxiliary_lm.AuxiliaryLM`.
    """

    def __init__(self, name: str, *, seeds: Sequence[int] = (0,), **settings: Any) -> None:
        self._name, self._seeds, self._settings = name, seeds, settings
        self._models: list[AuxiliaryLM] = []

    def check(self, lora: Mapping[str, Any] | None) -> None:
        """Check that the base of the policy stays frozen.

        Args:
            lora: `model.lora` of the stage; None: all weights are trained.

        Raises:
            RecipeError: All weights are trained.
        """
        if lora is None:
            problem = f"`{self._name}` requires a frozen base, and all weights of this policy are trained"
            raise RecipeError(problem, hint="train an adapter: `model: {lora: {r: 16}}`")

    def setup(self, policy: Any, results: Mapping[str, Path]) -> None:
        """Create each model as an adapter beside the policy's."""
        from rlm_plugins.models.auxiliary_lm import AuxiliaryLM

        self._models = [AuxiliaryLM(policy, self._name, seed=seed, **self._settings) for seed in self._seeds]

    def memory_bytes(self, stage: Stage) -> int:
        """Return the bytes of the adapters and their optimizer states; the base is the policy's."""
        from rlm_plugins.models.meta_model import skeleton, trained_bytes

        lora = self._settings.get("lora") or stage.lora
        return COPIES * len(self._seeds) * trained_bytes(skeleton(stage.source.config, lora))

    @property
    def models(self) -> Sequence[AuxiliaryLM]:
        """The auxiliary models.

        Raises:
            PartError: There is no policy yet.
        """
        if not self._models:
            hint = "use it in a stage that trains"
            raise PartError("requires a policy, and none was set up", where=self._name, hint=hint)
        return self._models

    @property
    def model(self) -> AuxiliaryLM:
        """The auxiliary model of a part with one."""
        (model,) = self.models
        return model

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the model and its optimizer; empty before `setup`."""
        return self.model.state_dict() if self._models else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of the model and its optimizer."""
        if state:
            self.model.load_state_dict(state)
