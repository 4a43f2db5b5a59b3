"""How likely the rows are: every forward pass that is not a generation goes through here."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import gather_object

from rlm_plugins.registry.parts import Bound
from rlm_plugins.stage import Reward
from rlm_plugins.step import Equation
from rlm_plugins.trainer.writing import Writing
from rlm_plugins.training.past import Past, answers_in, distance, stacked


class Reading(Writing):
    """The same, that reads log-probabilities and entropies where a part names them.

    Args:
        equation: The parts. `args.beta` only switches TRL's reference pass on; coefficients live in the parts.
        rewards: The entries of ``rewards:`` in the order of `reward_funcs`.
    """

    def __init__(self, *, equation: Equation, rewards: Sequence[Reward], **rest: Any) -> None:
        self.equation, self._rewards = equation, rewards
        self._past: Past | None = None
        super().__init__(**rest)
        if self._scoring_names("moved"):
            self._past = Past()

    def _read(self, model: Any, inputs: dict[str, Any], batch_size: int | None = None, **options: Any) -> Any:
        """Log-probabilities (and entropies) of the completions under `model`, by TRL's own pass."""
        known = inspect.signature(self._get_per_token_logps_and_entropies).parameters
        return self._get_per_token_logps_and_entropies(
            model,
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
            torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
            inputs["completion_ids"].shape[1],
            batch_size=batch_size,
            **{name: inputs[name] for name in known if name in inputs},
            **options,
        )

    def _read_before(self, out: dict[str, Any]) -> torch.Tensor | None:
        """One pass of the policy before the update, where a scoring part names what comes of it; the entropy, if so."""
        reads_old = self.equation.needs("expected_logp") or self._scoring_names("old_logp") or self._past is not None
        lacks_old, reads_entropy = reads_old and "old_per_token_logps" not in out, self._scoring_names("entropy")
        if not (lacks_old or reads_entropy):
            return None
        with torch.no_grad():
            size = self.args.per_device_train_batch_size
            logp, entropy, _ = self._read(self.model, out, size, compute_entropy=reads_entropy)
        if lacks_old:
            out["old_per_token_logps"] = logp
        return entropy

    def _moved(self, out: dict[str, Any]) -> torch.Tensor:
        """How far the policy has moved since it last met each problem, (B,) of all rows; then the answers are kept.

        A problem never met stands for itself, at distance 0: so every process reads as much as the others.
        """
        assert self._past is not None
        assert self._problem is not None
        problems = self._problem[self._mine(len(out["prompt_ids"]))].tolist()
        now = answers_in(out, loss_mask(out))
        last = [self._past.last(problem, answer) for problem, answer in zip(problems, now, strict=True)]
        rows = stacked(last, self._tokenizer.pad_token_id, self.accelerator.device)
        with torch.no_grad():
            logp = self._read(self.model, rows, self.args.per_device_train_batch_size)[0]
        met = torch.tensor([self._past.knows(problem) for problem in problems], device=logp.device)
        moved = distance(logp, rows["logp"], rows["mask"]).where(met, 0.0)
        self._past.remember(gather_object(problems), gather_object(now))
        return self._gather_rows(moved)  # type: ignore[no-any-return]

    def _scoring_names(self, name: str) -> bool:
        """Whether a part needs `name` in the scoring room, or to learn from."""
        early = [*self.equation.shapers, *self.equation.filters, self.equation.advantage]
        sampler = [self._sampler] if self._sampler is not None else []
        return any(name in p.part.needs for p in early) or any(
            name in p.part.update_needs for p in (*self._learners(), *sampler)
        )

    def _learners(self) -> list[Bound]:
        """Every part that may have a memory, but the sampler, which learns draw by draw."""
        sources = self._writers.sources if self._writers is not None else ()
        return [*(reward.part for reward in self._rewards), *self.equation.parts(), *sources]


def loss_mask(out: dict[str, Any]) -> torch.Tensor:
    """1 where a token is trained on: the model's own, not a tool's, not what a source only shows."""
    mask: torch.Tensor = out["completion_mask"]
    for name in ("tool_mask", "trained"):
        mask = mask * out[name] if name in out else mask
    return mask
