"""Inference engines (hook ``rlm_engines``): what an engine must have, and what it receives and returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class EnginePolicy:
    """The model that an engine loads at its start.

    Args:
        folder: Folder or hub name of the base: config and weights, without an adapter.
        dtype: Type in which the trainer computes: ``float32``, ``bfloat16``.
        adapter: Config of the policy's adapter, as PEFT has it; None: all weights are trained, or none.
        end_token_ids: Tokens that end a completion.
        sequences: Completions that one call requests at most.
        rank: Number of this process.
        settings: Config of the trainer; its fields `vllm_…` are settings of engines.
    """

    folder: str
    dtype: str
    adapter: Any
    end_token_ids: Sequence[int]
    sequences: int
    rank: int
    settings: Any


@dataclass(frozen=True)
class EngineCompletions:
    """Completions of one call of an engine, in the order of its prompts.

    Args:
        ids: Token ids, up to the end token.
        logp: Log-prob of each token (nats), under the distribution that it was sampled from.
        versions: Per completion, the version of the weights that sampled it.
    """

    ids: list[list[int]]
    logp: list[list[float]]
    versions: list[int]


Weights = Path | Iterable[tuple[str, "torch.Tensor"]]
"""Folder of an adapter as PEFT saves it, or all weights by their names in the transformers model."""


class Engine(Protocol):
    """An engine that samples completions with a copy of the policy. Every process of the trainer has one.

    Attributes:
        trainer_settings: Fields of the trainer's config that it fixes; ``use_vllm: true`` at least.
    """

    trainer_settings: Mapping[str, Any]

    def start(self, policy: EnginePolicy) -> None:
        """Load the base."""

    def sync(self, weights: Weights, version: int) -> None:
        """Replace the adapter, or all weights; completions have this version from now on."""

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Mapping[str, Any]) -> EngineCompletions:
        """Sample one completion per prompt (token ids), with the fields of vLLM's ``SamplingParams``."""

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return log π (nats, temperature 1) of each token of each sequence but the first."""

    def sleep(self) -> None:
        """Free the memory of the device until `wake`, as far as the engine can."""
        return

    def wake(self) -> None:
        """Take the memory again."""
        return

    def close(self) -> None:
        """Free everything; `start` may follow."""
