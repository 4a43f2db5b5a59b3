"""Runs with an engine, an observer that compares both sides, and engines with one fault each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rlm_engines.engine_check import EngineCheck
from rlm_engines.reference import Reference
from rlm_engines.vllm_engine import Vllm
from rlm_engines.vllm_server import VllmServer

import rlm_plugins as rlm
from rlm_plugins import hookimpl
from rlm_plugins.rollout.engine_call import EnginePolicy, Weights
from rlm_plugins.trainer.observer import StepObserver

LORA = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}
SCRATCH = {"name": "scratch", "hidden": 128, "layers": 2, "heads": 2, "intermediate": 64}


class Recorder(StepObserver):
    """Write per generation batch max |old − engine|, the mean of their ratio, and the versions, to `path`."""

    def __init__(self, *, path: str) -> None:
        self._path = Path(path)

    def scored(self, batch: Any, turn_ends: Any) -> None:
        """Write a line."""
        difference = (batch.old_logp - batch.rollout_logp)[batch.mask].double()
        line = {"max": float(difference.abs().max()), "ratio": float(difference.exp().mean())}
        line |= {"versions": batch.policy_version.tolist(), "step": batch.step, "tokens": len(difference)}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


class KeepsFirst(Reference):
    """Loads the first weights only."""

    def sync(self, weights: Weights, version: int) -> None:
        """Load once."""
        if self._version < 0:
            super().sync(weights, version)
        self._version = version


class DropsQueries(Reference):
    """Does not load what is trained in `q_proj`."""

    def sync(self, weights: Weights, version: int) -> None:
        """Load the other modules."""
        own = {name: p.detach().clone() for name, p in self._model.named_parameters() if "q_proj" in name}
        super().sync(weights, version)
        with torch.no_grad():
            for name, p in self._model.named_parameters():
                if name in own and "lora_A" not in name:
                    p.copy_(own[name])


class Halves(Reference):
    """Computes in bfloat16 whatever the policy does."""

    def start(self, policy: EnginePolicy) -> None:
        """Load the base in bfloat16."""
        super().start(EnginePolicy(**{**vars(policy), "dtype": "bfloat16"}))


class WithoutAdapter(Vllm):
    """vLLM that samples without the adapter."""

    def sync(self, weights: Weights, version: int) -> None:
        """Load the adapter, and do not request it."""
        super().sync(weights, version)
        self._request = None


class ServerWithoutAdapter(VllmServer):
    """A server that samples without the adapter."""

    def _choice(self, body: Mapping[str, Any]) -> Any:
        return super()._choice({**body, "model": self._base_name})


class Brain(Vllm):
    """vLLM with its default, which replaces float32 by bfloat16."""

    def start(self, policy: EnginePolicy) -> None:
        """Load the base in bfloat16."""
        super().start(EnginePolicy(**{**vars(policy), "dtype": "bfloat16"}))


@hookimpl
def rlm_engines() -> dict[str, object]:
    """Return the engines with a fault."""
    sick = (KeepsFirst, DropsQueries, Halves, WithoutAdapter, Brain, ServerWithoutAdapter)
    return {engine.__name__: engine for engine in sick}


@hookimpl
def rlm_observers() -> dict[str, object]:
    """Return the observer."""
    return {"recorder": Recorder}


class Merging(EngineCheck):
    """A check whose trainer merges the adapter into the base, as TRL does."""

    def begin_micro_batch(self) -> None:
        """Merge and unmerge."""
        policy = self._generation.policy
        policy.merge_adapter()
        policy.unmerge_adapter()


def saved_base(folder: Path, seed: int = 0) -> Path:
    """Save a model of `SCRATCH` with its tokenizer, as a server loads it."""
    spec = rlm.part("model", **SCRATCH, seed=seed)()
    spec.load().save_pretrained(folder)
    spec.tokenizer().save_pretrained(folder)
    return folder


def train(folder: Path, engine: Any, *, model: Mapping[str, Any] | None = None, **changes: Any) -> list[dict[str, Any]]:
    """Train with an engine, and return the lines of the recorder."""
    trainer = {"max_steps": 2, "per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 6}
    trainer |= {"learning_rate": 0.01, "report_to": "none", "save_strategy": "no", **changes.pop("trainer", {})}
    lines = folder / "lines.jsonl"
    document = {
        "plugins": {"load": [__file__]},
        "model": model or {**SCRATCH, "lora": LORA},
        "environment": {"name": "addition", "digits": 2, "test_rows": 4},
        "rewards": [{"name": "length", "limit": 8}],
        "algorithm": "grpo",
        "evaluation": None,
        "engine": engine,
        "observers": [{"name": "recorder", "path": str(lines)}],
        "trainer": trainer,
        **changes,
    }
    rlm.train(document, out=folder / "run")
    return [json.loads(line) for line in lines.read_text().splitlines()]
