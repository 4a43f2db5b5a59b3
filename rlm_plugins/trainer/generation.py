"""How the policy writes: TRL's call of `generate` goes to the generator of the recipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rlm_plugins.generation.call import written
from rlm_plugins.generation.output import Generation, OnFinished
from rlm_plugins.registry.part import Bound
from rlm_plugins.trainer.prompts import Problems


class Generating(Problems):
    """The same, whose policy writes through a generator wherever TRL would call `generate`.

    Args:
        generator: None: transformers' own. Weights that are spread over processes are always written with by that.
    """

    def __init__(self, *, generator: Bound | None = None, **rest: Any) -> None:
        self._generator = generator
        self._told: list[tuple[list[int], torch.Tensor, torch.Tensor]] = []
        super().__init__(**rest)

    def _asks_to_tell(self) -> bool:
        """Whether somebody wants to know what was thought of each token when it was written."""
        return False

    def _finished(self) -> OnFinished | None:
        """Who wants to be told of rows that are done while others are still written."""
        return None

    def _generate_single_turn(self, *args: Any, **options: Any) -> tuple[list[list[int]], Any]:
        if self._generator is None or self.is_fsdp_enabled or self.is_deepspeed_enabled:
            return super()._generate_single_turn(*args, **options)  # type: ignore[no-any-return]
        self._told = []
        with self._generator_writes() as pages:
            ids, logprobs = super()._generate_single_turn(*args, **options)
        for page in pages:
            if page.logp is not None and page.entropy is not None:
                self._told = list(zip(ids, page.logp, page.entropy, strict=True))
        return ids, logprobs

    @contextmanager
    def _generator_writes(self) -> Iterator[list[Generation]]:
        """While it lasts, the policy's `generate` is the generator's; yields what it will have written."""
        model, pages = self.accelerator.unwrap_model(self.model), []
        own = vars(model).get("generate")  # a model may have brought one along
        usual, tell, finished = model.generate, self._asks_to_tell(), self._finished()

        def generate(*, generation_config: Any, **inputs: Any) -> torch.Tensor:
            page = written(self._generator, usual, model, inputs, generation_config, tell=tell, finished=finished)
            pages.append(page)
            return page.ids

        model.generate = generate
        try:
            yield pages
        finally:
            del model.generate
            if own is not None:
                model.generate = own

    def _as_written(self, ids: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor] | None:
        """What was thought of the last `width` tokens of each row (B, width) when they were written, if it was told.

        Log-probabilities and entropies, 0 after the end of a row; None where other rows stand there now.
        """
        if len(self._told) != len(ids):
            return None
        logp, entropy = (torch.zeros(len(ids), width, device=ids.device) for _ in range(2))
        here = ids[:, ids.shape[1] - width :].tolist()
        for i, (said, *thought) in enumerate(self._told):
            if here[i][: len(said)] != said:
                return None
            for whole, x in zip((logp, entropy), thought, strict=True):
                whole[i, : len(said)] = x[: len(said)]
        return logp, entropy
