"""Generation with an inference engine (hook ``rlm_engines``), in the place of TRL's vLLM.

TRL merges the adapter into the base before each sync and subtracts it afterwards, which changes the base by rounding.
Here an engine receives the adapter alone, or weights that are not changed for it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from trl.trainer import grpo_trainer

from rlm_plugins.errors import RlmError
from rlm_plugins.models.adapters import causal_model
from rlm_plugins.rollout.engine_call import Engine, EnginePolicy, Weights
from rlm_plugins.workers.distributed import whole

SHARED_MEMORY = Path("/dev/shm")


class EngineGeneration:
    """The policy's engine with the interface of TRL's ``VLLMGeneration``.

    Attributes:
        version: Optimizer steps done by the weights of the engine; -1 before the first sync.
        versions: Versions of the completions of each call since the generation batch began.
        after_sync: Called after each sync.
    """

    def __init__(self, engine: Engine, args: Any, end_token_ids: Sequence[int], **trl: Any) -> None:
        self.engine, self.model, self._accelerator = engine, trl["model"], trl["accelerator"]
        self.repetition_penalty, self.temperature = trl["repetition_penalty"], trl["temperature"]
        self.top_p, self.top_k, self.min_p = trl["top_p"], trl["top_k"], trl["min_p"]
        self.max_completion_length: int = trl["max_completion_length"]
        self._further = {**trl["generation_kwargs"]} if trl["generation_kwargs"] else {}
        if trl["structured_outputs_regex"]:
            self._further["structured_outputs_regex"] = trl["structured_outputs_regex"]
        self._sleeps, parent = bool(trl["enable_sleep_mode"]), SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self._folder = tempfile.TemporaryDirectory(prefix="rlm-adapter-", dir=parent)
        self.version, self.versions = -1, list[list[int]]()
        self.step: Callable[[], int] = lambda: 0
        self.after_sync: list[Callable[[], None]] = []
        plugin = self._accelerator.state.deepspeed_plugin
        if plugin is not None and plugin.zero_stage == 3:
            problem = "an engine cannot read weights that ZeRO-3 partitions"
            raise RlmError(problem, where="trainer.use_vllm", hint="ZeRO-2, FSDP2, or `use_vllm: false`")
        policy = self.policy
        mixed = {"bf16": "bfloat16", "fp16": "float16"}.get(self._accelerator.mixed_precision)
        engine.start(
            EnginePolicy(
                folder=causal_model(policy).config._name_or_path,
                dtype=mixed or str(next(policy.parameters()).dtype).removeprefix("torch."),
                adapter=getattr(policy, "peft_config", {}).get(getattr(policy, "active_adapter", "")),
                end_token_ids=list(end_token_ids),
                sequences=trl["max_num_seqs"],
                rank=self._accelerator.process_index,
                settings=args,
            )
        )
        if self._sleeps:
            engine.sleep()
        limit = args.vllm_max_model_length or causal_model(policy).config.get_text_config().max_position_embeddings
        engine_config = SimpleNamespace(model_config=SimpleNamespace(max_model_len=limit))
        self.llm = SimpleNamespace(llm_engine=engine_config)  # TRL reads it in its loop of tools

    @property
    def policy(self) -> Any:
        """The policy, not wrapped."""
        return self._accelerator.unwrap_model(self.model)

    def sync_weights(self) -> None:
        """Send the weights of the policy to the engine, and call `after_sync`."""
        self.push(self.step())
        for check in self.after_sync:
            check()

    def push(self, version: int) -> None:
        """Send the weights of the policy to the engine, as a version."""
        with self.awake():
            self.engine.sync(self._weights(), version)
        self.version = version

    def _weights(self) -> Weights:
        policy = self.policy
        if not hasattr(policy, "peft_config"):
            return ((name, whole(p.detach())) for name, p in policy.named_parameters())
        state = {name: whole(x) for name, x in policy.state_dict().items() if f".{policy.active_adapter}." in name}
        policy.save_pretrained(
            self._folder.name, selected_adapters=[policy.active_adapter], state_dict=state, save_embedding_layers=False
        )
        return Path(self._folder.name)

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Let the engine take the memory of the device inside a ``with`` block."""
        if not self._sleeps:
            yield
            return
        self.engine.wake()
        try:
            yield
        finally:
            self.engine.sleep()

    def generate(self, prompts: list[list[int]], images: Any, num_generations: int, profiler: Any = None) -> Any:
        """Return prompts, without images, completions and their log-probs (B, T, 1), as TRL's engine returns them."""
        if images is not None and any(images):
            problem = "an engine generates from text, but the prompts have images"
            raise RlmError(problem, where="trainer.use_vllm", hint="`use_vllm: false`")
        with profiler or nullcontext():
            completions = self.complete(prompts, self._sampling())
        self.versions.append(completions.versions)
        return prompts, completions.ids, [[[x] for x in row] for row in completions.logp], None

    def complete(self, prompts: Sequence[Sequence[int]], sampling: Mapping[str, Any]) -> Any:
        """Return the completions of the engine; where it samples, its seed is drawn from the global random numbers."""
        seed = int(torch.randint(2**31, ())) if sampling["temperature"] else None
        with self.awake():
            return self.engine.generate(prompts, {**sampling, "seed": seed})

    def _sampling(self) -> dict[str, Any]:
        return {
            "repetition_penalty": self.repetition_penalty,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p or 0.0,
            "max_tokens": self.max_completion_length,
            **self._further,
        }

    def take_versions(self, count: int) -> list[int]:
        """Return the versions of `count` completions, and forget them; of turns in several calls, the earliest."""
        calls, self.versions = self.versions, []
        if len(calls) == 1 and len(calls[0]) == count:
            return calls[0]
        return [min((version for call in calls for version in call), default=self.step())] * count


@contextmanager
def in_place_of_vllm(engine: Engine | None, args: Any, end_token_ids: Callable[[], Sequence[int]]) -> Iterator[None]:
    """Let TRL's trainer build its generation from `engine` inside a ``with`` block."""
    original = grpo_trainer.VLLMGeneration
    if engine is not None:
        grpo_trainer.VLLMGeneration = lambda **trl: EngineGeneration(engine, args, end_token_ids(), **trl)
    try:
        yield
    finally:
        grpo_trainer.VLLMGeneration = original
