"""A critic on the policy's own frozen base, under an adapter of its own: policy, reference and critic in one memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rlm_plugins.critic import Critic

ADAPTER = "critic"
_FILE = "adapter_model.safetensors"


class SharedCritic(Critic):
    """The policy's frozen base under an adapter of the critic's own.

    Args:
        policy: A PEFT model. Its list of adapters does not name the second: its files are not to hold it.
        lora: Fields of ``peft.LoraConfig``.
        device: As above.
    """

    def __init__(self, policy: Any, lora: Mapping[str, Any], device: Any) -> None:
        from peft import LoraConfig

        self._base, self._usual = policy.get_base_model(), policy.active_adapters
        super().__init__(self._base.base_model, self._base.config.get_text_config().hidden_size, device)
        policy.add_adapter(ADAPTER, LoraConfig(**{"task_type": "CAUSAL_LM", **lora}))
        self._config = policy.peft_config.pop(ADAPTER)  # PEFT saves and loads all it lists with the policy
        self._switch(self._usual)

    def _switch(self, adapters: Any) -> None:
        from peft.tuners.tuners_utils import set_adapter

        set_adapter(self._base, adapters)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While it lasts the critic's adapter stands where the policy's does."""
        self._switch(ADAPTER)
        try:
            yield
        finally:
            self._switch(self._usual)

    def body(self) -> dict[str, torch.Tensor]:
        """The adapter."""
        return {name: x for name, x in self._base.named_parameters() if f".{ADAPTER}." in name}

    def _save_body(self, folder: Path) -> None:
        from safetensors.torch import save_file

        self._config.save_pretrained(folder)
        save_file({_peft_name(name): x.detach().cpu() for name, x in self.body().items()}, folder / _FILE)

    def _load_body(self, folder: Path) -> dict[str, torch.Tensor]:
        from safetensors.torch import load_file

        saved = load_file(folder / _FILE)
        return {name: saved[_peft_name(name)] for name in self.body() if _peft_name(name) in saved}


def _peft_name(name: str) -> str:
    """As PEFT calls a weight in a file."""
    return "base_model.model." + name.replace(f".{ADAPTER}.", ".")
