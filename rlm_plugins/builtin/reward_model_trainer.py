"""The engine `reward_model`: a reward is learned from which of two answers was preferred. (Offered by `trainers`.)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlm_plugins.builtin.sft_trainer import RUN, columns, dataset
from rlm_plugins.stage import Stage

if TYPE_CHECKING:
    from trl import RewardConfig

    from rlm_plugins.evaluation.evaluate import Report


class Preferences:
    """A reward model from pairs, ℓ = −log σ(r(x, y⁺) − r(x, y⁻)), by TRL's RewardTrainer.

    Bradley–Terry, as in Christiano et al., arXiv 1706.03741 eq. 1. y⁺ and y⁻ are the columns ``chosen`` and
    ``rejected``: text that answers the prompt, or messages that follow it. A column ``margin`` is taken off the
    difference. The adapter is trained with a new head of one number; both stand in its files, and the policy is left
    as it was: the next stage starts where this one did. `trainer:` is word for word ``trl.RewardConfig``.

    It is judged by `pair_accuracy`, the share of held-out pairs in which the preferred answer scores higher (a tie is
    half a pair), and `margin`, the mean difference of the scores.
    """

    columns = ("chosen", "rejected")
    produces = "reward_model"
    metrics = ("pair_accuracy", "margin")
    refused: Mapping[str, str] = {**RUN, "model_init_kwargs": "say it in `model:`"}

    def config_class(self) -> type[RewardConfig]:
        """``trl.RewardConfig``."""
        from trl import RewardConfig

        return RewardConfig

    def __call__(self, stage: Stage) -> None:
        """Trains adapter and head on every pair and saves them."""
        from peft import LoraConfig
        from trl import RewardTrainer

        from rlm_plugins.evaluation.preference_pairs import tokens_of_pair, with_head
        from rlm_plugins.models import reward_model_io as reward_files
        from rlm_plugins.run import trainer_setup as engine
        from rlm_plugins.trainer.checkpoint import DurableCheckpoints

        class Trainer(DurableCheckpoints, RewardTrainer):  # type: ignore[misc]
            """RewardTrainer with checkpoints that are whole or absent."""

        args = engine.arguments(stage)
        model, tokenizer, lora = engine.weights(stage)
        if lora is not None:
            lora = LoraConfig(**{**(stage.lora or {}), "task_type": "SEQ_CLS"})  # PEFT then trains and saves the head
            engine.give_address(model, stage)
        base, stands_on = model.config._name_or_path, reward_files.base_digest(model.base_model)
        left = [name for name in columns(stage.environment_spec.train) if name != "margin"]
        data = dataset(stage.environment_spec.train).map(
            lambda row: tokens_of_pair(tokenizer, row), remove_columns=left
        )
        with engine.refusals(stage):
            trainer = Trainer(
                model=with_head(model), args=args, train_dataset=data, processing_class=tokenizer, peft_config=lora
            )
        engine.run(trainer, stage)
        if lora is not None and args.should_save:
            reward_files.save_base_reference(stage.output, base, stands_on)

    def evaluate(self, stage: Stage, rows: Sequence[Mapping[str, Any]], model: Any = None) -> Report:
        """How many held-out pairs are told apart, by `model` or by what the stage has saved."""
        from rlm_plugins.evaluation import preference_pairs as pairs

        return pairs.evaluate(stage, rows, model)
