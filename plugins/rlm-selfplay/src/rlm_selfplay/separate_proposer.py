"""A separate proposer: an adapter that is trained on the scores of its proposals (R-Zero)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, PositiveInt
from rlm_algorithms.auxiliary_part import AuxiliaryPart, policy_gradient_loss

from rlm_plugins.builtin.advantages import group_relative
from rlm_plugins.equation.batch import Log, LogprobsOf
from rlm_plugins.lazy import torch
from rlm_plugins.workers.distributed import gather_lists, processes
from rlm_selfplay.task_scoring import Turn

Ids = list[list[int]]


@dataclass(frozen=True)
class ProposerSettings:
    """Settings of a separate proposer.

    Args:
        learning_rate: Learning rate of AdamW.
        max_grad_norm: Gradient clipping threshold; 0: no clipping.
        lora: Fields of ``peft.LoraConfig``; None: those of the policy's adapter.
        batch_size: Proposals per forward pass.
    """

    learning_rate: NonNegativeFloat = 1e-4
    max_grad_norm: NonNegativeFloat = 1.0
    lora: Annotated[dict[str, Any], Field(min_length=1)] | None = None
    batch_size: PositiveInt = 64


@dataclass
class Proposals:
    """Proposals of a generation batch of all processes.

    Args:
        prompts: Token ids of each prompt.
        completions: Token ids of each proposal.
        scores: Score of each.
        groups: Number of the group of each.
    """

    prompts: Ids = field(default_factory=list)
    completions: Ids = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)


class SeparateProposer(AuxiliaryPart):
    """Adapter on the policy's base that writes the proposals and is trained on their scores alone.

    After a generation batch it takes one step of AdamW on

        L = −1/N Σᵢ Âᵢ 1/|yᵢ| Σₜ log π_p(yᵢₜ),    Âᵢ = (rᵢ − mean r) / (std r + 10⁻⁴) over the proposals of its group.

    This is GRPO with one update per batch, where w = 1. R-Zero (arXiv 2508.05004 §3.2) trains its challenger this way,
    on several batches in a row, while the solver is frozen; here both take one step per batch.
    """

    def __init__(self, settings: ProposerSettings) -> None:
        super().__init__("proposer", **vars(settings))
        self.proposals = Proposals()

    def write(self, prompts: Sequence[Any], generate: Callable[..., Ids]) -> Ids:
        """Return the token ids of one proposal per prompt."""
        with self.model.active():
            return generate(prompts)

    def collect(
        self, turns: Sequence[Turn], prompt_ids: Sequence[list[int]], ids: Sequence[list[int]], index: Sequence[int]
    ) -> None:
        """Store the proposals of all processes with their scores; a group begins where its `source_index` is 0."""
        group, batch = processes().process_index * (1 << 20) - 1, Proposals()
        for turn, prompt, completion, number in zip(turns, prompt_ids, ids, index, strict=True):
            group += number == 0
            if turn.job == "propose":
                batch.prompts.append(prompt)
                batch.completions.append(completion)
                batch.scores.append(turn.score)
                batch.groups.append(group)
        self.proposals = Proposals(*map(gather_lists, vars(batch).values()))

    def train(self, logprobs_of: LogprobsOf, step: int, log: Log) -> None:
        """Take one optimizer step on the proposals of the batch, and clear them."""
        batch, self.proposals = self.proposals, Proposals()
        if not batch.scores:
            return
        advantages = group_relative(torch.tensor(batch.scores), torch.tensor(batch.groups))
        lengths = [len(ids) for ids in batch.completions]
        loss = policy_gradient_loss(advantages, lengths, "sequence_mean")
        norm = self.model.train_step(logprobs_of, batch.prompts, batch.completions, max(lengths), loss, step)
        log("self_play/proposer_norm", norm)
