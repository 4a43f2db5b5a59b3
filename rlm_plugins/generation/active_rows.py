"""The rows that are still being written: their tokens, and what the model remembers of them."""

from __future__ import annotations

from typing import Any

import torch

from rlm_plugins.generation.kv_cache import keep, make_roomy, survivors
from rlm_plugins.generation.kv_state import KVState
from rlm_plugins.generation.llama_step import Step
from rlm_plugins.generation.support import BY_ROW


class Live:
    """Reads each distinct prompt once, then one token of each row at a time; rows that are done are let go.

    Args:
        model: The transformers model.
        input_ids: (B, P), padded on the left.
        config: transformers' GenerationConfig, prepared.
        given: What the model is called with beside token ids.
        processors: Of the logits.
        step: Reads a token in the model's place, where positions are one line for a row.

    Attributes:
        count: All rows, B.
        rows: (L,) the numbers of those that are left.
        ids: (L, P + t) their tokens.
    """

    def __init__(
        self,
        model: Any,
        input_ids: torch.Tensor,
        config: Any,
        given: dict[str, Any],
        processors: Any,
        step: Step | None = None,
    ) -> None:
        self._model, self._config, self._given, self._processors = model, config, given, processors
        self._pad = 0 if config._pad_token_tensor is None else int(config._pad_token_tensor)
        self.ids, self.count = input_ids, len(input_ids)
        self.rows = torch.arange(self.count, device=input_ids.device)
        self._written: list[torch.Tensor] = [input_ids]
        self._step = step
        self._past: KVState | None = None
        self._cache = given["past_key_values"]
        make_roomy(self._cache)

    def read_prompts(self) -> torch.Tensor:
        """Logits of the first token (B, V), in float32."""
        first, twin = distinct(self.ids, self._given.get("attention_mask"))
        output = self._model._prefill(self.ids[first], self._config, _picked(self._given, first, self.count))
        self._given = self._model._update_model_kwargs_for_generation(output, self._given)
        places = self._given.get("position_ids")
        if self._step is not None and places is not None and places.dim() == 2:
            self._past = KVState(self._given, twin)
        else:
            self._cache.batch_select_indices(twin)
        return output.logits[:, -1].float()[twin]

    def read_tokens(self) -> torch.Tensor:
        """Logits of the next token (L, V), in float32."""
        if self._past is not None:
            return self._step(self.ids[:, -1], self._past)  # type: ignore[misc]  # it made the past
        inputs = self._model.prepare_inputs_for_generation(self.ids, next_sequence_length=1, **self._given)
        output = self._model(**inputs, return_dict=True)
        self._given = self._model._update_model_kwargs_for_generation(output, self._given)
        return output.logits[:, -1].float()

    @property
    def is_stepping(self) -> bool:
        """Whether tokens are read by the step; else the model is called, as are its prompts."""
        return self._past is not None

    def filtered(self, logits: torch.Tensor) -> torch.Tensor:
        """What the processors make of the logits (L, V)."""
        return self._processors(self.ids, logits)  # type: ignore[no-any-return]

    def write(self, token: torch.Tensor) -> None:
        """Puts the next token (L,) behind each row."""
        self.ids = torch.cat([self.ids, token[:, None]], 1)
        column = token.new_full((self.count, 1), self._pad)
        column[self.rows, 0] = token
        self._written.append(column)

    def let_go(self, done: torch.Tensor) -> None:
        """Keeps the rows that are not done (L,), of which there is at least one."""
        places = survivors(done)
        if self._past is not None:
            self._past.keep(places)
        else:
            keep(self._cache, places)
            self._given = _picked(self._given, places, len(self.rows))
        for processor in self._processors:
            for name in BY_ROW & vars(processor).keys():
                if isinstance(x := getattr(processor, name), torch.Tensor):
                    setattr(processor, name, x[places])
        self.rows, self.ids = self.rows[places], self.ids[places]

    @property
    def all_ids(self) -> torch.Tensor:
        """(B, P + T) the prompts and what was written, padded after its end."""
        return torch.cat(self._written, 1)


def distinct(ids: torch.Tensor, there: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Where each prompt (B, P) stands first, and for each row which of these is its own.

    >>> distinct(torch.tensor([[7, 8], [7, 9], [7, 8]]), None)
    (tensor([0, 1]), tensor([0, 1, 0]))
    """
    known: dict[tuple[int, ...], int] = {}
    first: list[int] = []
    twin: list[int] = []
    for row, key in enumerate((ids if there is None else torch.cat([ids, there], 1)).tolist()):
        number = known.setdefault(tuple(key), len(known))
        if number == len(first):
            first.append(row)
        twin.append(number)
    return torch.tensor(first, device=ids.device), torch.tensor(twin, device=ids.device)


def _picked(given: dict[str, Any], rows: torch.Tensor, of: int) -> dict[str, Any]:
    """What the model is called with, for some of the rows; positions may be one line for all."""
    has_rows = {name for name, x in given.items() if isinstance(x, torch.Tensor) and len(x) == of}
    return {name: x[rows] if name in has_rows else x for name, x in given.items()}
