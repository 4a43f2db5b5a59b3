"""Trainers of a stage (hook ``rlm_trainers``): those of TRL behind one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins import hookimpl
from rlm_plugins.builtin.sft_trainer import DFT, RUN, SFT, dataset
from rlm_plugins.recipe.trl_fields import GRPO as GRPO_CONFIG
from rlm_plugins.recipe.trl_fields import decided, slot_of
from rlm_plugins.stage import RunState, Stage

if TYPE_CHECKING:
    from trl import GRPOConfig


class GRPO:
    """Samples groups of completions and follows the equation: TRL's GRPOTrainer with the recipe's parts in it.

    `trainer:` takes the fields of ``trl.GRPOConfig``; groups may have one completion, and `target_kl` is added. A field
    that the equation replaces is an error that names the slot.
    """

    needs_equation = True
    refused: Mapping[str, str] = {
        **{field: f"say `{slot_of(GRPO_CONFIG, field)}`" for field in decided(GRPO_CONFIG)},
        "reward_weights": "give each entry of `rewards:` its `weight`",
        **RUN,
    }

    def config_class(self) -> type[GRPOConfig]:
        """``trl.GRPOConfig`` with `target_kl`, and groups may be of one."""
        from rlm_plugins.trainer.config import GRPOConfig

        return GRPOConfig

    def build(self, stage: Stage, run: RunState) -> Any:
        """Return the trainer of the policy."""
        from rlm_plugins.rewards.fault import FaultLog
        from rlm_plugins.rewards.trl_adapter import setup_parts, trl_reward
        from rlm_plugins.rollout.group_layout import check_whole_groups, columns_read
        from rlm_plugins.trainer import EquationTrainer
        from rlm_plugins.trainer.checkpoint import SaveWhenBufferIsEmpty
        from rlm_plugins.trainer.options import (
            arguments,
            check_sharding,
            load_model,
            options_of,
            refusals,
            save_initial_model,
        )

        assert stage.equation is not None
        reads_reference = stage.equation.requires("ref_logp")
        corrects_rollout = any("rollout_logp" in weight.part.required_data for weight in stage.equation.token_weights)
        args = arguments(
            stage,
            run,
            beta=1.0 if reads_reference else 0.0,  # TRL's switch for the reference pass, no coefficient
            reward_weights=[reward.weight for reward in stage.rewards] or None,
            **({"vllm_importance_sampling_correction": False} if corrects_rollout else {}),  # TRL's would weigh again
        )
        check_sharding(stage, args)
        check_whole_groups(stage.rollouts, args.num_generations, args.generation_batch_size // args.world_size)
        of_sections = {name for section in stage.sections.values() for name in section.columns}
        unseen = {"demonstration", "completion"} - {*columns_read(stage.rollouts), *of_sections}
        model, processing_class, lora = load_model(stage, run)
        if (reads_reference and lora is None) or stage.engine is not None:
            save_initial_model(model, stage)
        data = dataset(stage.environment_spec.train, dropped=unseen)
        faults = FaultLog()
        with refusals(stage):
            options = options_of(stage, args, data, faults, run)
            trainer = EquationTrainer(
                options,
                model=model,
                args=args,
                reward_funcs=[trl_reward(reward, faults) for reward in stage.rewards] or [_no_reward],
                train_dataset=data,
                processing_class=processing_class,
                peft_config=lora,
            )
        setup_parts(stage.parts(), trainer.model, stage.place.results, trainer.tokenizer)
        trainer.add_callback(SaveWhenBufferIsEmpty())
        return trainer

    def complete(self, trainer: Any, stage: Stage, folder: Path) -> None:
        """Save the critic beside the result."""
        trainer.save_critic(stage.folder / "critic")


def _no_reward(completions: Sequence[Any], **_: Any) -> list[float]:
    """Return zeros: TRL requires a reward, and an algorithm with a teacher alone has none."""
    return [0.0] * len(completions)


@hookimpl
def rlm_trainers() -> dict[str, object]:
    return {"grpo": GRPO, "sft": SFT, "dft": DFT}
