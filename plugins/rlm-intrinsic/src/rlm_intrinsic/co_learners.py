"""RLCCF: several policies on one base that vote on each other's answers and learn together (shaper)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from jaxtyping import Float
from pydantic import Field, NonNegativeFloat, PositiveInt

from rlm_intrinsic.collective import Ballot, collective_votes
from rlm_intrinsic.vote_counting import Answer, answer, group_indices, matches_label, normalize
from rlm_plugins.batch import Log, LogprobsOf
from rlm_plugins.builtin.advantages import group_relative
from rlm_plugins.data.answer_extraction import Untagged
from rlm_plugins.lazy import torch
from rlm_plugins.models.auxiliary_part import AuxiliaryPart
from rlm_plugins.models.policy_gradient import policy_gradient_loss

Ids = list[list[int]]
Generate = Callable[..., Ids]


class CoLearners(AuxiliaryPart):
    """Reward the answer that the policy and its peers agree on; the peers are adapters that train on the same label.

    r′ᵢ = rᵢ + weight · 1[aᵢ = a*], a* = argmax_a Σₙ SCₙ · countₙ(a), SCₙ = max_a countₙ(a) / Kₙ over the policy and its
    `peers`. Each peer samples `samples` answers to every prompt, and after each generation batch takes one step of
    AdamW on

        L = −1/T Σⱼ Aⱼ Σₜ log π(yⱼₜ),    Aⱼ = (ρⱼ − mean ρ) / (std ρ + 10⁻⁴) over its answers to one prompt.

    ρⱼ = 1[aⱼ = a*], and T counts the tokens of all its answers with a label. RLCCF, arXiv 2508.12338: all models train,
    each on the vote of all. There they are different models; here adapters on one base, which start equal and differ by
    their samples alone. So they share the errors of their start, and later ones less.

    A tie has no label: neither policy nor peers train on that prompt. A completion without an answer does not vote.
    The peers sample with the policy's temperature, up to `max_completion_length`; their time is that of sampling
    `samples` · `peers` more completions per prompt, and of training on them. Their state is in checkpoints; PEFT does
    not know them, so they are in no file of the policy.

    Metrics: `labelled`, the share of prompts with a label; `consistency`, the mean of SC; `agreement`, the share of
    prompts where all have the same most frequent answer; `norm`. With `monitor`, the column of reference answers, also
    `right`, the share of the peers' answers that are right. Nothing is trained on it.
    """

    def __init__(
        self,
        *,
        peers: PositiveInt = 2,
        samples: Annotated[int, Field(ge=2)] = 8,
        weight: float = 1.0,
        learning_rate: NonNegativeFloat = 1e-4,
        max_grad_norm: NonNegativeFloat = 1.0,
        lora: Annotated[dict[str, Any], Field(min_length=1)] | None = None,
        batch_size: PositiveInt = 64,
        tag: str = "answer",
        untagged: Untagged = "last_line",
        monitor: str | None = None,
    ) -> None:
        super().__init__(
            "co_learners",
            seeds=range(1, peers + 1),
            lora=lora,
            learning_rate=learning_rate,
            max_grad_norm=max_grad_norm,
            batch_size=batch_size,
        )
        self.samples, self.weight = samples, weight
        self.tag, self.untagged, self.monitor = tag, untagged, monitor
        self._sampled: list[dict[str, Ids]] = [{} for _ in range(peers)]

    def __call__(
        self,
        rewards: Float[torch.Tensor, "B"],
        prompts: Sequence[Any],
        completion_ids: Ids,
        tokenizer: Any,
        generate: Generate,
    ) -> Float[torch.Tensor, "B"]:
        """Sample the peers' answers and reward the policy's answers that equal the label."""
        first = {repr(prompt): prompt for prompt in prompts}
        for model, known in zip(self.models, self._sampled, strict=True):
            new = [key for key in first if key not in known]
            with model.active():
                sampled = generate([first[key] for key in new for _ in range(self.samples)])
            known |= {key: sampled[n * self.samples : (n + 1) * self.samples] for n, key in enumerate(new)}
        answers, matches = self._answers(completion_ids, tokenizer), [0.0] * len(prompts)
        for key, rows in group_indices(prompts).items():
            own = [answers[row] for row in rows]
            label = self._vote(key, own, tokenizer).label
            for row, match in zip(rows, matches_label(own, label) if label is not None else (), strict=False):
                matches[row] = match
        return rewards + self.weight * torch.tensor(matches, dtype=rewards.dtype, device=rewards.device)

    def update(
        self,
        prompts: Sequence[Any],
        inputs: Sequence[Mapping[str, Any]],
        prompt_ids: Ids,
        completion_ids: Ids,
        tokenizer: Any,
        logprobs_of: LogprobsOf,
        step: int,
        log: Log,
    ) -> None:
        """Take one optimizer step on each peer, on its answers to the prompts with a label."""
        answers, groups = self._answers(completion_ids, tokenizer), group_indices(prompts)
        votes = {key: self._vote(key, [answers[row] for row in rows], tokenizer) for key, rows in groups.items()}
        labelled = [key for key, vote in votes.items() if vote.label is not None]
        sampled, self._sampled = self._sampled, [{} for _ in self.models]
        log("co_learners/labelled", len(labelled) / len(votes))
        log("co_learners/consistency", sum(vote.consistency for vote in votes.values()) / len(votes))
        log("co_learners/agreement", sum(vote.unanimous for vote in votes.values()) / len(votes))
        if self.monitor is not None:
            references = {key: normalize(inputs[rows[0]][self.monitor]) for key, rows in groups.items()}
            right = [
                peer_answer == references[key]
                for by_prompt in sampled
                for key in votes
                for peer_answer in self._answers(by_prompt[key], tokenizer)
            ]
            log("co_learners/right", sum(right) / len(right))
        if not labelled:
            log("co_learners/norm", 0.0)
            return
        repeated_prompts = [prompt_ids[groups[key][0]] for key in labelled for _ in range(self.samples)]
        norms = []
        for model, by_prompt in zip(self.models, sampled, strict=True):
            completions = [ids or [tokenizer.eos_token_id] for key in labelled for ids in by_prompt[key]]
            matches: list[float] = []
            for key in labelled:
                matches += matches_label(self._answers(by_prompt[key], tokenizer), votes[key].label)
            advantages = group_relative(torch.tensor(matches), torch.arange(len(matches)) // self.samples)
            lengths = [len(ids) for ids in completions]
            loss = policy_gradient_loss(advantages, lengths)
            norms.append(model.train_step(logprobs_of, repeated_prompts, completions, max(lengths), loss, step))
        log("co_learners/norm", sum(norms) / len(norms))

    def _vote(self, key: str, own: Sequence[Answer | None], tokenizer: Any) -> Ballot:
        return collective_votes([own, *(self._answers(known[key], tokenizer) for known in self._sampled)])

    def _answers(self, rows: Ids, tokenizer: Any) -> list[Answer | None]:
        texts = tokenizer.batch_decode(rows, skip_special_tokens=True)
        return [answer(text, self.tag, self.untagged) for text in texts]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the peers and their optimizers."""
        return {"peers": [model.state_dict() for model in self._models]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of the peers and their optimizers."""
        for model, saved in zip(self._models, state["peers"], strict=True):
            model.load_state_dict(saved)
