"""The trainer `step_supervision`: trains a process reward model on labelled steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlm_plugins.builtin.sft_trainer import RUN, dataset
from rlm_plugins.errors import RecipeError
from rlm_plugins.stage import RunState, Stage

if TYPE_CHECKING:
    from transformers import TrainingArguments

    from rlm_plugins.evaluation.scores import Report


class StepSupervision:
    """A process reward model from labelled steps, by transformers' Trainer, with one logit at the end of each step.

    ℓ = −1/n Σₖ [yₖ log σ(sₖ) + (1 − yₖ) log(1 − σ(sₖ))] over the n labelled steps of an optimizer step; sₖ is the logit
    at the line break after step k. Lightman et al., arXiv 2305.20050; with sampled labels Math-Shepherd, 2312.08935.

    Columns: ``steps``, the texts of an answer, and ``labels``, true or false (a share, or null: unknown) for each;
    files saved by the shaper `step_labels` need ``columns: {steps: completions}``. All weights are trained, from
    the policy's, with a new head; the policy itself does not change. The result is a model for token classification,
    which `process_model` loads by its path. `trainer:` takes the fields of ``transformers.TrainingArguments``.

    It has two metrics. `pairs` is the share of pairs (correct, wrong) of steps in which the correct one has the higher
    score; the steps are at the same position of different answers to one prompt, and ½ is guessing. `step_accuracy` is
    the share of labelled steps on the correct side of ½; a model that rejects every step of a hard prompt gets it high.
    """

    columns = ("steps", "labels")
    produces = "process_model"
    metrics = ("pairs", "step_accuracy")
    refused: Mapping[str, str] = {**RUN, "remove_unused_columns": "this trainer tokenizes the columns itself"}

    def config_class(self) -> type[TrainingArguments]:
        from transformers import TrainingArguments

        return TrainingArguments

    def build(self, stage: Stage, run: RunState) -> Any:
        """Return the trainer of all weights and the head, with every labelled step."""
        from rlm_algorithms.score_head import with_head
        from transformers import Trainer as Stock

        from rlm_plugins.trainer import options
        from rlm_plugins.trainer.observer import ObservedSteps
        from rlm_process.labelled_steps import PadCollator, cross_entropy, tokenize_examples
        from rlm_process.process_model import LONGEST, SEPARATOR, PRMTokenizer

        class Trainer(ObservedSteps, Stock):  # type: ignore[misc]
            """Trainer with atomic checkpoints and observers."""

        if stage.lora is not None:
            problem = "`step_supervision` trains all weights and does not support LoRA"
            raise RecipeError(problem, where="model.lora", hint="remove `lora` from this stage")
        args = options.arguments(stage, run, remove_unused_columns=False)
        model, tokenizer, _ = options.load_model(stage, run)
        reader = PRMTokenizer(tokenizer, separator=SEPARATOR, longest=LONGEST)
        with options.refusals(stage):
            return Trainer(
                model=with_head(model, "TokenClassification"),
                args=args,
                train_dataset=tokenize_examples(reader, dataset(stage.environment_spec.train)),
                processing_class=tokenizer,
                data_collator=PadCollator(tokenizer.pad_token_id),
                compute_loss_func=cross_entropy,
            )

    def evaluate(self, stage: Stage, rows: Sequence[Mapping[str, Any]], model: Any = None) -> Report:
        from rlm_process import labelled_steps

        return labelled_steps.evaluate(stage, rows, model)
