"""An adapter beside the policy's, on the policy's own frozen base: one more model for the memory of a few layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rlm_plugins.errors import RlmError

FILE = "adapter_model.safetensors"


class Guest:
    """Reads with the policy's base under an adapter of its own, and never trains.

    Args:
        policy: A PEFT model. Its list of adapters does not name the guest: its files are not to hold it.
        name: What the layers call the adapter; unlike those that are there.
        folder: Where PEFT has saved it.

    Raises:
        RlmError: The adapter does not fit the policy's base.
    """

    def __init__(self, policy: Any, name: str, folder: Path) -> None:
        from peft import LoraConfig

        self.base, self._name, self._usual = policy.get_base_model(), name, policy.active_adapters
        config = LoraConfig.from_pretrained(folder)
        config.task_type, config.modules_to_save, config.inference_mode = "CAUSAL_LM", None, True
        here = [x.device for x in self.base.parameters() if x.is_cuda]
        with torch.random.fork_rng(devices=sorted({x.index for x in here})):  # new adapters are drawn at random
            policy.add_adapter(name, config)
        del policy.peft_config[name]
        self._take(folder)
        self._switch(self._usual, training=True)

    def _switch(self, adapters: Any, training: bool) -> None:
        from peft.tuners.tuners_utils import set_adapter

        set_adapter(self.base, adapters, inference_mode=not training)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While it lasts the guest's adapter stands where the policy's does, without gradient and dropout."""
        self._switch(self._name, training=False)
        try:
            with at_rest(self.base):
                yield
        finally:
            self._switch(self._usual, training=True)

    def weights(self) -> dict[str, torch.Tensor]:
        """The adapter, by the names of PEFT's files."""
        mine = {name: x for name, x in self.base.named_parameters() if f".{self._name}." in name}
        return {f"base_model.model.{name.replace(f'.{self._name}.', '.')}": x for name, x in mine.items()}

    def _take(self, folder: Path) -> None:
        from safetensors.torch import load_file

        saved = {name: x for name, x in load_file(folder / FILE).items() if ".lora_" in name}
        mine = self.weights()
        odd = sorted(set(mine) ^ set(saved)) + [n for n in mine if n in saved and mine[n].shape != saved[n].shape]
        if odd:
            problem = f"the adapter is not one of this base: they do not agree on '{odd[0]}'"
            raise RlmError(problem, where=str(folder))
        with torch.no_grad():
            for name, x in mine.items():
                x.copy_(saved[name])


def listed(policy: Any, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """`weights` without those of adapters that the policy's list does not name: a critic's, a guest's."""
    names = {f".{name}." for module in policy.modules() for name in getattr(module, "lora_A", ())}
    names -= {f".{name}." for name in policy.peft_config}
    return {key: x for key, x in weights.items() if not any(name in key for name in names)}


@contextmanager
def at_rest(model: Any) -> Iterator[None]:
    """While it lasts, `model` is in evaluation mode and learns nothing."""
    was = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in was:
            module.training = training
