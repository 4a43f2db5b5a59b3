"""The policy as a transformers model: additional LoRA adapters on its frozen base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from rlm_plugins.errors import RlmError

FILE = "adapter_model.safetensors"


class Adapter:
    """An adapter that replaces the policy's during its own forward passes: a critic's (trained) or a reward model's.

    Args:
        policy: A PEFT model. Its `peft_config` does not list this adapter: PEFT saves and loads all it lists.
        name: Name of the adapter in the layers; must be unused.
        config: A ``peft.LoraConfig``.
        trainable: True if its weights are trained.
    """

    def __init__(self, policy: Any, name: str, config: Any, *, trainable: bool) -> None:
        self.base, self._name, self._trainable = policy.get_base_model(), name, trainable
        self._policy_adapters = policy.active_adapters
        policy.add_adapter(name, config)
        self.config = policy.peft_config.pop(name)
        self._activate(self._policy_adapters)

    def _activate(self, adapters: Any, trainable: bool = True) -> None:
        from peft.tuners.tuners_utils import set_adapter

        set_adapter(self.base, adapters, inference_mode=not trainable)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Activate this adapter instead of the policy's; if not trainable, in evaluation mode without gradient."""
        self._activate(self._name, self._trainable)
        try:
            with nullcontext() if self._trainable else evaluation_mode(self.base):
                yield
        finally:
            self._activate(self._policy_adapters)

    def weights(self) -> dict[str, torch.Tensor]:
        """Return its weights by their names in the base."""
        return {name: x for name, x in self.base.named_parameters() if f".{self._name}." in name}

    def file_key(self, name: str) -> str:
        """Return PEFT's name of a weight in a file."""
        return "base_model.model." + name.replace(f".{self._name}.", ".")

    def parameters(self) -> list[torch.Tensor]:
        """Return its weights."""
        return list(self.weights().values())

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return its weights by their names in a file."""
        return {self.file_key(name): x.detach().cpu() for name, x in self.weights().items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Load weights from a file, or from another adapter of the same shape."""
        weights = {self.file_key(name): x for name, x in self.weights().items()}
        mismatched = sorted(set(weights) ^ set(state))
        mismatched += [name for name, x in weights.items() if name in state and x.shape != state[name].shape]
        if mismatched:
            raise RlmError(f"the adapter does not fit this base: '{mismatched[0]}' differs", where=self._name)
        with torch.no_grad():
            for name, x in weights.items():
                x.copy_(state[name])


def new_adapter(policy: Any, name: str, config: Any, *, trainable: bool, seed: int = 0) -> Adapter:
    """Initialize an adapter at random from `seed`; the RNG state of the run is unchanged."""
    cuda_devices = [x.device for x in policy.parameters() if x.is_cuda]
    with torch.random.fork_rng(devices=sorted({x.index for x in cuda_devices})):
        torch.manual_seed(seed)
        return Adapter(policy, name, config, trainable=trainable)


def without_auxiliary(policy: Any, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return `weights` without those of adapters that `peft_config` does not list: a critic's, a reward model's."""
    names = {name for module in policy.modules() for name in getattr(module, "lora_A", ())}
    auxiliary = [f".{name}." for name in names - set(policy.peft_config)]
    return {key: x for key, x in weights.items() if not any(map(key.__contains__, auxiliary))}


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Set `model` to evaluation mode without gradient, and restore its modes on exit."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


def causal_model(model: Any) -> Any:
    """Return the transformers model inside DDP and PEFT wrappers."""
    model = getattr(model, "module", model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def sequence_logprobs(
    model: Any, sequences: Sequence[Sequence[int]], *, batch_size: int = 1, temperature: float = 1.0
) -> list[torch.Tensor]:
    """Return log π of each token but the first, (length − 1,) per sequence, without gradient."""
    rows = [torch.tensor(sequence, device=model.device) for sequence in sequences]
    result = []
    for first in range(0, len(rows), batch_size):
        batch = rows[first : first + batch_size]
        ids = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in batch], batch_first=True)
        with torch.no_grad():
            logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float() / temperature
        logp = logits.log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
        result += [x[: len(row) - 1] for x, row in zip(logp, batch, strict=True)]
    return result
