"""Sequences that are still being decoded: their tokens and their KV cache."""

from __future__ import annotations

from typing import Any

import torch

from rlm_plugins.generation.compatibility import SEQUENCE_STATE
from rlm_plugins.generation.kv_cache import evict, preallocate, surviving_indices
from rlm_plugins.generation.kv_state import KVState
from rlm_plugins.generation.llama_step import LlamaStep


class ActiveSequences:
    """Prefills each distinct prompt once, then decodes token by token; finished sequences are evicted.

    Args:
        model: The transformers model.
        input_ids: (B, P), padded on the left.
        config: Prepared `GenerationConfig` of transformers.
        model_kwargs: Inputs of the model besides token ids.
        processors: Logits processors.
        step: Replaces the model's one-token forward if position ids are two-dimensional.

    Attributes:
        total: Number of all sequences, B.
        indices: (L,) indices of the active sequences.
        ids: (L, P + t) token ids of the active sequences.
    """

    def __init__(
        self,
        model: Any,
        input_ids: torch.Tensor,
        config: Any,
        model_kwargs: dict[str, Any],
        processors: Any,
        step: LlamaStep | None = None,
    ) -> None:
        self._model, self._config, self._model_kwargs, self._processors = model, config, model_kwargs, processors
        self._pad = 0 if config._pad_token_tensor is None else int(config._pad_token_tensor)
        self.ids, self.total = input_ids, len(input_ids)
        self.indices = torch.arange(self.total, device=input_ids.device)
        self._columns: list[torch.Tensor] = [input_ids]
        self._step = step
        self._state: KVState | None = None
        self._cache = model_kwargs["past_key_values"]
        preallocate(self._cache)

    def prefill(self) -> torch.Tensor:
        """Return logits of the first completion token (B, V), in float32."""
        first, prompt_of = distinct_prompts(self.ids, self._model_kwargs.get("attention_mask"))
        output = self._model._prefill(self.ids[first], self._config, _select(self._model_kwargs, first, self.total))
        self._model_kwargs = self._model._update_model_kwargs_for_generation(output, self._model_kwargs)
        position_ids = self._model_kwargs.get("position_ids")
        # The step computes rotary angles per sequence, so it needs one position for each.
        if self._step is not None and position_ids is not None and position_ids.dim() == 2:
            self._state = KVState(self._model_kwargs, prompt_of)
        else:
            self._cache.batch_select_indices(prompt_of)
        return output.logits[:, -1].float()[prompt_of]

    def next_logits(self) -> torch.Tensor:
        """Return logits of the next token (L, V), in float32."""
        if self._state is not None:
            return self._step(self.ids[:, -1], self._state)  # type: ignore[misc]  # a state implies a step
        inputs = self._model.prepare_inputs_for_generation(self.ids, next_sequence_length=1, **self._model_kwargs)
        output = self._model(**inputs, return_dict=True)
        self._model_kwargs = self._model._update_model_kwargs_for_generation(output, self._model_kwargs)
        return output.logits[:, -1].float()

    @property
    def uses_step(self) -> bool:
        """True if `LlamaStep` computes the logits after the prefill."""
        return self._state is not None

    def process(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply the logits processors to (L, V)."""
        return self._processors(self.ids, logits)  # type: ignore[no-any-return]

    def append(self, token: torch.Tensor) -> None:
        """Append the next token (L,) to each active sequence."""
        self.ids = torch.cat([self.ids, token[:, None]], 1)
        column = token.new_full((self.total, 1), self._pad)
        column[self.indices, 0] = token
        self._columns.append(column)

    def evict(self, done: torch.Tensor) -> None:
        """Remove finished sequences; at least one must remain.

        Args:
            done: (L,) True for finished sequences.
        """
        survivors = surviving_indices(done)
        if self._state is not None:
            self._state.evict(survivors)
        else:
            evict(self._cache, survivors)
            self._model_kwargs = _select(self._model_kwargs, survivors, len(self.indices))
        # A processor may keep tensors with one entry per sequence; others hold for any batch.
        for processor in self._processors:
            for name in SEQUENCE_STATE & vars(processor).keys():
                x = getattr(processor, name)
                if isinstance(x, torch.Tensor):
                    setattr(processor, name, x[survivors])
        self.indices, self.ids = self.indices[survivors], self.ids[survivors]

    @property
    def all_ids(self) -> torch.Tensor:
        """(B, P + T) prompts and completions, padded after their end."""
        return torch.cat(self._columns, 1)


def distinct_prompts(ids: torch.Tensor, attention_mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices of the first occurrences of each prompt (D,) and the prompt of each sequence (B,).

    Args:
        ids: (B, P) token ids.
        attention_mask: (B, P), or None without padding.

    >>> distinct_prompts(torch.tensor([[7, 8], [7, 9], [7, 8]]), None)
    (tensor([0, 1]), tensor([0, 1, 0]))
    """
    numbers: dict[tuple[int, ...], int] = {}
    first: list[int] = []
    prompt_of: list[int] = []
    # Padding belongs to the key: the pad token may also occur as a token of a prompt.
    keys = ids if attention_mask is None else torch.cat([ids, attention_mask], 1)
    for index, key in enumerate(keys.tolist()):
        number = numbers.setdefault(tuple(key), len(numbers))
        if number == len(first):
            first.append(index)
        prompt_of.append(number)
    return torch.tensor(first, device=ids.device), torch.tensor(prompt_of, device=ids.device)


def _select(model_kwargs: dict[str, Any], indices: torch.Tensor, batch_size: int) -> dict[str, Any]:
    """Select sequences in the model's inputs; a tensor shared by all sequences, such as positions, stays as it is."""
    batched = {name for name, x in model_kwargs.items() if isinstance(x, torch.Tensor) and len(x) == batch_size}
    return {name: x[indices] if name in batched else x for name, x in model_kwargs.items()}
