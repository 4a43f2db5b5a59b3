"""Prompts of each generation batch, and decoding with the policy by the generator of the recipe."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.generator_call import Generation, OnFinished, generate
from rlm_plugins.rollout.prompt_source import Order, PromptSampler, PromptSource
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.workers.distributed import gather_lists


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


logger = logging.getLogger(__name__)
GREEDY = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None, "min_p": None}
Completions = tuple[list[list[int]], list[list[float]] | None]
"""Token ids per completion, and their log-probs if the inference engine reports them (vLLM)."""


@dataclass
class PolicyGeneration:
    """Generates with the policy.

    Attributes:
        recorded: Per completion of the last call the token ids of its prompt and its own, log-probs and entropies;
            empty: none were recorded.
    """

    context: TrainerContext
    prompts: Prompts
    tokens: PromptTokens
    generator: Bound | None
    decoding: Any
    single_turn: Callable[..., Completions]
    recorded: list[tuple[list[int], list[int], torch.Tensor, torch.Tensor]] = field(default_factory=list, init=False)
    _has_warned: bool = field(default=False, init=False)

    # -- TRL's call

    def run(
        self,
        trl_single_turn: Callable[..., Completions],
        return_logprobs: Callable[[], bool],
        on_finished: OnFinished | None,
        *args: Any,
        **options: Any,
    ) -> Completions:
        """Run TRL's `_generate_single_turn`, with `generate` of the model replaced by the recipe's generator.

        Sharded models use `transformers.generate`.
        """
        policy = self.context.accelerator.unwrap_model(self.context.model)
        if self.generator is None or self.context.is_sharded or self._is_replaced(policy):
            return trl_single_turn(*args, **options)
        self.recorded = []
        with self._replaced_generate(return_logprobs(), on_finished) as outputs:
            ids, logprobs = trl_single_turn(*args, **options)
        for output in outputs:
            if output.logp is not None and output.entropy is not None:
                self.recorded = list(zip(args[0], ids, output.logp, output.entropy, strict=True))
        return ids, logprobs

    def _is_replaced(self, policy: Any) -> bool:
        """Return True if the model has a `generate` of its own, set on the instance: it is called instead."""
        replaced = "generate" in vars(policy)
        if replaced and not self._has_warned:
            part = getattr(self.generator, "part", None)
            logger.warning("the generator '%s' is not used: `generate` of the model was replaced", part and part.name)
            self._has_warned = True
        return replaced

    @contextmanager
    def _replaced_generate(self, return_logprobs: bool, on_finished: OnFinished | None) -> Iterator[list[Generation]]:
        """Replace the policy's `generate` by the generator; yield the list of what it returns."""
        model, outputs = self.context.accelerator.unwrap_model(self.context.model), []
        original = model.generate
        options: dict[str, Any] = {"return_logprobs": return_logprobs, "on_finished": on_finished}

        def generate_with(*, generation_config: Any, **inputs: Any) -> torch.Tensor:
            outputs.append(generate(self.generator, original, model, inputs, generation_config, **options))
            return outputs[-1].ids

        model.generate = generate_with
        try:
            yield outputs
        finally:
            del model.generate

    def recorded_logps(
        self, input_ids: torch.Tensor, width: int, positions: Sequence[int] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return log-probs and entropies (B, width) recorded for the last `width` tokens of each sequence.

        Both are 0 after the end of a completion. None if nothing was recorded, or for other sequences.

        Args:
            input_ids: (B, P + width) prompts, padded on the left, and completions.
            width: Tokens of a completion, with its padding.
            positions: Positions of the sequences in the batch of the last call; None: all, in order.
        """
        positions = range(len(self.recorded)) if positions is None else positions
        if len(positions) != len(input_ids) or not all(position < len(self.recorded) for position in positions):
            return None
        logp, entropy = (torch.zeros(len(input_ids), width, device=input_ids.device) for _ in range(2))
        start = input_ids.shape[1] - width
        for i, (sequence, position) in enumerate(zip(input_ids.tolist(), positions, strict=True)):
            prompt, ids, token_logps, token_entropies = self.recorded[position]
            if sequence[start - len(prompt) : start + len(ids)] != [*prompt, *ids]:
                return None
            logp[i, : len(ids)] = token_logps[: len(ids)]
            entropy[i, : len(ids)] = token_entropies[: len(ids)]
        return logp, entropy

    # -- calls for rollout sources, parts and episodes

    def generate(
        self, prompts: Sequence[Any], prefixes: Sequence[Sequence[int]] | None = None, *, greedy: bool = False
    ) -> Completions:
        """Generate completions: see `EquationTrainer.generate`."""
        starts, num_dummies = [list(start) for start in prefixes or [[]] * len(prompts)], self.num_dummies(len(prompts))
        if not prompts and not num_dummies:
            return [], None
        dummy_prompts = [row["prompt"] for row in self.prompts.inputs[:num_dummies]]
        ids, images, fields = self.tokens.tokenize([*prompts, *dummy_prompts])
        prefixed = [[*prompt, *start] for prompt, start in zip(ids, [*starts, *[[]] * num_dummies], strict=True)]
        with self.mode(greedy=greedy):
            generated, logprobs = self.single_turn(prefixed, images, fields, num_generations=1)
        limits = [self.context.args.max_completion_length - len(start) for start in starts]
        completions = [row[:limit] for row, limit in zip(generated, limits, strict=False)]  # without the dummies
        return completions, logprobs and [row[:limit] for row, limit in zip(logprobs, limits, strict=False)]

    def continue_ids(self, ids: list[list[int]]) -> Completions:
        """Generate one turn after each sequence of token ids."""
        num_dummies = self.num_dummies(len(ids))
        dummies = self.tokens.prompt_ids([self.prompts.inputs[0]["prompt"]]) * num_dummies if num_dummies else []
        generated, logprobs = self.single_turn([*ids, *dummies], None, {}, num_generations=1)
        return generated[: len(ids)], logprobs and logprobs[: len(ids)]

    def num_dummies(self, count: int) -> int:
        """Return how many dummy sequences this process adds, where all processes must generate equally many."""
        args, accelerator = self.context.args, self.context.accelerator
        plugin = accelerator.state.deepspeed_plugin
        partitioned = self.context.is_sharded and (plugin is None or plugin.zero_stage == 3)
        if accelerator.num_processes == 1 or args.use_vllm or not partitioned:
            return 0
        return max(gather_lists([count])) - count

    def samples_at(self, temperature: float) -> bool:
        """Return True if decoding samples at this temperature."""
        return bool(self.decoding.do_sample and self.decoding.temperature == temperature)

    @contextmanager
    def mode(self, *, greedy: bool) -> Iterator[None]:
        """Decode greedily inside a ``with`` block; with `greedy=False` change nothing."""
        changes = ({"temperature": 0.0} if self.context.args.use_vllm else GREEDY) if greedy else {}
        original = {name: getattr(self.decoding, name) for name in changes}
        try:
            for name, value in changes.items():
                setattr(self.decoding, name, value)
            yield
        finally:
            for name, value in original.items():
                setattr(self.decoding, name, value)
