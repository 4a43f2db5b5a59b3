"""Preference optimization of a policy as a stage, by TRL's trainers: `dpo` on pairs, `kto` on labels."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from rlm_plugins.builtin.sft_trainer import RUN, columns, dataset
from rlm_plugins.data.trl_formats import is_unpaired
from rlm_plugins.stage import RunState, Stage


class DPO:
    """Direct preference optimization on the columns ``chosen`` and ``rejected``: TRL's DPOTrainer.

    ℓ = −log σ(β (log π(y⁺)/π_ref(y⁺) − log π(y⁻)/π_ref(y⁻))), arXiv 2305.18290. The reference is the policy at the
    start of the stage: the base without its adapter, or a copy of all weights. `trainer:` takes the fields of
    ``trl.DPOConfig``, `loss_type` and `beta` among them.
    """

    columns: tuple[str, ...] = ("chosen", "rejected")
    refused: Mapping[str, str] = RUN
    kinds = ("DPOConfig", "DPOTrainer")

    def config_class(self) -> Any:
        import trl

        return getattr(trl, self.kinds[0])

    def prepare(self, rows: Any) -> Any:
        """Return preference pairs as they are."""
        return rows

    def build(self, stage: Stage, run: RunState) -> Any:
        """Return TRL's trainer, with all examples."""
        import trl

        from rlm_plugins.trainer import options
        from rlm_plugins.trainer.observer import ObservedSteps

        args = options.arguments(stage, run)
        model, processing_class, lora = options.load_model(stage, run)
        rows = dataset(stage.environment_spec.train)
        kept = ("prompt", "label", *self.columns)
        data = rows.map(_messages, remove_columns=[name for name in columns(rows) if name not in kept])
        kind = type(self.kinds[1], (ObservedSteps, getattr(trl, self.kinds[1])), {})
        reference = copy.deepcopy(model) if lora is None else None
        with options.refusals(stage):
            return kind(
                model=model,
                ref_model=reference,
                args=args,
                train_dataset=data,
                processing_class=processing_class,
                peft_config=lora,
            )


class KTO(DPO):
    """Kahneman–Tversky optimization on the columns ``completion`` and ``label``, or on pairs: TRL's KTOTrainer.

    A completion labeled true is made likelier than the reference point, one labeled false less likely, without pairs:
    arXiv 2402.01306. `trainer:` takes the fields of ``trl.KTOConfig``.
    """

    columns = ("completion", "label")
    kinds = ("KTOConfig", "KTOTrainer")

    def prepare(self, rows: Any) -> Any:
        """Return unpaired preferences: of a pair, both completions."""
        if is_unpaired(columns(rows)):
            return rows
        from trl import unpair_preference_dataset

        names = ("prompt", "chosen", "rejected")
        data = dataset(rows)
        unused = [name for name in columns(data) if name not in names]
        return unpair_preference_dataset(data.remove_columns(unused)) if {*names} <= {*columns(data)} else rows


def _messages(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return completions that are text as a turn of the assistant, where the prompt is messages."""
    if isinstance(row["prompt"], str):
        return {}
    texts = {name: row[name] for name in ("chosen", "rejected", "completion") if isinstance(row.get(name), str)}
    return {name: [{"role": "assistant", "content": text}] for name, text in texts.items()}
