"""The trainer `reward_model`: a reward model from preference pairs; registered by `trainers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.builtin.sft_trainer import RUN, columns, dataset
from rlm_plugins.data.trl_formats import is_unpaired, pairs_of
from rlm_plugins.stage import RunState, Stage

if TYPE_CHECKING:
    from trl import RewardConfig

    from rlm_plugins.evaluation.scores import Report


class Preferences:
    """Reward-model training on pairs, ℓ = −log σ(r(x, y⁺) − r(x, y⁻)), by TRL's RewardTrainer.

    Bradley–Terry, as in Christiano et al., arXiv 1706.03741 eq. 1. y⁺ and y⁻ are the columns ``chosen`` and
    ``rejected``: completions as text, or as messages that follow the prompt. A column ``margin`` is subtracted from the
    difference. The adapter is trained with a new scalar head; both are saved, and the policy is unchanged: the next
    stage starts from the same weights. `trainer:` takes the fields of ``trl.RewardConfig``.

    Metrics: `pair_accuracy`, the share of held-out pairs in which the preferred completion scores higher (a tie counts
    half), and `margin`, the mean difference of the scores.
    """

    columns = ("chosen", "rejected")
    produces = "reward_model"
    metrics = ("pair_accuracy", "margin")
    refused: Mapping[str, str] = RUN

    def config_class(self) -> type[RewardConfig]:
        """Return ``trl.RewardConfig``."""
        from trl import RewardConfig

        return RewardConfig

    def prepare(self, rows: Any) -> Any:
        """Return preference pairs: of an unpaired preference, all pairs of a prompt."""
        return pairs_of(rows) if is_unpaired(columns(rows)) else rows

    def build(self, stage: Stage, run: RunState) -> Any:
        """Return the trainer of adapter and head, with all pairs."""
        from peft import LoraConfig
        from trl import RewardTrainer

        from rlm_plugins.evaluation.held_out import tokens_of_pair, with_head
        from rlm_plugins.models import reward_model as reward_files
        from rlm_plugins.trainer import options
        from rlm_plugins.trainer.observer import ObservedSteps

        class Trainer(ObservedSteps, RewardTrainer):  # type: ignore[misc]
            """RewardTrainer with atomic checkpoints and observers."""

        args = options.arguments(stage, run)
        model, tokenizer, lora = options.load_model(stage, run)
        if lora is not None:
            # with this task type PEFT trains and saves the head
            lora = LoraConfig(**{**(stage.lora or {}), "task_type": "SEQ_CLS"})
            options.save_initial_model(model, stage)
        base, digest = model.config._name_or_path, reward_files.base_digest(model.base_model)
        unused = [name for name in columns(stage.environment_spec.train) if name != "margin"]
        data = dataset(stage.environment_spec.train).map(
            lambda row: tokens_of_pair(tokenizer, row), remove_columns=unused
        )
        with options.refusals(stage):
            trainer = Trainer(
                model=with_head(model), args=args, train_dataset=data, processing_class=tokenizer, peft_config=lora
            )
        self._base = None if lora is None else (base, digest)
        return trainer

    def complete(self, trainer: Any, stage: Stage, folder: Path) -> None:
        """Save which base the adapter belongs to; a relative path from a folder beside `stage.output`."""
        from rlm_plugins.models import reward_model

        if self._base is not None and trainer.args.should_save:
            reward_model.save_base_reference(folder, *self._base)

    def evaluate(self, stage: Stage, rows: Sequence[Mapping[str, Any]], model: Any = None) -> Report:
        """Evaluate held-out pairs with `model`, or with the saved model of the stage."""
        from rlm_plugins.evaluation import held_out as pairs

        return pairs.evaluate_pairs(stage, rows, model)
