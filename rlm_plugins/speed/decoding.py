"""A decoding loop that reads each prompt once and lets go of rows that are done: the samples of transformers, sooner.

Transformers' `generate` prepares everything (settings, processors of the logits, stopping criteria, the cache) and
hands it over (`custom_generate`); only its loop is ours. Who was dropped is never missed: no row looks at another, and
each takes its own share of the noise that is drawn for all.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Int

from rlm_plugins.speed.cache import make_roomy
from rlm_plugins.speed.decodes import BY_ROW, why_not
from rlm_plugins.speed.merging import merged
from rlm_plugins.speed.sampling import Draw, as_multinomial, greedy
from rlm_plugins.speed.written import Written, thoughts

LIVE = 0.9
"""Rows are dropped once at most this share of those that are kept is still being written."""


Finished = Callable[[list[int], list[list[int]]], None]
"""Is told the numbers of rows that are done, and the tokens that were written on each."""


class Unfit(Exception):
    """Why this loop cannot stand in for transformers' own; nothing was drawn yet."""


@torch.no_grad()
def decode(
    model: Any,
    input_ids: Int[torch.Tensor, "B P"],
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    *,
    draw: Draw = as_multinomial,
    merge: bool = True,
    tell: bool = False,
    finished: Finished | None = None,
    **model_kwargs: Any,
) -> Int[torch.Tensor, "B W"] | Written:
    """What `custom_generate` of transformers' `generate` may be: prompts and what was written after them.

    Args:
        model: The transformers model; adapters are within.
        input_ids: Padded on the left.
        logits_processor: Applied to the logits of the rows that are left.
        stopping_criteria: Likewise.
        generation_config: Prepared.
        draw: Chooses tokens where the config samples.
        merge: Whether adapters are added to their base meanwhile.
        tell: Whether log-probabilities and entropies are asked for.
        finished: Is told of rows as soon as they are done.
        **model_kwargs: Prepared: the mask, the positions, the cache.

    Raises:
        Unfit: Something is asked for that this loop does not do.
    """
    if reason := why_not(logits_processor, stopping_criteria, generation_config, model_kwargs):
        raise Unfit(reason)
    loop = _Loop(model, input_ids, generation_config, model_kwargs, logits_processor)
    choose = draw if generation_config.do_sample else greedy
    told: list[tuple[torch.Tensor, ...]] | None = [] if tell else None
    with merged(model) if merge else nullcontext():
        logits = loop.read_prompts()
        while True:
            token = choose(loop.filtered(logits), loop.rows, loop.count)
            if told is not None:
                told.append((loop.rows, *thoughts(logits, token, generation_config)))
            done = loop.take(token, stopping_criteria)
            if finished is not None and len(done):
                finished(loop.rows[done].tolist(), loop.ids[done, input_ids.shape[1] :].tolist())
            if loop.shrink():
                break
            logits = loop.read_tokens()
    return loop.all_ids if told is None else Written.of(loop.all_ids, told)


class _Loop:
    """The rows that are left, and what the model remembers of them.

    Attributes:
        count: All rows.
        rows: The numbers of those that are left.
        ids: (L, P + t) their tokens.
    """

    def __init__(
        self, model: Any, input_ids: torch.Tensor, config: Any, given: dict[str, Any], processors: Any
    ) -> None:
        self._model, self._config, self._given, self._processors = model, config, given, processors
        self._pad = config._pad_token_tensor
        self.ids, self.count = input_ids, len(input_ids)
        self.rows = torch.arange(self.count, device=input_ids.device)
        self._alive = torch.ones_like(self.rows, dtype=torch.bool)
        self._written: list[torch.Tensor] = [input_ids]
        make_roomy(given["past_key_values"])

    def read_prompts(self) -> torch.Tensor:
        """Logits of the first token (B, V), in float32."""
        first, twin = distinct(self.ids, self._given.get("attention_mask"))
        every = dict(self._given)
        output = self._model._prefill(self.ids[first], self._config, _picked(every, first, self.count))
        self._given = self._model._update_model_kwargs_for_generation(output, every)
        self._given["past_key_values"].batch_select_indices(twin)
        return output.logits[:, -1].float()[twin]

    def read_tokens(self) -> torch.Tensor:
        """Logits of the next token (L, V), in float32."""
        inputs = self._model.prepare_inputs_for_generation(self.ids, next_sequence_length=1, **self._given)
        output = self._model(**inputs, return_dict=True)
        self._given = self._model._update_model_kwargs_for_generation(output, self._given)
        return output.logits[:, -1].float()

    def filtered(self, logits: torch.Tensor) -> torch.Tensor:
        """What is left of the logits (L, V)."""
        return self._processors(self.ids, logits)  # type: ignore[no-any-return]

    def take(self, token: torch.Tensor, done: Any) -> torch.Tensor:
        """Writes the next token (L,) down; returns where the rows stand that are done with it."""
        if self._pad is not None:
            token = token.where(self._alive, self._pad)
        self.ids = torch.cat([self.ids, token[:, None]], 1)
        column = token.new_full((self.count, 1), 0 if self._pad is None else int(self._pad))
        column[self.rows, 0] = token
        self._written.append(column)
        ended = self._alive & done(self.ids, None)
        self._alive &= ~ended
        return ended.nonzero().squeeze(1)

    def shrink(self) -> bool:
        """Drops the rows that are done, where they are many; says whether all are."""
        left = int(self._alive.sum())
        if left and left <= LIVE * len(self.rows):
            self._drop(self._alive.nonzero().squeeze(1))
        return not left

    def _drop(self, kept: torch.Tensor) -> None:
        """Lets go of all rows but these."""
        self._given = _picked(self._given, kept, len(self.rows))
        self._given["past_key_values"].batch_select_indices(kept)
        for processor in self._processors:
            for name in BY_ROW & vars(processor).keys():
                if isinstance(x := getattr(processor, name), torch.Tensor):
                    setattr(processor, name, x[kept])
        self.rows, self.ids, self._alive = self.rows[kept], self.ids[kept], self._alive[kept]

    @property
    def all_ids(self) -> torch.Tensor:
        """(B, P + T) the prompts and what was written."""
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
