"""Process that generates: ``python -m rlm_engines.generation_worker DESCRIPTOR PARENT THREADS``.

It has a copy of the policy, answers one message after the other, and ends when the trainer's process ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from transformers.initialization import no_init_weights

from rlm_engines.generation_process import receive_tensors
from rlm_plugins.equation.step import nonfinite_logits
from rlm_plugins.errors import RlmError
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.generator_call import generate


@dataclass(frozen=True)
class PolicyDescription:
    """Description with which a second process decodes as the trainer does; the weights are sent apart.

    Args:
        model_class: Class of the transformers model.
        config: Its config.
        defaults: `GenerationConfig` of the model.
        adapter: Config of the policy's adapter; None: all weights are trained.
        decoding: `GenerationConfig` of the trainer.
        generator: Name, knobs and file of the generator part; the file is empty for an installed plugin, and None
            stands for `transformers.generate`.
        device: Where the copy decodes.
        mixed_precision: That of accelerate: `no`, `bf16`.
        prepare: Prepares the copy as the trainer's policy: `ForwardPasses.preparation`.
    """

    model_class: type
    config: Any
    defaults: Any
    adapter: Any
    decoding: Any
    generator: tuple[str, dict[str, Any], str] | None
    device: str
    mixed_precision: str
    prepare: Callable[[Any], None] | None


def describe(policy: Any, generator: Bound | None, **settings: Any) -> PolicyDescription:
    """Return the description of a policy.

    Args:
        policy: With or without an adapter, not wrapped.
        generator: The generator part.
        **settings: The other fields of :class:`PolicyDescription`.
    """
    base = policy.get_base_model() if hasattr(policy, "get_base_model") else policy
    adapter = policy.peft_config[policy.active_adapter] if base is not policy else None
    return PolicyDescription(
        model_class=type(base),
        config=base.config,
        defaults=base.generation_config,
        adapter=adapter,
        generator=None if generator is None else _generator_address(generator),
        **settings,
    )


def _generator_address(generator: Bound) -> tuple[str, dict[str, Any], str]:
    """Return name, knobs and file of a part; the file is empty for an installed plugin."""
    module = generator.part.target.__module__
    file = getattr(sys.modules.get(module), "__file__", "") if module.startswith("rlm_file_") else ""
    return generator.part.full_name, dict(generator.knobs), file or ""


class PolicyCopy:
    """The policy in the process that generates.

    Args:
        description: Of the policy.
        weights: All of its weights, by name.

    Raises:
        RlmError: The model has weights that `weights` lacks.
    """

    def __init__(self, description: PolicyDescription, weights: Mapping[str, torch.Tensor]) -> None:
        self._decoding, self._generator = description.decoding, None
        if description.generator is not None:
            name, knobs, file = description.generator
            registry = Registry([Path(file)] if file else [])
            self._generator = registry.find("rlm_generators", name).bind(knobs)
        self._model = _build_model(description, weights).to(description.device).train()
        if description.prepare is not None:
            description.prepare(self._model)
        if description.mixed_precision != "no":
            from accelerate import Accelerator

            os.environ["ACCELERATE_TORCH_DEVICE"] = description.device  # otherwise it takes memory on the first GPU
            accelerator = Accelerator(
                mixed_precision=description.mixed_precision, cpu=description.device.startswith("cpu")
            )
            self._model = accelerator.prepare_model(self._model, device_placement=False, evaluation_mode=True)

    def generate(
        self,
        weights: Mapping[str, torch.Tensor],
        prompts: Sequence[Sequence[int]],
        width: int,
        pad_token_id: int,
        seed: int,
        step: int,
    ) -> list[list[int]]:
        """Return the token ids after each prompt, padding included.

        Args:
            weights: The trained weights of the behavior policy.
            prompts: Token ids.
            width: Tokens of each prompt after padding on the left.
            pad_token_id: The padding.
            seed: Of the random numbers of this batch.
            step: Optimizer step of the batch, for errors.
        """
        parameters = dict(self._model.named_parameters())
        with torch.no_grad():
            for name, x in weights.items():
                parameters[name].data.copy_(x)
        rows = [[pad_token_id] * (width - len(ids)) + [*ids] for ids in prompts]
        masks = [[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]
        device = next(self._model.parameters()).device
        inputs = {name: torch.tensor(x, device=device) for name, x in (("input_ids", rows), ("attention_mask", masks))}
        torch.manual_seed(seed)
        with nonfinite_logits(step), torch.no_grad():
            output = generate(self._generator, self._model.generate, self._model, inputs, self._decoding)
        generated: list[list[int]] = output.ids[:, width:].tolist()
        return generated


def _build_model(description: PolicyDescription, weights: Mapping[str, torch.Tensor]) -> Any:
    """Return the model with its adapter and these weights."""
    with no_init_weights():
        model = description.model_class(description.config)
    model.generation_config = description.defaults
    if description.adapter is not None:
        from peft import get_peft_model

        model = get_peft_model(model, description.adapter, low_cpu_mem_usage=True)
    missing = model.load_state_dict(dict(weights), strict=False, assign=True).missing_keys
    model.tie_weights()
    if missing:
        raise RlmError(f"lacks {len(missing)} weights of the policy, {missing[0]} among them")
    return model


POLL = 1.0
"""Seconds between checks of whether the trainer's process is alive."""


class MessageHandler:
    """Handles the messages of the trainer: a description first, then calls of `PolicyCopy.generate`."""

    def __init__(self) -> None:
        self._copy: PolicyCopy | None = None

    def handle(self, message: bytes, tensors: dict[str, torch.Tensor]) -> Any:
        """Return the completions; None after the description; an `RlmError` for any error."""
        try:
            content = pickle.loads(message)  # of the trainer's process, which started this one
            if self._copy is None:
                self._copy = PolicyCopy(content, tensors)
                return None
            return self._copy.generate(tensors, **content)
        except RlmError as error:
            return error
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            problem = f"raised {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
            return RlmError(problem)


def main() -> None:
    """Handle messages until the connection is closed."""
    descriptor, parent, threads = (int(text) for text in sys.argv[1:4])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    torch.set_num_threads(threads)
    connection, handler = Connection(descriptor), MessageHandler()
    with contextlib.suppress(EOFError, OSError):
        while True:
            message = connection.recv_bytes()
            connection.send(handler.handle(message, receive_tensors(connection)))


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, also while it decodes."""
    while os.getppid() == parent:
        time.sleep(POLL)
    os._exit(1)


if __name__ == "__main__":
    main()
