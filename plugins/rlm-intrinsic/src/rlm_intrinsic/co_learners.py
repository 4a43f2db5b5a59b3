"""RLCCF: several policies on one base that vote on each other's answers and learn together (shaper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

from jaxtyping import Float
from pydantic import Field, NonNegativeFloat, PositiveInt
from rlm_algorithms.auxiliary_part import AuxiliaryPart, policy_gradient_loss

from rlm_intrinsic.majority import Answer, answer, count_votes, group_indices, majority_of, normalize
from rlm_plugins.builtin.advantages import group_relative
from rlm_plugins.data.answer_extraction import Untagged
from rlm_plugins.equation.batch import Generate, Log, LogprobsOf
from rlm_plugins.lazy import torch


class Ballot(NamedTuple):
    """Result of a vote on one prompt.

    Args:
        label: The answer with the largest weighted count; None for a tie, or without votes.
        consistency: Mean of SC over the models, from 0 to 1.
        unanimous: True if all models have the same most frequent answer.
    """

    label: Answer | None
    consistency: float
    unanimous: bool


def self_consistency(voter: Sequence[Answer | None]) -> Fraction:
    """Return SC = max_a count(a) / K of a model's K answers to one prompt; 0 without answers."""
    return Fraction(max(count_votes(voter).values(), default=0), max(len(voter), 1))


def collective_votes(voters: Sequence[Sequence[Answer | None]]) -> Ballot:
    """Count the votes of several models on one prompt, Σₙ SCₙ · countₙ, as exact fractions, so that ties are exact.

    >>> collective_votes([["6", "6"], ["5", "4"]])
    Ballot(label='6', consistency=0.75, unanimous=False)
    """
    favorites = {majority_of(count_votes(voter)) for voter in voters}
    weights = [self_consistency(voter) for voter in voters]
    total: dict[Answer, Fraction] = {}
    for voter, weight in zip(voters, weights, strict=True):
        for choice, count in count_votes(voter).items():
            total[choice] = total.get(choice, Fraction(0)) + weight * count
    return Ballot(majority_of(total), float(sum(weights) / len(voters)), len(favorites) == 1 and None not in favorites)


Ids = list[list[int]]


class CoLearners(AuxiliaryPart):
    """Reward the answer that the policy and its peers agree on; the peers are adapters that train on the same label.

    r′ᵢ = rᵢ + weight · 1[aᵢ = a*], a* = argmax_a Σₙ SCₙ · countₙ(a), SCₙ = max_a countₙ(a) / Kₙ over the policy and its
    `peers`. Each peer samples `samples` answers to every prompt, and after each generation batch takes one step of
    AdamW on

        L = −1/T Σⱼ Aⱼ Σₜ log π(yⱼₜ),    Aⱼ = (ρⱼ − mean ρ) / (std ρ + 10⁻⁴) over its answers to one prompt.

    ρⱼ = 1[aⱼ = a*], and T counts the tokens of all its answers with a label. RLCCF, arXiv 2508.12338: all models train,
    each on the vote of all. There they are different models. Here they are adapters on one base with equal initial
    weights, so at first they have the same errors and differ only by their samples.

    A tie has no label: neither policy nor peers train on that prompt. A completion without an answer does not vote.
    The peers sample with the policy's temperature, up to `max_completion_length`. The cost is to sample
    `samples` · `peers` more completions per prompt, and to train on them. Their state is in checkpoints. They are no
    adapters of the PEFT model, so they are not saved with the policy.

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
        prompt_of = {repr(prompt): prompt for prompt in prompts}
        for model, completions_of in zip(self.models, self._sampled, strict=True):
            missing = [key for key in prompt_of if key not in completions_of]
            with model.active():
                sampled = generate([prompt_of[key] for key in missing for _ in range(self.samples)])
            completions_of |= {key: sampled[n * self.samples : (n + 1) * self.samples] for n, key in enumerate(missing)}
        answers, matches = self._answers(completion_ids, tokenizer), [0.0] * len(prompts)
        for key, group in group_indices(prompts).items():
            label = self._vote(key, [answers[index] for index in group], tokenizer).label
            for index in group if label is not None else ():
                matches[index] = float(answers[index] == label)
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
        votes = {key: self._vote(key, [answers[index] for index in group], tokenizer) for key, group in groups.items()}
        labelled = [key for key, vote in votes.items() if vote.label is not None]
        sampled, self._sampled = self._sampled, [{} for _ in self.models]
        log("co_learners/labelled", len(labelled) / len(votes))
        log("co_learners/consistency", sum(vote.consistency for vote in votes.values()) / len(votes))
        log("co_learners/agreement", sum(vote.unanimous for vote in votes.values()) / len(votes))
        if self.monitor is not None:
            references = {key: normalize(inputs[group[0]][self.monitor]) for key, group in groups.items()}
            is_right = [
                peer_answer == references[key]
                for completions_of in sampled
                for key in votes
                for peer_answer in self._answers(completions_of[key], tokenizer)
            ]
            log("co_learners/right", sum(is_right) / len(is_right))
        if not labelled:
            log("co_learners/norm", 0.0)
            return
        repeated_prompts = [prompt_ids[groups[key][0]] for key in labelled for _ in range(self.samples)]
        norms = []
        for model, completions_of in zip(self.models, sampled, strict=True):
            completions = [ids or [tokenizer.eos_token_id] for key in labelled for ids in completions_of[key]]
            given = ((key, own) for key in labelled for own in self._answers(completions_of[key], tokenizer))
            matches = [float(own == votes[key].label) for key, own in given]
            advantages = group_relative(torch.tensor(matches), torch.arange(len(matches)) // self.samples)
            lengths = [len(ids) for ids in completions]
            loss = policy_gradient_loss(advantages, lengths)
            norms.append(model.train_step(logprobs_of, repeated_prompts, completions, max(lengths), loss, step))
        log("co_learners/norm", sum(norms) / len(norms))

    def _vote(self, key: str, group_answers: Sequence[Answer | None], tokenizer: Any) -> Ballot:
        peer_answers = [self._answers(completions_of[key], tokenizer) for completions_of in self._sampled]
        return collective_votes([group_answers, *peer_answers])

    def _answers(self, completion_ids: Ids, tokenizer: Any) -> list[Answer | None]:
        texts = tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
        return [answer(text, self.tag, self.untagged) for text in texts]

    def state_dict(self) -> dict[str, Any]:
        return {"peers": [model.state_dict() for model in self._models]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for model, saved in zip(self._models, state["peers"], strict=True):
            model.load_state_dict(saved)
