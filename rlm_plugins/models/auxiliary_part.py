"""A part that owns an auxiliary language model on the policy's frozen base."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import PartError, RecipeError

if TYPE_CHECKING:
    from rlm_plugins.models.auxiliary_lm import AuxiliaryLM


def check_frozen_base(name: str, lora: Mapping[str, Any] | None) -> None:
    """Check that the base of the policy stays frozen.

    Args:
        name: Name of the part in a recipe.
        lora: `model.lora` of the stage; None: all weights are trained.

    Raises:
        RecipeError: All weights are trained.
    """
    if lora is None:
        problem = f"`{name}` requires a frozen base, and all weights of this policy are trained"
        raise RecipeError(problem, hint="train an adapter: `model: {lora: {r: 16}}`")


class AuxiliaryPart:
    """The members of such a part that do not depend on its formula: its check, its setup and its checkpoint state.

    Args:
        name: Name of the part in a recipe, of the adapter, and of the model in errors.
        settings: The keyword arguments of :class:`~rlm_plugins.models.auxiliary_lm.AuxiliaryLM`.
    """

    def __init__(self, name: str, **settings: Any) -> None:
        self._name, self._settings = name, settings
        self._model: AuxiliaryLM | None = None

    def check(self, lora: Mapping[str, Any] | None) -> None:
        """Check that the base stays frozen."""
        check_frozen_base(self._name, lora)

    def setup(self, policy: Any, results: Mapping[str, Path]) -> None:
        """Create the model as an adapter beside the policy's."""
        from rlm_plugins.models.auxiliary_lm import AuxiliaryLM

        self._model = AuxiliaryLM(policy, self._name, **self._settings)

    @property
    def model(self) -> AuxiliaryLM:
        """The auxiliary model.

        Raises:
            PartError: There is no policy yet.
        """
        if self._model is None:
            hint = "use it in a stage that trains"
            raise PartError("requires a policy, and none was set up", where=self._name, hint=hint)
        return self._model

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the model and its optimizer; empty before `setup`."""
        return {} if self._model is None else self._model.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of the model and its optimizer."""
        if state:
            self.model.load_state_dict(state)
