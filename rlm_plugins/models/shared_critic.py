"""A critic on the policy's own frozen base, under an adapter of its own: policy, reference and critic in one memory."""

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
    """The policy's frozen base under an adapter of the critic's own.

    Args:
        policy: A PEFT model.
        lora: Fields of ``peft.LoraConfig``.
        device: As above.
    """

    def __init__(self, policy: Any, lora: Mapping[str, Any], device: Any) -> None:
        from peft import LoraConfig

        base = policy.get_base_model()
        super().__init__(base.base_model, base.config.get_text_config().hidden_size, device)
        self._adapter = Adapter(policy, ADAPTER, LoraConfig(**{"task_type": "CAUSAL_LM", **lora}), learns=True)

    @contextmanager
    def active(self) -> Iterator[None]:
        """While it lasts the critic's adapter stands where the policy's does."""
        with self._adapter.active():
            yield

    def trunk_weights(self) -> dict[str, torch.Tensor]:
        """The adapter."""
        return self._adapter.weights()

    def _save_body(self, folder: Path) -> None:
        from safetensors.torch import save_file

        self._adapter.config.save_pretrained(folder)
        save_file(
            {self._adapter.in_file(name): x.detach().cpu() for name, x in self.trunk_weights().items()}, folder / FILE
        )

    def _load_body(self, folder: Path) -> dict[str, torch.Tensor]:
        from safetensors.torch import load_file

        saved = load_file(folder / FILE)
        names = {name: self._adapter.in_file(name) for name in self.trunk_weights()}
        return {name: saved[key] for name, key in names.items() if key in saved}
