"""Process of the engine `second_process`; arguments: DESCRIPTOR PARENT THREADS DEVICE.

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
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from transformers.initialization import no_init_weights

from rlm_engines.reference import Reference
from rlm_engines.second_process import TrainerPolicy, receive_tensors
from rlm_plugins.equation.step import nonfinite_logits
from rlm_plugins.errors import RlmError
from rlm_plugins.registry import Registry
from rlm_plugins.rollout.engine_call import EngineCompletions, EnginePolicy, Weights
from rlm_plugins.rollout.generator_call import generate


class PolicyCopy(Reference):
    """The policy in the process that generates: with its trainer's generator and padding for a `TrainerPolicy`."""

    def start(self, policy: EnginePolicy) -> None:
        """Load the base, or prepare for the weights of the trainer, which the first `sync` sends."""
        self._policy, self._generator = policy if isinstance(policy, TrainerPolicy) else None, None
        if self._policy is None:
            super().start(policy)
        elif self._policy.generator is not None:
            name, knobs, file = self._policy.generator
            self._generator = Registry([Path(file)] if file else []).find("rlm_generators", name).bind(knobs)

    def sync(self, weights: Weights, version: int) -> None:
        """Load the adapter, or copy weights.

        Raises:
            RlmError: The first weights of a `TrainerPolicy` are not all of its model.
        """
        if self._policy is None or hasattr(self, "_model"):
            super().sync(weights, version)
            return
        assert not isinstance(weights, Path)
        model = _build_model(self._policy, dict(weights)).to(self._device).train()
        if self._policy.prepare is not None:
            self._policy.prepare(model)
        if self._policy.mixed_precision != "no":
            from accelerate import Accelerator

            os.environ["ACCELERATE_TORCH_DEVICE"] = self._device  # otherwise it takes memory on the first GPU
            accelerator = Accelerator(mixed_precision=self._policy.mixed_precision, cpu=self._device.startswith("cpu"))
            model = accelerator.prepare_model(model, device_placement=False, evaluation_mode=True)
        self._model, self._version = model, version

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Mapping[str, Any]) -> EngineCompletions:
        """Sample one completion per prompt; those of a `TrainerPolicy` in one batch, as its trainer does.

        Then `sampling` has the `seed`, and the optimizer `step` for errors. The ids include padding, and the trainer
        computes the log-probs.
        """
        if self._policy is None:
            return super().generate(prompts, sampling)
        decoding = self._policy.decoding
        multiple = self._policy.settings.pad_to_multiple_of or 1
        width = -(-max(map(len, prompts)) // multiple) * multiple
        rows = [[decoding.pad_token_id] * (width - len(ids)) + [*ids] for ids in prompts]
        masks = [[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]
        named = (("input_ids", rows), ("attention_mask", masks))
        inputs = {name: torch.tensor(x, device=self._device) for name, x in named}
        torch.manual_seed(sampling["seed"])
        with nonfinite_logits(sampling["step"]), torch.no_grad():
            output = generate(self._generator, self._model.generate, self._model, inputs, decoding)
        generated: list[list[int]] = output.ids[:, width:].tolist()
        return EngineCompletions(generated, [[] for _ in generated], [self._version] * len(generated))


def _build_model(policy: TrainerPolicy, weights: Mapping[str, torch.Tensor]) -> Any:
    """Return the model with its adapter and these weights."""
    with no_init_weights():
        model = policy.model_class(policy.config)
    model.generation_config = policy.defaults
    if policy.adapter is not None:
        from peft import get_peft_model

        model = get_peft_model(model, policy.adapter, low_cpu_mem_usage=True)
    missing = model.load_state_dict(dict(weights), strict=False, assign=True).missing_keys
    model.tie_weights()
    if missing:
        raise RlmError(f"lacks {len(missing)} weights of the policy, {missing[0]} among them")
    return model


POLL = 1.0
"""Seconds between checks of whether the trainer's process is alive."""


def answer(engine: PolicyCopy, message: bytes, tensors: dict[str, torch.Tensor]) -> Any:
    """Return the result of the method that a message names; an `RlmError` for any error."""
    try:
        method, arguments = pickle.loads(message)  # of the trainer's process, which started this one
        if method == "sync" and arguments[0] is None:
            arguments = (tensors.items(), *arguments[1:])
        return getattr(engine, method)(*arguments)
    except RlmError as error:
        return error
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return RlmError(f"raised {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})")


def main() -> None:
    """Answer messages until the connection is closed."""
    descriptor, parent, threads = (int(text) for text in sys.argv[1:4])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    torch.set_num_threads(threads)
    connection, engine = Connection(descriptor), PolicyCopy(device=sys.argv[4])
    with contextlib.suppress(EOFError, OSError):
        while True:
            message = connection.recv_bytes()
            connection.send(answer(engine, message, receive_tensors(connection)))


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, also while it decodes."""
    while os.getppid() == parent:
        time.sleep(POLL)
    os._exit(1)


if __name__ == "__main__":
    main()
