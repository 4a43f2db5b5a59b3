"""Supervised fine-tuning: the trainers `sft` and `dft`; registered by `trainers`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rlm_plugins.data.images import COLUMNS as IMAGES
from rlm_plugins.data.trl_formats import is_unpaired
from rlm_plugins.lazy import datasets, trl
from rlm_plugins.stage import RunState, Stage

RUN = {
    "output_dir": "set by the run: `rlm train --out FOLDER`",
    "resume_from_checkpoint": "use `rlm train --resume`",
    "eval_strategy": "set `evaluation: {every: …}`",
    "eval_steps": "set `evaluation: {every: …}`",
    "load_best_model_at_end": "set `evaluation: {keep: best, every: …}`",
    "metric_for_best_model": "set `evaluation: {keep: best, every: …, metric: …}`",
    "greater_is_better": "`evaluation: {keep: best}` keeps the model of the largest score",
    "hub_strategy": "`push_to_hub: true` uploads the result of the stage, once",
    "hub_always_push": "`push_to_hub: true` uploads the result of the stage, once",
    "hub_token": "a recipe is stored with the run and exported with it: `hf auth login`, or the variable HF_TOKEN",
    "model_init_kwargs": "set it under `model:`, where the weights are loaded",
}
"""Fields of the config that the run sets."""


class SFT:
    """Supervised fine-tuning on the column ``demonstration`` of the environment: TRL's SFTTrainer.

    `trainer:` takes the fields of ``trl.SFTConfig``.
    """

    columns = ("demonstration",)
    refused: Mapping[str, str] = RUN
    required_args: Mapping[str, Any] = {}
    """Fields of the config that the trainer sets."""

    def config_class(self) -> type[trl.SFTConfig]:
        """Return ``trl.SFTConfig``."""
        return trl.SFTConfig

    def prepare(self, rows: Any) -> Any:
        """Return examples with demonstrations: of a preference, the preferred completions."""
        names = columns(rows)
        if "chosen" in names and "demonstration" not in names:
            return dataset(rows).rename_column("chosen", "demonstration").remove_columns("rejected")
        if not is_unpaired(names):
            return rows
        liked = dataset(rows).filter(lambda row: row["label"])
        return liked.rename_column("completion", "demonstration").remove_columns("label")

    def build(self, stage: Stage, run: RunState) -> Any:
        """Return the trainer, with all demonstrations."""
        from rlm_plugins.trainer import options
        from rlm_plugins.trainer.observer import ObservedSteps

        class Trainer(ObservedSteps, trl.SFTTrainer):  # type: ignore[misc]
            """SFTTrainer with atomic checkpoints and observers."""

        args = options.arguments(stage, run, **self.required_args)
        model, processing_class, lora = options.load_model(stage, run)
        data = dataset(stage.environment_spec.train).map(
            _prompt_completion,
            remove_columns=[name for name in columns(stage.environment_spec.train) if name not in IMAGES],
        )
        with options.refusals(stage):
            return Trainer(
                model=model, args=args, train_dataset=data, processing_class=processing_class, peft_config=lora
            )


class DFT(SFT):
    """Dynamic fine-tuning: SFT with each token weighted by its probability (`loss_type: dft`)."""

    required_args: Mapping[str, Any] = {"loss_type": "dft"}
    refused: Mapping[str, str] = {**RUN, "loss_type": "part of this algorithm: use `algorithm: sft` for another"}


def _prompt_completion(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an example in TRL's prompt-completion format, conversational if its prompt is; with no prompt as text."""
    prompt, text = row["prompt"], row["demonstration"]
    if prompt == "":
        return {"text": text}
    chat = not isinstance(prompt, str)
    if not isinstance(text, str):  # messages
        return {"prompt": prompt, "completion": text}
    return {"prompt": prompt, "completion": [{"role": "assistant", "content": text}] if chat else text}


def dataset(rows: Any, dropped: Collection[str] = ()) -> Any:
    """Return examples as a data set, without some columns."""
    data = datasets.Dataset.from_list(list(rows)) if isinstance(rows, Sequence) else rows
    return data.remove_columns([name for name in dropped if name in (data.column_names or [])])


def columns(rows: Any) -> list[str]:
    """Return the column names of examples."""
    if isinstance(rows, Sequence):
        return list(rows[0]) if rows else []
    return list(rows.column_names or next(iter(rows), {}))
