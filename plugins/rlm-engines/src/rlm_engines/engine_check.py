"""Check of the engine: do its tokens come from the policy? And does the frozen base stay what it was?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from transformers import TrainerCallback

from rlm_plugins.errors import RlmError
from rlm_plugins.models.adapters import evaluation_mode
from rlm_plugins.models.fingerprints import digest_of_weights
from rlm_plugins.trainer.observer import StepObserver

TOKENS = 8
"""Tokens that both sides score."""
TOLERANCE = {"float32": 2e-4, "float16": 0.02, "bfloat16": 0.05}
"""Largest |engine − policy| / (1 + |policy|) of the log-probs, by the type in which the policy computes."""
ROUNDING = 0.01
"""Largest such difference that a computation in 16 bits explains."""
EFFECT = 3.0
"""Change of the log-probs by the disturbance of each kind of module, in tolerances."""
DOUBLINGS = 24
WHERE = "engine"


class EngineCheck(StepObserver, TrainerCallback):  # type: ignore[misc]
    """Compares the engine with the policy after each sync, on a few tokens that both score.

    After the first sync the trained weights are disturbed, sent, compared and restored. Adapters begin at 0, so an
    engine that ignores them would agree at first. If both sides differ, the change of the policy that explains the
    scores of the engine is named.

    It also compares a digest of the frozen base at the start with those at each checkpoint and at the end.
    """

    name = "engine_check"

    def attach(self, trainer: Any) -> None:
        """Store the trainer, and be called after each sync."""
        self._trainer, self._generation = trainer, trainer.vllm_generation
        self._engine_name = type(self._generation.engine).__name__.lower()
        self._generation.after_sync.append(self.check)
        self._last: torch.Tensor | None = None
        self._is_disturbed, self._digest = False, ""
        random = torch.Generator().manual_seed(0)
        count = trainer.model.config.get_text_config().vocab_size
        self._ids = torch.randint(min(count, len(trainer.tokenizer)), (1 + TOKENS,), generator=random)

    # -- versions of completions

    def sampling(self) -> AbstractContextManager[Any]:
        """Forget the versions of extra completions before a batch."""
        self._generation.take_versions(0)
        return nullcontext()

    def sampled(self, out: Mapping[str, Any]) -> Mapping[str, torch.Tensor]:
        """Return the version of the policy that sampled each completion (B,)."""
        ids = out["completion_ids"]
        return {"policy_version": torch.tensor(self._generation.take_versions(len(ids)), device=ids.device)}

    # -- the comparison

    def check(self) -> None:
        """Compare the scores of both sides; at the first call also with disturbed weights.

        Raises:
            RlmError: They differ. It says what the engine did instead, if some change of the policy explains it.
        """
        self._compare({} if self._last is None else {"keeps the weights of an earlier step": self._last})
        if self._is_disturbed:
            return
        self._is_disturbed = True
        before = self._last
        assert before is not None
        with self._disturbed() as explanations:
            self._generation.push(self._generation.version)
            self._compare({"keeps the weights of an earlier sync": before, **explanations})
        self._generation.push(self._generation.version)
        self._compare({"keeps the disturbed weights": self._last})  # type: ignore[dict-item]

    def _compare(self, explanations: Mapping[str, torch.Tensor]) -> None:
        self._last = self._policy_scores()
        with self._generation.awake():
            rows = self._generation.engine.score([self._ids.tolist()])
        scores = torch.tensor(rows[0], dtype=torch.float64)
        if self._distance(scores, self._last) <= self._tolerance:
            return
        distance = self._distance(scores, self._last)
        problem = f"the engine '{self._engine_name}' {self._explanation(scores, explanations)}"
        numbers = f"its log-probs of {TOKENS} tokens differ from the policy's by {distance:.2g}"
        allowed = f"at most {self._tolerance:g} of 1 + |log π| in {self._dtype}"
        hint = "nothing was trained on its samples; `use_vllm: false` samples with the policy itself"
        raise RlmError(f"{problem}: {numbers}", where=WHERE, allowed=allowed, hint=hint)

    def _explanation(self, scores: torch.Tensor, explanations: Mapping[str, torch.Tensor]) -> str:
        """Return what the engine did, by the change of the policy whose scores are closest."""
        assert self._last is not None
        distance = self._distance(scores, self._last)
        found = {text: self._distance(scores, x) for text, x in explanations.items()}
        if found and min(found.values()) < max(self._tolerance, distance / 4):
            return min(found, key=lambda text: found[text])
        if distance < ROUNDING and self._dtype == "float32":
            return "computes in another type than the policy's float32"
        return "does not sample from the policy"

    def _distance(self, one: torch.Tensor, other: torch.Tensor) -> float:
        difference = float(((one - other).abs() / (1 + other.abs())).max())
        return difference if difference == difference else float("inf")

    @property
    def _dtype(self) -> str:
        mixed = {"bf16": "bfloat16", "fp16": "float16"}.get(self._trainer.accelerator.mixed_precision)
        return mixed or str(next(self._generation.policy.parameters()).dtype).removeprefix("torch.")

    @property
    def _tolerance(self) -> float:
        return getattr(self._generation.engine, "tolerance", None) or TOLERANCE[self._dtype]

    def _policy_scores(self) -> torch.Tensor:
        """Return log π (TOKENS,) by the forward pass of training, at temperature 1."""
        trainer, temperature = self._trainer, self._trainer.temperature
        ids = self._ids.to(trainer.accelerator.device)[None]
        inputs = {"prompt_ids": ids[:, :1], "completion_ids": ids[:, 1:]}
        inputs |= {"prompt_mask": torch.ones_like(ids[:, :1]), "completion_mask": torch.ones_like(ids[:, 1:])}
        trainer.set_temperature(1.0)
        try:
            with evaluation_mode(trainer.model):
                logp = trainer.components.passes.of(trainer.model, inputs, 1)[0]
        finally:
            trainer.set_temperature(temperature)
        return logp[0].double().cpu()

    # -- the disturbance

    def _trained(self) -> dict[str, torch.Tensor]:
        """Return the weights to disturb: of an adapter its second matrices, which are 0 at the start."""
        named = {name: p for name, p in self._generation.policy.named_parameters() if p.requires_grad}
        second = {name: p for name, p in named.items() if ".lora_B." in name or ".lora_embedding_B." in name}
        return second or named

    @contextmanager
    def _disturbed(self) -> Iterator[dict[str, torch.Tensor]]:
        """Disturb the trained weights inside a ``with`` block; yield explanation → scores with that change undone."""
        trained = self._trained()
        saved = {name: p.detach().to("cpu", copy=True) for name, p in trained.items()}
        kinds: dict[str, list[str]] = {}
        for name in trained:
            kinds.setdefault(_kind(name), []).append(name)
        try:
            yield self._disturb(trained, saved, kinds)
        finally:
            _copy(trained, saved, trained)

    def _disturb(
        self, trained: Mapping[str, torch.Tensor], saved: Mapping[str, torch.Tensor], kinds: Mapping[str, list[str]]
    ) -> dict[str, torch.Tensor]:
        """Disturb the weights until each kind of module matters; return the scores without each of them."""
        scale, explanations = 2.0**-6, dict[str, torch.Tensor]()
        for _ in range(DOUBLINGS):
            _copy(trained, saved, trained)
            _add_noise(trained, scale)
            full = self._policy_scores()
            explanations = {}
            for kind, names in {**kinds, "": list(trained)}.items():
                disturbed = {name: trained[name].detach().to("cpu", copy=True) for name in names}
                _copy(trained, saved, names)
                text = f"drops what is trained in `{kind}`" if kind else "ignores the trained weights"
                explanations[text] = self._policy_scores()
                _copy(trained, disturbed, names)
            if min(self._distance(x, full) for x in explanations.values()) >= EFFECT * self._tolerance:
                break
            scale *= 2
        return explanations

    # -- the frozen base

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the base."""
        self._digest = self._digest_of_base()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Compare the base with that of the start.

        Raises:
            RlmError: It changed.
        """
        if self._digest != self._digest_of_base():
            problem = f"the frozen base changed before step {state.global_step}: policy, reference and critic share it"
            raise RlmError(problem, where=WHERE, hint="does an engine or a callback merge the adapter into it?")

    on_train_end: Callable[..., None] = on_save

    def _digest_of_base(self) -> str:
        policy = self._generation.policy
        if not hasattr(policy, "peft_config") or self._trainer.is_deepspeed_enabled or self._trainer.is_fsdp_enabled:
            return ""
        frozen = {name: p for name, p in policy.named_parameters() if "lora_" not in name and not p.requires_grad}
        return digest_of_weights(SimpleNamespace(state_dict=lambda: frozen))


def _kind(name: str) -> str:
    """Return the kind of module that has a weight.

    >>> _kind("model.layers.0.self_attn.q_proj.lora_B.default.weight"), _kind("model.norm.weight")
    ('q_proj', 'norm')
    """
    parts = name.split(".lora_")[0].removesuffix(".weight").removesuffix(".bias").split(".")
    return parts[-1]


def _copy(
    target: Mapping[str, torch.Tensor], source: Mapping[str, torch.Tensor], names: Sequence[str] | Mapping[str, Any]
) -> None:
    with torch.no_grad():
        for name in names:
            target[name].copy_(source[name])


def _add_noise(weights: Mapping[str, torch.Tensor], scale: float) -> None:
    devices = {x.device.index for x in weights.values() if x.is_cuda}
    with torch.random.fork_rng(sorted(devices)), torch.no_grad():
        torch.manual_seed(0)
        for x in weights.values():
            x.add_(torch.randn_like(x) * (scale * max(float(x.abs().mean()), 1e-2)))
