"""A proposer with weights of its own: an adapter that is trained on the scores of its proposals (R-Zero)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Self

from jaxtyping import Float
from pydantic import Field, NonNegativeFloat, PositiveInt

from rlm_plugins.batch import Log, LogprobsOf
from rlm_plugins.distributed import gather_lists
from rlm_plugins.errors import PartError
from rlm_plugins.functional.statistics import Groups, nanstd
from rlm_plugins.lazy import torch

if TYPE_CHECKING:
    from rlm_plugins.models.auxiliary_lm import AuxiliaryLM

Ids = list[list[int]]


@dataclass(frozen=True)
class ProposerSettings:
    """Settings of a proposer with weights of its own.

    Args:
        learning_rate: Of AdamW.
        every: It takes a step after each generation batch whose number is a multiple of this.
        max_grad_norm: Gradient clipping threshold; 0: no clipping.
        lora: Fields of ``peft.LoraConfig``; None: those of the policy's adapter.
        batch_size: Proposals per forward pass.
    """

    learning_rate: NonNegativeFloat = 1e-4
    every: PositiveInt = 1
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

    def gathered(self, offset: int) -> Self:
        """Return the proposals of all processes; `offset`: number of the first group of this one."""
        return type(self)(
            gather_lists(self.prompts),
            gather_lists(self.completions),
            gather_lists(self.scores),
            gather_lists([group + offset for group in self.groups]),
        )


class SeparateProposer:
    """Adapter on the policy's base that writes the proposals and is trained on their scores alone.

    After a generation batch it takes one step of AdamW on

        L = −1/N Σᵢ Âᵢ 1/|yᵢ| Σₜ log π_p(yᵢₜ),    Âᵢ = (rᵢ − mean r) / (std r + 10⁻⁴) over the proposals of its group.

    This is GRPO after one update per batch, where w = 1. R-Zero (arXiv 2508.05004 §3.2) trains its challenger so, on
    several batches in a row, while the solver is frozen; here both take a step per batch.
    """

    def __init__(self, settings: ProposerSettings) -> None:
        self._every = settings.every
        self._settings = {name: getattr(settings, name) for name in ("learning_rate", "max_grad_norm", "lora")}
        self._settings["batch_size"] = settings.batch_size
        self._model: AuxiliaryLM | None = None
        self._batches = 0
        self.proposals = Proposals()

    def setup(self, policy: Any) -> None:
        """Create the adapter beside the policy's."""
        from rlm_plugins.models.auxiliary_lm import AuxiliaryLM

        self._model = AuxiliaryLM(policy, "proposer", **self._settings)

    @property
    def model(self) -> AuxiliaryLM:
        """The proposer.

        Raises:
            PartError: There is no policy yet.
        """
        if self._model is None:
            hint = "use it in a stage that trains"
            raise PartError("requires a policy, and none was set up", where="propose_and_solve.proposer", hint=hint)
        return self._model

    def write(self, prompts: Sequence[Any], generate: Callable[..., Ids]) -> Ids:
        """Return the token ids of one proposal per prompt."""
        with self.model.active():
            return generate(prompts)

    def train(self, logprobs_of: LogprobsOf, step: int, log: Log) -> None:
        """Take one optimizer step on the proposals of the batch, and forget them."""
        batch, self.proposals, self._batches = self.proposals, Proposals(), self._batches + 1
        if self._batches % self._every or not batch.scores:
            return
        advantages = proposal_advantages(batch.scores, batch.groups)
        lengths = torch.tensor([len(ids) for ids in batch.completions])
        weights = advantages / lengths.clamp(min=1) / len(lengths)

        def loss(logp: Float[torch.Tensor, "b T"], rows: list[int]) -> Float[torch.Tensor, ""]:
            return -(weights[rows].to(logp.device).unsqueeze(1) * logp).sum()

        width = int(lengths.max())
        log(
            "self_play/proposer_norm",
            self.model.train_step(logprobs_of, batch.prompts, batch.completions, width, loss, step),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return weights and optimizer state."""
        model = {} if self._model is None else self._model.state_dict()
        return {"batches": self._batches, "model": model}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore weights and optimizer state."""
        self._batches, self.proposals = state["batches"], Proposals()
        if state["model"]:
            self.model.load_state_dict(state["model"])


def proposal_advantages(scores: Sequence[float], groups: Sequence[int]) -> Float[torch.Tensor, "B"]:
    """Return the standard score of each proposal in its group; 0 if all of a group are equal.

    >>> proposal_advantages([1.0, 0.0, 1.0, 1.0], [0, 0, 1, 1]).tolist()
    [0.7070068120956421, -0.7070068120956421, 0.0, 0.0]
    """
    rewards = torch.tensor(list(scores), dtype=torch.float32)
    found = Groups(rewards, torch.tensor(list(groups), dtype=torch.long))
    table = found.table
    return found.flatten_or_zero((table - table.nanmean(1, keepdim=True)) / (nanstd(table, 1) + 1e-4))
