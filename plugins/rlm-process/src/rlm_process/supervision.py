"""The engine `step_supervision`: a process reward model is trained on steps that somebody has labelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlm_plugins.algorithm import Algorithm
from rlm_plugins.builtin.sft_trainer import RUN, dataset
from rlm_plugins.errors import RecipeError
from rlm_plugins.stage import Stage

if TYPE_CHECKING:
    from transformers import TrainingArguments

    from rlm_plugins.evaluation.held_out import Report

SEPARATOR, LONGEST = "\n", 4096


class StepSupervision:
    """A process reward model from labelled steps, by transformers' Trainer: one number is read at the end of each.

    ℓ = −1/n Σₖ [yₖ log σ(sₖ) + (1 − yₖ) log(1 − σ(sₖ))] over the n labelled steps of an optimiser step; sₖ is read at
    the line break after step k. Lightman et al., arXiv 2305.20050; with sampled labels Math-Shepherd, 2312.08935.

    Columns: ``steps``, the texts of an answer, and ``labels``, true or false (a share, or null: not known) for each;
    what the shaper `step_labels` saves is read with ``columns: {steps: completions}``. All weights are trained, from
    the policy's, with a new head, and the policy is left as it was. The result is a model for token classification,
    which `process_model` reads by its path. `trainer:` is word for word ``transformers.TrainingArguments``.

    It is judged by `pairs`, how often a step labelled right has a higher score than one labelled wrong at the same
    place of another answer to the same question (½ is guessing; it takes several answers to each), and by
    `step_accuracy`, the share of labelled steps on the right side of ½, large for who calls every step of a hard one
    wrong.
    """

    columns = ("steps", "labels")
    produces = "process_model"
    metrics = ("pairs", "step_accuracy")
    refused: Mapping[str, str] = {**RUN, "remove_unused_columns": "rows are turned into tokens here"}

    def config_class(self) -> type[TrainingArguments]:
        """``transformers.TrainingArguments``."""
        from transformers import TrainingArguments

        return TrainingArguments

    def __call__(self, stage: Stage) -> None:
        """Trains every weight and the head on every labelled step, and saves them."""
        from transformers import Trainer as Stock

        from rlm_plugins.evaluation.preference_pairs import with_head
        from rlm_plugins.run import trainer_setup as engine
        from rlm_plugins.trainer.checkpoint import DurableCheckpoints
        from rlm_process.labelled import Padded, cross_entropy, examples
        from rlm_process.reader import Reader

        class Trainer(DurableCheckpoints, Stock):  # type: ignore[misc]
            """Trainer with checkpoints that are whole or absent."""

        if stage.lora is not None:
            problem = "a process reward model is trained with all its weights"
            raise RecipeError(problem, where="model.lora", hint="leave `lora` out of this stage")
        args = engine.arguments(stage, remove_unused_columns=False)
        model, tokenizer, _ = engine.weights(stage)
        reader = Reader(tokenizer, separator=SEPARATOR, longest=LONGEST)
        with engine.refusals(stage):
            trainer = Trainer(
                model=with_head(model, "TokenClassification"),
                args=args,
                train_dataset=examples(reader, dataset(stage.environment_spec.train)),
                processing_class=tokenizer,
                data_collator=Padded(tokenizer.pad_token_id),
                compute_loss_func=cross_entropy,
            )
        engine.run(trainer, stage)

    def evaluate(self, stage: Stage, rows: Sequence[Mapping[str, Any]], model: Any = None) -> Report:
        """How many held-out steps are judged as they are labelled, by `model` or by what the stage has saved."""
        from rlm_process import labelled

        return labelled.evaluate(stage, rows, model)


process_reward_model = Algorithm(
    about="A process reward model: which steps are good, learned from the columns `steps` and `labels`.",
    source="Lightman et al., arXiv 2305.20050; Math-Shepherd, 2312.08935",
    pitfalls="It says what its labels say. Sampled ones (`step_labels`) call a right step wrong from which the policy "
    "never gets home, and a wrong one right where luck does; a stronger policy makes better labels. It is right about "
    "answers like those it has seen, and a policy that is paid by it leaves them.",
    trainer="step_supervision",
    family="off-policy and supervised",
)
