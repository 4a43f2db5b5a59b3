"""A critic as an additional adapter on the policy's frozen base: policy, reference and critic share its memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rlm_plugins.models.adapters import FILE, Adapter
from rlm_plugins.models.critic import Critic

ADAPTER = "critic"


class SharedCritic(Critic):
    """A critic with its own LoRA adapter on the policy's frozen base.

    Args:
        policy: A PEFT model.
        lora: Fields of ``peft.LoraConfig``.
        device: Device of the value head.
    """

    def __init__(self, policy: Any, lora: Mapping[str, Any], device: Any) -> None:
        from peft import LoraConfig

        base = policy.get_base_model()
        super().__init__(base.base_model, base.config.get_text_config().hidden_size, device)
        self._adapter = Adapter(policy, ADAPTER, LoraConfig(**{"task_type": "CAUSAL_LM", **lora}), trainable=True)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Activate the critic's adapter instead of the policy's."""
        with self._adapter.active():
            yield

    def trunk_weights(self) -> dict[str, torch.Tensor]:
        """Return the weights of the adapter."""
        return self._adapter.weights()

    def _save_trunk(self, folder: Path) -> None:
        from safetensors.torch import save_file

        self._adapter.config.save_pretrained(folder)
        save_file(
            {self._adapter.file_key(name): x.detach().cpu() for name, x in self.trunk_weights().items()}, folder / FILE
        )

    def _load_trunk(self, folder: Path) -> dict[str, torch.Tensor]:
        from safetensors.torch import load_file

        saved = load_file(folder / FILE)
        names = {name: self._adapter.file_key(name) for name in self.trunk_weights()}
        return {name: saved[key] for name, key in names.items() if key in saved}
