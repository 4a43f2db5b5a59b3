"""A generative verifier with weights of its own that is trained beside the policy (RL Tango)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from jaxtyping import Bool, Float
from pydantic import Field, NonNegativeFloat, PositiveInt
from rlm_algorithms.auxiliary_part import AuxiliaryPart, policy_gradient_loss, without_special_tokens

from rlm_judge.prompt_builder import fill_template
from rlm_plugins.builtin.advantages import group_relative
from rlm_plugins.equation.batch import Generate, Log, LogprobsOf
from rlm_plugins.equation.knobs import RewardName, named
from rlm_plugins.lazy import torch

Ids = list[list[int]]


class TrainedVerifier(AuxiliaryPart):
    """Adds the verdicts of a verifier to the reward; it is trained by reinforcement learning, on the same completions.

    r′ᵢ = rᵢ + α vᵢ. vᵢ is the share of `samples` verdicts that accept completion i, α is `weight`. Verifier and policy
    are two adapters on one base. After each generation batch whose number is a multiple of `every` the verifier takes
    one step of AdamW on

        L = −1/T Σⱼ Aⱼ Σₜ log π_v(zⱼₜ),    Aⱼ = (ρⱼ − mean ρ) / (std ρ + 10⁻⁴) over the verdicts of one completion.

    ρⱼ is 1 if verdict j agrees with `outcome` (½ or more is right), else 0, and T the tokens of all verdicts. RL Tango,
    arXiv 2505.15034: a generator and a generative verifier that train each other, the verifier by outcomes alone. The
    paper's verifier judges step by step, so that v has a value per step, and takes one update per three of the
    generator (`every: 3`). It also weights rare classes up, which is not included.

    `template` is the question to the verifier. A verdict is read from its end: `accept` or `reject`; anything else
    accepts nothing and is never right. Verdicts are sampled with the policy's temperature, up to
    `max_completion_length`. Completions that `outcome` did not score, or that a filter dropped, do not train the
    verifier. `outcome` may have the weight 0: then the policy is trained by the verifier alone.

    The state is in checkpoints; PEFT does not know the verifier, so it is in no file of the policy. Metrics: `correct`,
    the share of verdicts that agree with the outcome, before the update; `accepted`; `norm`.
    """

    def __init__(
        self,
        *,
        outcome: RewardName = "accuracy",
        weight: NonNegativeFloat = 0.5,
        samples: PositiveInt = 4,
        every: PositiveInt = 1,
        template: str = "{task}\n\nProposed answer:\n{answer}\n\nIs it right? End with yes or no.",
        accept: str = "yes",
        reject: str = "no",
        learning_rate: NonNegativeFloat = 1e-4,
        max_grad_norm: NonNegativeFloat = 1.0,
        lora: Annotated[dict[str, Any], Field(min_length=1)] | None = None,
        batch_size: PositiveInt = 64,
    ) -> None:
        super().__init__(
            "trained_verifier",
            lora=lora,
            learning_rate=learning_rate,
            max_grad_norm=max_grad_norm,
            batch_size=batch_size,
        )
        self.outcome, self.weight, self.samples, self.every = outcome, weight, samples, every
        self.template, self.accept, self.reject = template, accept, reject
        self._batches = 0
        self._verdicts: dict[str, Ids] = {}

    def __call__(
        self,
        rewards: Float[torch.Tensor, "B"],
        prompts: Sequence[Any],
        completion_ids: Ids,
        tokenizer: Any,
        generate: Generate,
    ) -> Float[torch.Tensor, "B"]:
        questions = self._questions(prompts, completion_ids, tokenizer)
        new = [question for question in dict.fromkeys(questions) if question not in self._verdicts]
        messages = [_message(question) for question in new for _ in range(self.samples)]
        with self.model.active():
            verdicts = generate(messages)
        for number, question in enumerate(new):
            self._verdicts[question] = verdicts[number * self.samples : (number + 1) * self.samples]
        accepted = [self._read(self._verdicts[question], tokenizer).count(True) for question in questions]
        share = torch.tensor(accepted, dtype=rewards.dtype, device=rewards.device) / self.samples
        return rewards + self.weight * share

    def update(
        self,
        mask: Bool[torch.Tensor, "B T"],
        named_rewards: Mapping[str, torch.Tensor],
        prompts: Sequence[Any],
        completion_ids: Ids,
        tokenizer: Any,
        logprobs_of: LogprobsOf,
        step: int,
        log: Log,
    ) -> None:
        outcome = named(named_rewards, self.outcome, where="shapers: trained_verifier.outcome")
        questions = self._questions(prompts, completion_ids, tokenizer)
        usable = (mask.any(1) & ~outcome.isnan()).tolist()
        right = dict(zip(questions, (outcome >= 0.5).tolist(), strict=True))
        chosen = list(dict.fromkeys(question for question, use in zip(questions, usable, strict=True) if use))
        kept, self._verdicts, self._batches = self._verdicts, {}, self._batches + 1
        if not chosen:
            return
        accepts = [(question, accept) for question in chosen for accept in self._read(kept[question], tokenizer)]
        scores = [float(accept is right[question]) for question, accept in accepts]
        log("trained_verifier/correct", sum(scores) / len(scores))
        log("trained_verifier/accepted", sum(accept is True for _, accept in accepts) / len(scores))
        if self._batches % self.every:
            return
        question_ids = [_token_ids(tokenizer, question) for question in chosen for _ in range(self.samples)]
        verdicts = [ids or [tokenizer.eos_token_id] for question in chosen for ids in kept[question]]
        advantages = group_relative(torch.tensor(scores), torch.arange(len(scores)) // self.samples)
        lengths = [len(ids) for ids in verdicts]
        loss = policy_gradient_loss(advantages, lengths)
        norm = self.model.train_step(logprobs_of, question_ids, verdicts, max(lengths), loss, step)
        log("trained_verifier/norm", norm)

    def _questions(self, prompts: Sequence[Any], completion_ids: Ids, tokenizer: Any) -> list[str]:
        decoded = tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
        answers = [without_special_tokens(tokenizer, answer) for answer in decoded]
        tasks = [prompt if isinstance(prompt, str) else prompt[-1]["content"] for prompt in prompts]
        pairs = zip(tasks, answers, strict=True)
        return [fill_template(self.template, {"answer": answer, "task": task}) for task, answer in pairs]

    def _read(self, verdicts: Ids, tokenizer: Any) -> list[bool | None]:
        """Return True for each verdict that accepts, False for one that rejects, else None."""
        texts = [text.strip().rstrip(".") for text in tokenizer.batch_decode(verdicts, skip_special_tokens=True)]
        return [True if text.endswith(self.accept) else False if text.endswith(self.reject) else None for text in texts]

    def state_dict(self) -> dict[str, Any]:
        return {"batches": self._batches, "model": super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._batches, self._verdicts = state["batches"], {}
        super().load_state_dict(state["model"])


def _message(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def _token_ids(tokenizer: Any, question: str) -> list[int]:
    encoding = tokenizer.apply_chat_template(
        _message(question), add_generation_prompt=True, tokenize=True, return_dict=True
    )
    ids: list[int] = encoding["input_ids"]
    return ids
