"""What the policy was before the update: read by a pass of its own, said by a later one, or thought while it wrote."""

from __future__ import annotations

from typing import Any

import torch

from rlm_plugins.errors import PartError
from rlm_plugins.kernels.rng_guard import restored
from rlm_plugins.packing import fallback_reasons as reasons
from rlm_plugins.packing.pack import layouts
from rlm_plugins.registry.part import Bound
from rlm_plugins.trainer.logprobs import Reading, padded_rows
from rlm_plugins.trainer.vocab_statistics import TOLD, read_packed, read_vocabulary


class Recalling(Reading):
    """The same, that knows where the old policy's log-probabilities and entropies come from."""

    def __init__(self, **rest: Any) -> None:
        self._old_is_next = False
        self._stands_anywhere: bool | None = None
        self._draws: bool | None = None
        super().__init__(**rest)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        *chosen: Any,
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        if self._old_is_next and not torch.is_grad_enabled():
            self._old_is_next = False  # TRL's first pass over a generation
            if self._old_comes_later():
                return None, None, None  # type: ignore[return-value]
            if (told := self._as_written(input_ids, logits_to_keep)) is not None:
                return told[0], None, None
        return super()._get_per_token_logps_and_entropies(
            model, input_ids, attention_mask, logits_to_keep, *chosen, **options
        )

    def _reads_old(self) -> bool:
        """Whether TRL reads what the policy was before the update: the first of its passes over a generation."""
        return self.model.training and reasons.reads_old(self.args) and not self.use_vllm

    def _asks_to_tell(self) -> bool:
        """Whether what was thought while writing spares a pass, and is what that pass would say: so it is in float32.

        The thoughts must be those of whole rows, so the policy writes alone and in one go.
        """
        exact = self.accelerator.mixed_precision == "no" and next(self.model.parameters()).dtype == torch.float32
        alone = self._writers is None and not self.tools
        asked = (self._reads_old() and not self._old_comes_later()) or self._scores_by_old()
        wanted = asked or self._scoring_names("entropy")
        return (
            self._speed.reuse_old_logprobs
            and self.model.training
            and exact
            and alone
            and wanted
            and self._thinks_as_it_reads()
        )

    def _thinks_as_it_reads(self) -> bool:
        """Whether a row is written at the temperature it is read at, and read the same wherever it stands.

        Positions are counted from the prompt's first token where a row is written, and from the left edge, padding
        included, where TRL reads it. Only a model that has no positions of its own (rotary ones, say) thinks the same.
        """
        how = self.generation_config
        if not how.do_sample or how.temperature != self.temperature:  # `generation_kwargs` may say so
            return False
        if self._stands_anywhere is None:
            ids, there = self._made_up()
            there[:, :3] = 0
            with torch.no_grad(), restored(ids.device):
                shifted, alone = self._read_padded(ids, there, 4), self._read_padded(ids[:, 3:], there[:, 3:], 4)
            self._stands_anywhere = torch.allclose(shifted, alone, rtol=0, atol=1e-4)
        return self._stands_anywhere

    def _old_comes_later(self) -> bool:
        """Whether the first pass of the update says what the policy was before it, and nobody asks for that earlier."""
        first = reasons.old_is_first(self._speed, self.args) and self.model.training
        return first and not self._scores_by_old() and not self._draws_numbers()

    def _draws_numbers(self) -> bool:
        """Whether the policy draws random numbers while it reads (dropout, say): then two passes are not the same."""
        if self._draws is None:
            ids, there = self._made_up()
            with torch.no_grad(), restored(ids.device) as drawn:
                super()._get_per_token_logps_and_entropies(self.model, ids, there, 4)
                self._draws = drawn()
        return self._draws

    def _made_up(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A row to try the policy on: token ids (1, 8), and 1 where there is a token."""
        words = self.model.config.get_text_config().vocab_size
        ids = (torch.arange(1, 9, device=self.accelerator.device) * 7 % words).unsqueeze(0)
        return ids, torch.ones_like(ids)

    def _scores_by_old(self) -> bool:
        """Whether the scoring room asks what the policy was before the update."""
        return reasons.old_is_scored(self.equation, self._who_learns())

    def _read_before(self, out: dict[str, Any]) -> dict[str, torch.Tensor]:
        """One pass of the policy before the update, where a scoring part names what comes of it: name → (B, T)."""
        lacks_old = self._scores_by_old() and "old_per_token_logps" not in out
        wanted = [name for name in ("entropy", *TOLD) if self._scoring_names(name)]
        if not (lacks_old or wanted):
            return {}
        size = self.args.per_device_train_batch_size
        if set(wanted) & set(TOLD):
            found = self._read_vocabulary(out, size)
        elif (told := self._as_written(*padded_rows(out)[::2])) is not None:
            found = dict(zip(("old_logp", "entropy"), told, strict=True))
        else:
            with torch.no_grad():
                logp, entropy, _ = self._read(self.model, out, size, compute_entropy=bool(wanted))
            found = {"old_logp": logp, "entropy": entropy}
        if lacks_old:
            out["old_per_token_logps"] = found["old_logp"]
        return {name: found[name] for name in wanted}

    def _read_vocabulary(self, out: dict[str, Any], rows: int) -> dict[str, torch.Tensor]:
        """The same with what only the whole distribution tells.

        Raises:
            PartError: The rows hold images.
        """
        if "pixel_values" in out:
            raise PartError(f"{' and '.join(TOLD)} are read of text only", hint="name parts that do without them")
        whole = padded_rows(out)
        with self.accelerator.autocast():
            if self._reads_packed(*whole):
                parts = layouts(*whole, budget=rows * whole[0].shape[1])
                return read_packed(self.model, parts, temperature=self.temperature)
            return read_vocabulary(self.model, *whole, temperature=self.temperature, rows=rows)

    def _scoring_names(self, name: str) -> bool:
        """Whether a part needs `name` in the scoring room, or to learn from."""
        return reasons.scores_by(name, self.equation, self._who_learns())

    def _who_learns(self) -> list[Bound]:
        """Every part that may have a memory."""
        return [*self._learners(), *([self._sampler] if self._sampler is not None else [])]

    def _learners(self) -> list[Bound]:
        """Every part that may have a memory, but the sampler, which learns draw by draw."""
        sources = self._writers.sources if self._writers is not None else ()
        return [*(reward.part for reward in self._rewards), *self.equation.parts(), *sources]
