"""An adapter beside the policy's, on the policy's own frozen base: one more model for the memory of a few layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from rlm_plugins.errors import RlmError

FILE = "adapter_model.safetensors"


class Adapter:
    """An adapter that takes the place of the policy's while it reads: a critic's, which learns, or a reward model's.

    Args:
        policy: A PEFT model. Its list of adapters does not name this one: PEFT saves and loads all it lists.
        name: What the layers call it; unlike those that are there.
        config: A ``peft.LoraConfig``.
        learns: Whether its weights are trained.
    """

    def __init__(self, policy: Any, name: str, config: Any, *, learns: bool) -> None:
        self.base, self._name, self._learns = policy.get_base_model(), name, learns
        self._usual = policy.active_adapters
        policy.add_adapter(name, config)
        self.config = policy.peft_config.pop(name)
        self._switch(self._usual)

    def _switch(self, adapters: Any, learns: bool = True) -> None:
        from peft.tuners.tuners_utils import set_adapter

        set_adapter(self.base, adapters, inference_mode=not learns)

    @contextmanager
    def active(self) -> Iterator[None]:
        """While it lasts this adapter stands where the policy's does; where it never learns, at rest."""
        self._switch(self._name, self._learns)
        try:
            with nullcontext() if self._learns else evaluation_mode(self.base):
                yield
        finally:
            self._switch(self._usual)

    def weights(self) -> dict[str, torch.Tensor]:
        """Its weights, as the base calls them."""
        return {name: x for name, x in self.base.named_parameters() if f".{self._name}." in name}

    def in_file(self, name: str) -> str:
        """As PEFT calls a weight of it in a file."""
        return "base_model.model." + name.replace(f".{self._name}.", ".")

    def parameters(self) -> list[torch.Tensor]:
        """Its weights."""
        return list(self.weights().values())

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Its weights, as a file calls them."""
        return {self.in_file(name): x.detach().cpu() for name, x in self.weights().items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Takes over weights from a file, or from another adapter like it.

        Raises:
            RlmError: They do not fit the policy's base.
        """
        mine = {self.in_file(name): x for name, x in self.weights().items()}
        odd = sorted(set(mine) ^ set(state)) + [n for n in mine if n in state and mine[n].shape != state[n].shape]
        if odd:
            raise RlmError(f"the adapter is not one of this base: they do not agree on '{odd[0]}'", where=self._name)
        with torch.no_grad():
            for name, x in mine.items():
                x.copy_(state[name])


def load_adapter(policy: Any, name: str, folder: Path) -> Adapter:
    """The adapter that PEFT has saved in a folder; it never trains, and making it draws no random number.

    Raises:
        RlmError: It does not fit the policy's base.
    """
    from peft import LoraConfig
    from safetensors.torch import load_file

    config = LoraConfig.from_pretrained(folder)
    config.task_type, config.modules_to_save, config.inference_mode = "CAUSAL_LM", None, True
    found = new_adapter(policy, name, config, learns=False)
    saved = {name: x for name, x in load_file(folder / FILE).items() if ".lora_" in name}
    try:
        found.load_state_dict(saved)
    except RlmError as error:
        raise RlmError(error.problem, where=str(folder)) from None
    return found


def new_adapter(policy: Any, name: str, config: Any, *, learns: bool, seed: int = 0) -> Adapter:
    """A new adapter, drawn at random by `seed` alone: the run's own random numbers stay where they are."""
    here = [x.device for x in policy.parameters() if x.is_cuda]
    with torch.random.fork_rng(devices=sorted({x.index for x in here})):
        torch.manual_seed(seed)
        return Adapter(policy, name, config, learns=learns)


def without_auxiliary(policy: Any, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """`weights` without those of adapters that the policy's list does not name: a critic's, a guest's."""
    names = {f".{name}." for module in policy.modules() for name in getattr(module, "lora_A", ())}
    names -= {f".{name}." for name in policy.peft_config}
    return {key: x for key, x in weights.items() if not any(name in key for name in names)}


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """While it lasts, `model` is in evaluation mode and learns nothing."""
    was = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in was:
            module.training = training
