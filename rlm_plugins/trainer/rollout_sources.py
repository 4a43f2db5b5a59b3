"""Who writes the rows: the policy through TRL, and the rollout sources beside it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import gather_object

from rlm_plugins.rollout.collector import CollectedBatch, RolloutCollector
from rlm_plugins.rollout.group_layout import POLICY
from rlm_plugins.trainer.generation import Generating


class Writing(Generating):
    """The same, with rows written by several sources; what a source may ask of the trainer is public here.

    Args:
        writers: Give every row to its writer; None: the policy writes all.
    """

    def __init__(self, *, writers: RolloutCollector | None = None, **rest: Any) -> None:
        self._writers = writers
        self._written: CollectedBatch | None = None
        self._inputs: Sequence[Any] = ()
        super().__init__(**rest, rollout_func=None if writers is None else Writing._rollouts)

    @property
    def tokenizer(self) -> Any:
        """The tokenizer itself, also where a processor surrounds it."""
        return self._tokenizer

    def prompt_ids(self, prompts: Sequence[Any]) -> list[list[int]]:
        """The prompts as the model reads them: token ids."""
        ids: list[list[int]] = self._tokenize_prompts(list(prompts))[0]
        return ids

    def answer_ids(self, prompt: Any, text: str) -> list[int]:
        """`text` as the policy would have written it after `prompt`: token ids up to the end token.

        Of a chat, what the template adds to the prompt for the assistant's turn; where the template does not write
        a prompt with its answer as it writes the prompt alone, the tokens of the text.
        """
        ids: list[int] = []
        if not isinstance(prompt, str):
            turn, (asked,) = {"role": "assistant", "content": text}, self.prompt_ids([prompt])
            options = {"tools": self.tools or None, "chat_template": self.chat_template, **self.chat_template_kwargs}
            both = self.processing_class.apply_chat_template(
                [*prompt, turn], tokenize=True, return_dict=True, **options
            )["input_ids"]
            ids = both[len(asked) :] if both[: len(asked)] == asked else []
        ids = ids or self._tokenizer(text, add_special_tokens=False)["input_ids"]
        end = next((i for i, token in enumerate(ids) if token in self.eos_token_ids), None)
        return [*ids, self._tokenizer.eos_token_id] if end is None else ids[: end + 1]

    def write(
        self, prompts: Sequence[Any], prefixes: Sequence[Sequence[int]] | None = None, *, greedy: bool = False
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        """The policy writes.

        Args:
            prompts: One per row; none is fine.
            prefixes: Per row, token ids its completion starts with; they are not returned again.
            greedy: The most likely token each time.

        Returns:
            Token ids per row, and their log-probabilities where the engine reports them (vLLM).
        """
        starts = [list(start) for start in prefixes or [[]] * len(prompts)]
        idle = self._idle(len(prompts))
        if not prompts and not idle:
            return [], None
        ids, images, fields = self._tokenize_prompts([*prompts, *(row["prompt"] for row in self._inputs[:idle])])
        with self._sampling(greedy):
            written, logprobs = self._generate_single_turn(
                [[*prompt, *start] for prompt, start in zip(ids, [*starts, *[[]] * idle], strict=True)],
                images,
                fields,
                num_generations=1,
            )
        room = [self.max_completion_length - len(start) for start in starts]
        cut = [row[:most] for row, most in zip(written, room, strict=False)]
        return cut, logprobs and [row[:most] for row, most in zip(logprobs, room, strict=False)]

    def _idle(self, rows: int) -> int:
        """How many rows this process writes for nobody, where all processes must write equally many at a time."""
        sharded = self.is_fsdp_enabled or (
            self.is_deepspeed_enabled and self.accelerator.state.deepspeed_plugin.zero_stage == 3
        )
        shared = self.use_vllm and (self.vllm_mode == "server" or self.args.vllm_tensor_parallel_size > 1)
        if self.accelerator.num_processes == 1 or not (sharded or shared):
            return 0
        most: int = max(gather_object([rows]))
        return most - rows

    @contextmanager
    def _sampling(self, greedy: bool) -> Iterator[None]:
        """While it lasts, the policy writes greedily (or as it always does)."""
        holder, name = (self.vllm_generation, "temperature") if self.use_vllm else (self, "generation_config")
        usual = getattr(holder, name)
        if greedy:
            setattr(holder, name, 0.0 if self.use_vllm else _greedy(usual))
        try:
            yield
        finally:
            setattr(holder, name, usual)

    def set_temperature(self, temperature: float) -> None:
        """From now on the policy writes at this temperature, and is read at it (log-probabilities, entropies)."""
        self.temperature = temperature
        if self.use_vllm:
            self.vllm_generation.temperature = temperature
        else:
            self.generation_config.temperature = self.generation_kwargs["temperature"] = temperature
        for model in (model for model in (self.model, self.ref_model) if model is not None):
            reading_temperature(self.accelerator.unwrap_model(model)).cell_contents = temperature

    @staticmethod
    def _rollouts(prompts: Sequence[Any], trainer: Writing) -> dict[str, Any]:
        """TRL's `rollout_func`."""
        first = trainer.accelerator.process_index * len(prompts)
        assert trainer._writers is not None
        rows = trainer._written = trainer._writers(prompts, trainer._inputs, first, trainer)
        logprobs: Any = rows.logprobs
        if all(row is None for row in logprobs):
            logprobs = None
        else:  # TRL takes None for "not known", and weighs such a token by 1
            ids = rows.completion_ids
            logprobs = [[None] * len(ids[i]) if row is None else row for i, row in enumerate(logprobs)]
        return {
            "prompt_ids": rows.prompt_ids,
            "completion_ids": rows.completion_ids,
            "logprobs": logprobs,
            **({"env_mask": rows.mask} if "episodes" in rows.columns else {}),  # so that TRL's lengths are the model's
            **rows.columns,
        }

    def _said_of_rows(self, rows: CollectedBatch, completion_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Who wrote each row (B,), and which of its tokens are trained on (B, T)."""
        trained = torch.ones_like(completion_ids)
        for i, mask in enumerate(rows.mask):
            if mask is not None:
                trained[i, : len(mask)] = torch.tensor(mask, device=trained.device).to(trained.dtype)
        return {"source": torch.tensor(rows.source, device=trained.device), "trained": trained}

    def _sources(self, source: torch.Tensor | None, rows: int) -> dict[str, torch.Tensor]:
        """Label of a writer → the rows (B,) it wrote."""
        if source is None or self._writers is None:
            return {POLICY: torch.ones(rows, dtype=torch.bool, device=self.accelerator.device)}
        return {label: source == number for number, label in enumerate(self._writers.labels)}


def _greedy(usual: Any) -> Any:
    config = copy.deepcopy(usual)
    config.do_sample = False
    config.temperature = config.top_p = config.top_k = config.min_p = None
    return config


def reading_temperature(model: Any) -> Any:
    """The cell in which TRL's pass over `model` keeps the temperature that it divides the logits by."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    forward = getattr(base, "_original_forward", base.forward).__func__  # accelerate may have wrapped it
    return forward.__closure__[forward.__code__.co_freevars.index("temperature")]
