"""Supervised fine-tuning: the engine `sft`, and `dft` on top of it. (Offered by `trainers`.)"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlm_plugins.stage import Stage

if TYPE_CHECKING:
    from trl import SFTConfig

RUN = {
    "output_dir": "the run chooses it: `rlm train --out FOLDER`",
    "resume_from_checkpoint": "say `rlm train --resume`",
    "eval_strategy": "say `evaluation: {every: …}`",
    "eval_steps": "say `evaluation: {every: …}`",
}
"""Fields of every TrainingArguments that the run itself decides."""


class SFT:
    """Supervised fine-tuning on the column ``demonstration`` of the environment: TRL's SFTTrainer.

    `trainer:` is word for word ``trl.SFTConfig``.
    """

    columns = ("demonstration",)
    refused: Mapping[str, str] = RUN
    required_args: Mapping[str, Any] = {}
    """Fields of the config that the engine decides."""

    def config_class(self) -> type[SFTConfig]:
        """``trl.SFTConfig``."""
        from trl import SFTConfig

        return SFTConfig

    def __call__(self, stage: Stage) -> None:
        """Trains on every demonstration and saves the model."""
        from trl import SFTTrainer

        from rlm_plugins.run import trainer_setup as engine
        from rlm_plugins.trainer.checkpoint import DurableCheckpoints

        class Trainer(DurableCheckpoints, SFTTrainer):  # type: ignore[misc]
            """SFTTrainer with checkpoints that are whole or absent."""

        args = engine.arguments(stage, **self.required_args)
        model, tokenizer, lora = engine.weights(stage)
        data = dataset(stage.environment_spec.train).map(
            _demonstrated, remove_columns=columns(stage.environment_spec.train)
        )
        with engine.refusals(stage):
            trainer = Trainer(model=model, args=args, train_dataset=data, processing_class=tokenizer, peft_config=lora)
        engine.run(trainer, stage)


class DFT(SFT):
    """Dynamic fine-tuning: SFT that weighs each token by its probability (`loss_type: dft`)."""

    required_args: Mapping[str, Any] = {"loss_type": "dft"}
    refused: Mapping[str, str] = {**RUN, "loss_type": "it is this row's: say `algorithm: sft` for another"}


def _demonstrated(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as TRL's prompt-completion format has it, chat or plain like its prompt."""
    prompt, text = row["prompt"], row["demonstration"]
    chat = not isinstance(prompt, str)
    return {"prompt": prompt, "completion": [{"role": "assistant", "content": text}] if chat else text}


def dataset(rows: Any, without: Collection[str] = ()) -> Any:
    import datasets

    data = datasets.Dataset.from_list(list(rows)) if isinstance(rows, Sequence) else rows
    return data.remove_columns([name for name in without if name in (data.column_names or [])])


def columns(rows: Any) -> list[str]:
    return list(rows[0]) if isinstance(rows, Sequence) else list(rows.column_names or [])
