"""The critic: how much reward is still to come, read off the hidden state before each token.

V(t) = h · w + b, with h the hidden state that the trunk has after every token before t: it has seen the prompt and
what was written so far, not the token it is asked about. The head starts at zero: a new critic expects nothing.

Three trunks. `SharedCritic` (critic_adapter.py): the policy's own frozen base under a second LoRA adapter, so that the
base is in memory once. `HeadCritic`: the policy itself, whose hidden states it reads and never moves.
`SeparateCritic`: a copy of the model the policy starts from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int

from rlm_plugins.errors import RlmError
from rlm_plugins.packing import attention
from rlm_plugins.packing.forward import inputs_of
from rlm_plugins.packing.layout import Layout

HEAD = "value_head.safetensors"


class Critic:
    """A value head on a trunk.

    Args:
        trunk: (B, T) token ids → hidden states; a transformer without its language head.
        width: Size of a hidden state.
        device: Where the head lives; it is kept in float32 whatever the trunk is.
    """

    def __init__(self, trunk: Any, width: int, device: Any) -> None:
        self.trunk = trunk
        self.head = torch.nn.Linear(width, 1, device=device, dtype=torch.float32)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    def trunk_weights(self) -> dict[str, torch.Tensor]:
        """What it trains beside the head, by name."""
        return {}

    def parameters(self) -> list[torch.Tensor]:
        """Everything it trains; nothing of it is trained with the policy."""
        return [*self.trunk_weights().values(), *self.head.parameters()]

    @contextmanager
    def active(self) -> Iterator[None]:
        """While it lasts, the trunk is the critic's; backward passes of the critic belong in here too."""
        yield

    def capture_hidden(self) -> Any:
        """A context that gives the hidden states of the policy's passes, where this critic reads those; else None."""
        return nullcontext()

    def values(self, ids: Int[torch.Tensor, "B P"], there: Int[torch.Tensor, "B P"], tokens: int) -> torch.Tensor:
        """(B, tokens) the value before each of the last `tokens` tokens.

        Args:
            ids: Prompts, padded on the left, and completions, padded on the right.
            there: 1 where a token is no padding.
            tokens: Width of the completions.
        """
        with self.active():
            hidden = self.trunk(input_ids=ids, attention_mask=there, use_cache=False).last_hidden_state
        return self.values_of(hidden[:, -tokens - 1 : -1])

    def packed_values(self, layout: Layout) -> Float[torch.Tensor, "B tokens"]:
        """The same, of rows that are read packed; 0 at padding."""
        attention.install(self.trunk)
        with self.active():
            hidden = self.trunk(**inputs_of(layout)).last_hidden_state
        return layout.padded(self.values_of(hidden[0, layout.read]))

    def values_of(self, hidden: Float[torch.Tensor, "*rows H"]) -> Float[torch.Tensor, "*rows"]:
        """The values of hidden states."""
        with torch.autocast(hidden.device.type, enabled=False):
            found: torch.Tensor = self.head(hidden.float()).squeeze(-1)
        return found

    def backward(self, values: Float[torch.Tensor, "B T"], gradient: Float[torch.Tensor, "B T"]) -> None:
        """Adds to its gradients, given that of the loss with respect to what it said."""
        with self.active():
            torch.autograd.backward(values, gradient)

    # -- memory

    def state_dict(self) -> dict[str, dict[str, torch.Tensor]]:
        return {
            "body": {name: x.detach().cpu() for name, x in self.trunk_weights().items()},
            "head": self.head.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As it was saved.

        Raises:
            RlmError: The value head is missing, or the trunk is another one.
        """
        if "head" not in state:
            raise RlmError("the saved critic has no value head: what it had learned is lost", where="critic")
        mine, saved = self.trunk_weights(), state["body"]
        if odd := set(mine) ^ set(saved):
            raise RlmError(f"the saved critic is another one: '{min(odd)}' is only in one of the two", where="critic")
        self.head.load_state_dict(state["head"])
        with torch.no_grad():
            for name, x in mine.items():
                x.copy_(saved[name])

    def save(self, folder: Path) -> None:
        """Writes it as files: the head, and what `_save_body` says."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: x.detach().cpu().contiguous() for name, x in self.head.state_dict().items()}, folder / HEAD)
        self._save_body(folder)

    def _save_body(self, folder: Path) -> None:
        """A head alone has none."""

    def load(self, folder: Path) -> None:
        """Takes over what `save` wrote.

        Raises:
            RlmError: The folder holds no value head, or another critic.
        """
        from safetensors.torch import load_file

        if not (folder / HEAD).exists():
            raise RlmError(
                "there is no value head here, and a critic without it knows nothing", where=str(folder / HEAD)
            )
        self.load_state_dict({"head": load_file(folder / HEAD), "body": self._load_body(folder)})

    def _load_body(self, folder: Path) -> dict[str, torch.Tensor]:
        return {}


class HeadCritic(Critic):
    """Reads the hidden states of the policy's own passes; its gradient stops there."""

    def values_of(self, hidden: Float[torch.Tensor, "*rows H"]) -> Float[torch.Tensor, "*rows"]:
        """The values of hidden states, which learn nothing from it."""
        return super().values_of(hidden.detach())

    @contextmanager
    def capture_hidden(self) -> Iterator[list[torch.Tensor]]:
        """The hidden states of every pass of the policy while it lasts."""
        heard: list[torch.Tensor] = []
        hook = self.trunk.register_forward_hook(lambda *pass_: heard.append(pass_[2].last_hidden_state.detach()))
        try:
            yield heard
        finally:
            hook.remove()


class SeparateCritic(Critic):
    """A model of its own: all weights are trained, in float32."""

    def __init__(self, trunk: Any, width: int, device: Any) -> None:
        super().__init__(trunk.to(device=device, dtype=torch.float32).requires_grad_(True), width, device)

    def trunk_weights(self) -> dict[str, torch.Tensor]:
        """All weights of the trunk."""
        return dict(self.trunk.named_parameters())

    def _save_body(self, folder: Path) -> None:
        self.trunk.save_pretrained(folder)

    def _load_body(self, folder: Path) -> dict[str, torch.Tensor]:
        saved = type(self.trunk).from_pretrained(folder)
        return dict(saved.named_parameters())
