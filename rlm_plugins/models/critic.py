"""The critic: a value head on the hidden state before each token, which predicts the return.

V(t) = h · w + b, with h the trunk's hidden state at the last token before t: a function of the prompt and of the
tokens before t. The head starts at zero, so the values of a new critic are 0.

Three trunks. `SharedCritic`: the policy's frozen base with a second LoRA adapter, so that the base
is in memory once. `HeadCritic`: the policy itself, without gradient into it. `SeparateCritic`: a copy of the model
that the policy starts from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file, save_file

from rlm_plugins.equation.knobs import Schedule, value_at
from rlm_plugins.equation.step import check_number, check_weights, max_abs
from rlm_plugins.errors import RlmError
from rlm_plugins.lazy import peft
from rlm_plugins.models.adapters import FILE, Adapter
from rlm_plugins.workers.distributed import processes

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
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: x.detach().cpu().contiguous() for name, x in self.head.state_dict().items()}, folder / HEAD)
        self._save_trunk(folder)

    def _save_trunk(self, folder: Path) -> None:
        """Save nothing: this trunk has no parameters of its own."""

    def load(self, folder: Path) -> None:
        """Load the files of `save`."""
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
        base = policy.get_base_model()
        super().__init__(base.base_model, base.config.get_text_config().hidden_size, device)
        self._adapter = Adapter(policy, ADAPTER, peft.LoraConfig(**{"task_type": "CAUSAL_LM", **lora}), trainable=True)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Activate the critic's adapter instead of the policy's."""
        with self._adapter.active():
            yield

    def trunk_weights(self) -> dict[str, torch.Tensor]:
        """Return the weights of the adapter."""
        return self._adapter.weights()

    def _save_trunk(self, folder: Path) -> None:
        self._adapter.config.save_pretrained(folder)
        save_file(self._adapter.state_dict(), folder / FILE)

    def _load_trunk(self, folder: Path) -> dict[str, torch.Tensor]:
        saved = load_file(folder / FILE)
        names = {name: self._adapter.file_key(name) for name in self.trunk_weights()}
        return {name: saved[key] for name, key in names.items() if key in saved}


Mean = Callable[[torch.Tensor], torch.Tensor]
"""Mean of a tensor over the ranks."""


class Trainable(Protocol):
    """A model with its own optimizer: a critic or an auxiliary language model."""

    def parameters(self) -> list[torch.Tensor]:
        """Return the trained parameters."""
        ...

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> None: ...


P = TypeVar("P", bound=Trainable)


class AuxiliaryOptimizer(Generic[P]):
    """AdamW without weight decay for the trained parameters of one model.

    Early gradients of such a model are large; clipped together with the policy's, they would scale those down. Its
    learning rate is independent of the policy's schedule. `mean` averages the gradients over the ranks.
    """

    def __init__(
        self,
        model: P,
        *,
        name: str,
        learning_rate: float | Schedule,
        max_grad_norm: float,
        mean: Mean,
        adam: dict[str, Any] | None = None,
    ) -> None:
        self.model, self._name, self._learning_rate, self._mean = model, name, learning_rate, mean
        self._max_grad_norm = max_grad_norm or math.inf
        self._initial_max = max_abs(model.parameters())
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, **(adam or {}))

    def step(self, step: int) -> tuple[float, float]:
        """Take an optimizer step; return ‖gradient‖₂ before clipping, and the learning rate."""
        weights, rate = self.model.parameters(), float(value_at(self._learning_rate, step))
        self._average_gradients(weights)
        norm = torch.nn.utils.clip_grad_norm_(weights, self._max_grad_norm).item()
        check_number(norm, f"the norm of the gradient of the {self._name}", step)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        check_weights(weights, self._initial_max, f"the {self._name}", step)
        self._optimizer.zero_grad(set_to_none=True)  # before the trainer measures the policy's gradient
        return norm, rate

    def _average_gradients(self, weights: list[torch.Tensor]) -> None:
        """Average the gradients over the ranks; DDP does not handle these weights."""
        if processes().num_processes == 1:
            return  # saves the concatenation, which is as large as the model
        with_grad = [x for x in weights if x.grad is not None]
        if not with_grad:
            return
        gradients = self._mean(torch.cat([x.grad.flatten() for x in with_grad if x.grad is not None]))
        for x, gradient in zip(with_grad, gradients.split([x.numel() for x in with_grad]), strict=True):
            x.grad = gradient.view_as(x)

    def state_dict(self) -> dict[str, Any]:
        return {**self.model.state_dict(), "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of model and optimizer."""
        self.model.load_state_dict({name: x for name, x in state.items() if name != "optimizer"})
        if "optimizer" not in state:
            problem = f"the checkpoint has no optimizer state of the {self._name}: training cannot resume exactly"
            raise RlmError(problem, where=self._name)
        self._optimizer.load_state_dict(state["optimizer"])
