"""Prompts of each generation batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from rlm_plugins.rollout.prompt_source import Order, PromptSampler, PromptSource
from rlm_plugins.trainer.context import TrainerContext


@dataclass
class Prompts:
    """Selects the prompts of each generation batch, in the order of a sampler or from a prompt source.

    Attributes:
        inputs: Examples of this process in the current generation batch, one per completion.
        index: (B,) row number of each prompt in the data set, of all processes; None without a source.
    """

    context: TrainerContext
    order: Order
    source: PromptSource | None
    dataset: Any
    inputs: Sequence[Mapping[str, Any]] = field(default=(), init=False)
    index: torch.Tensor | None = field(default=None, init=False)
    _sampler: PromptSampler | None = field(default=None, init=False)

    def sampler(self, dataset: Any = None) -> PromptSampler:
        """Return the sampler of TRL's data loader."""
        args = self.context.args
        size = len(self.dataset if dataset is None else dataset)
        self._sampler = PromptSampler(
            order=lambda epoch: self.order(size, epoch, args.seed),
            size=size,
            prompts=args.generation_batch_size // args.num_generations,
            generations=args.num_generations,
            repeats=self.context.micro_steps_per_generation,
        )
        return self._sampler

    def begin_epoch(self, epoch: int) -> None:
        """Set the epoch of the sampler.

        The data loader passes it on through two samplers of batches. If it resumes within an epoch on several
        processes, three lie above this one.
        """
        if self._sampler is not None:
            self._sampler.set_epoch(epoch)

    def next(self, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the examples of the next generation batch: from the data loader, or from the prompt source."""
        self.inputs, self.index = inputs, None
        if self.source is not None and self.context.is_training:
            generations = self.context.args.num_generations
            count = self.context.args.generation_batch_size // generations
            rows = torch.tensor(self.source.take(count, self.context.step))
            self.index = rows.repeat_interleave(generations).to(self.context.accelerator.device)
            local = self.index[self.context.local_rows(len(inputs))].tolist()
            self.inputs = inputs = [dict(self.dataset[i]) for i in local]
        return inputs


@dataclass
class PromptTokens:
    """Renders prompts and answers as token ids."""

    tokenize: Callable[[list[Any]], tuple[list[list[int]], Any, Any]]
    tokenizer: Any
    processing_class: Any
    eos_token_ids: Sequence[int]
    template: Mapping[str, Any]

    def prompt_ids(self, prompts: Sequence[Any]) -> list[list[int]]:
        """Return the token ids of prompts."""
        return self.tokenize(list(prompts))[0]

    def answer_ids(self, prompt: Any, text: str) -> list[int]:
        """Return `text` as the policy would generate it after `prompt`: token ids up to the end token.

        Of a chat these are the tokens that the template adds for the assistant's turn. A template may render the
        prompt differently when an answer follows; then they are the tokens of the text.
        """
        ids: list[int] = []
        if not isinstance(prompt, str):
            message, (prefix,) = {"role": "assistant", "content": text}, self.prompt_ids([prompt])
            chat = self.processing_class.apply_chat_template(
                [*prompt, message], tokenize=True, return_dict=True, **self.template
            )["input_ids"]
            ids = chat[len(prefix) :] if chat[: len(prefix)] == prefix else []
        ids = ids or self.tokenizer(text, add_special_tokens=False)["input_ids"]
        end = next((i for i, token in enumerate(ids) if token in self.eos_token_ids), None)
        return [*ids, self.tokenizer.eos_token_id] if end is None else ids[: end + 1]
