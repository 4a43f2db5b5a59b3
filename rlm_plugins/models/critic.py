"""The critic: a value head on the hidden state before each token, which predicts the return.

V(t) = h · w + b, with h the trunk's hidden state at the last token before t: a function of the prompt and of the
tokens before t. The head starts at zero, so the values of a new critic are 0.

Three trunks. `SharedCritic`: the policy's frozen base with a second LoRA adapter, so that the base
is in memory once. `HeadCritic`: the policy itself, without gradient into it. `SeparateCritic`: a copy of the model
that the policy starts from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int

from rlm_plugins.errors import RlmError
from rlm_plugins.models.adapters import FILE, Adapter

HEAD = "value_head.safetensors"


class Critic:
    """A value head on a trunk.

    Args:
        trunk: (B, T) token ids → hidden states; a transformer without its language head.
        width: Size of a hidden state.
        device: Device of the head, which is float32 for any trunk.
    """

    def __init__(self, trunk: Any, width: int, device: Any) -> None:
        self.trunk = trunk
        self.head = torch.nn.Linear(width, 1, device=device, dtype=torch.float32)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    def trunk_weights(self) -> dict[str, torch.Tensor]:
        """Return the trained parameters beside the head, by name."""
        return {}

    def parameters(self) -> list[torch.Tensor]:
        """Return all trained parameters; the policy's optimizer has none of them."""
        return [*self.trunk_weights().values(), *self.head.parameters()]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make the trunk the critic's for forward and backward passes in this context."""
        yield

    def capture_hidden(self) -> Any:
        """Return a context that yields the hidden states of the policy's passes; None if this critic has its own."""
        return nullcontext()

    def values(
        self, ids: Int[torch.Tensor, "B P"], attention_mask: Int[torch.Tensor, "B P"], width: int
    ) -> torch.Tensor:
        """Return the value before each of the last `width` tokens, (B, width).

        Args:
            ids: Prompts, padded on the left, and completions, padded on the right.
            attention_mask: 0 at padding.
            width: Width of the completions.
        """
        with self.active():
            hidden = self.trunk(input_ids=ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        return self.values_of(hidden[:, -width - 1 : -1])

    def values_of(self, hidden: Float[torch.Tensor, "*rows H"]) -> Float[torch.Tensor, "*rows"]:
        """Return the values of hidden states."""
        with torch.autocast(hidden.device.type, enabled=False):
            values: torch.Tensor = self.head(hidden.float()).squeeze(-1)
        return values

    def backward(self, values: Float[torch.Tensor, "B T"], gradient: Float[torch.Tensor, "B T"]) -> None:
        """Accumulate gradients, given the gradient of the loss with respect to `values`."""
        with self.active():
            torch.autograd.backward(values, gradient)

    def state_dict(self) -> dict[str, dict[str, torch.Tensor]]:
        return {
            "body": {name: x.detach().cpu() for name, x in self.trunk_weights().items()},
            "head": self.head.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore head and trunk."""
        if "head" not in state:
            raise RlmError("the saved critic has no value head", where="critic")
        weights, saved = self.trunk_weights(), state["body"]
        if mismatched := set(weights) ^ set(saved):
            problem = f"the saved critic does not fit: '{min(mismatched)}' is only in one of the two"
            raise RlmError(problem, where="critic")
        self.head.load_state_dict(state["head"])
        with torch.no_grad():
            for name, x in weights.items():
                x.copy_(saved[name])

    def save(self, folder: Path) -> None:
        """Save the head and, by `_save_trunk`, the trunk to files."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: x.detach().cpu().contiguous() for name, x in self.head.state_dict().items()}, folder / HEAD)
        self._save_trunk(folder)

    def _save_trunk(self, folder: Path) -> None:
        """Save nothing: this trunk has no parameters of its own."""

    def load(self, folder: Path) -> None:
        """Load the files of `save`."""
        from safetensors.torch import load_file

        if not (folder / HEAD).exists():
            raise RlmError("no value head in this folder", where=str(folder / HEAD))
        self.load_state_dict({"head": load_file(folder / HEAD), "body": self._load_trunk(folder)})

    def _load_trunk(self, folder: Path) -> dict[str, torch.Tensor]:
        return {}


class HeadCritic(Critic):
    """A value head on the hidden states of the policy's own passes, without gradient into the policy."""

    def values_of(self, hidden: Float[torch.Tensor, "*rows H"]) -> Float[torch.Tensor, "*rows"]:
        """Return the values of hidden states, without gradient into them."""
        return super().values_of(hidden.detach())

    @contextmanager
    def capture_hidden(self) -> Iterator[list[torch.Tensor]]:
        """Yield a list that collects the hidden states of every forward pass of the policy."""
        captured: list[torch.Tensor] = []
        hook = self.trunk.register_forward_hook(lambda *call: captured.append(call[2].last_hidden_state.detach()))
        try:
            yield captured
        finally:
            hook.remove()


class SeparateCritic(Critic):
    """A separate model, all weights of which are trained in float32."""

    def __init__(self, trunk: Any, width: int, device: Any) -> None:
        super().__init__(trunk.to(device=device, dtype=torch.float32).requires_grad_(True), width, device)

    def trunk_weights(self) -> dict[str, torch.Tensor]:
        """Return all weights of the trunk."""
        return dict(self.trunk.named_parameters())

    def _save_trunk(self, folder: Path) -> None:
        self.trunk.save_pretrained(folder)

    def _load_trunk(self, folder: Path) -> dict[str, torch.Tensor]:
        saved = type(self.trunk).from_pretrained(folder)
        return dict(saved.named_parameters())


ADAPTER = "critic"


class SharedCritic(Critic):
    """A critic with its own LoRA adapter on the policy's frozen base."""

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
