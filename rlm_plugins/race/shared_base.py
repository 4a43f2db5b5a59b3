"""One frozen base for several policies: models with their own modules and the same weight tensors."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from rlm_plugins.specs import ModelSpec


class SharedBase:
    """Base that is loaded once, and a model per policy that shares its weights.

    Adapters are added to the modules, which each policy has for itself, so the policies are independent.
    """

    def __init__(self) -> None:
        self._model: Any = None

    def source(self, source: ModelSpec) -> ModelSpec:
        """Return the source of a policy on the shared base.

        Args:
            source: The source of the base; the first one is loaded.
        """

        def load() -> Any:
            if self._model is None:
                self._model = source.load().requires_grad_(False)
            return with_shared_weights(self._model)

        return replace(source, load=load)


def with_shared_weights(model: Any) -> Any:
    """Return a copy of a model whose parameters are those of the model itself.

    >>> import torch
    >>> first = torch.nn.Linear(2, 2)
    >>> second = with_shared_weights(first)
    >>> second is first, second.weight is first.weight
    (False, True)
    """
    return copy.deepcopy(model, {id(x): x for x in model.parameters()})
