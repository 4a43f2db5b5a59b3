"""How the policy comes to be its own judge: a callback lends it while a stage trains (hook ``rlm_callbacks``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import TrainerCallback


@dataclass(frozen=True)
class Lent:
    """A model and its tokenizer.

    Args:
        model: A causal language model, perhaps with adapters.
        tokenizer: Its tokenizer.
    """

    model: Any
    tokenizer: Any


_policies: list[Lent] = []


def current() -> Lent | None:
    """The policy that is being trained; None while nobody has lent it."""
    return _policies[-1] if _policies else None


def lend_policy() -> TrainerCallback:
    """Lends the policy, while a stage trains, to rewards whose judge is ``{policy: base}`` or ``{policy: current}``."""
    from transformers import TrainerCallback

    class LendPolicy(TrainerCallback):  # type: ignore[misc]
        """From the first step to the last."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            _policies[:] = [Lent(kwargs["model"], kwargs["processing_class"])]

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            _policies.clear()

    _policies.clear()  # that of a stage that ended in an error
    return LendPolicy()
