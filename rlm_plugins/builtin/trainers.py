"""The engines that run a stage (hook ``rlm_trainers``): TRL's trainers behind one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlm_plugins import hookimpl
from rlm_plugins.builtin.reward_model_trainer import Preferences
from rlm_plugins.builtin.sft_trainer import DFT, RUN, SFT, dataset
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.schedule import named
from rlm_plugins.stage import Stage

if TYPE_CHECKING:
    from trl import GRPOConfig

_LOSS = "say it in `algorithm.policy_loss`"
_ADVANTAGE = "say it in `algorithm.advantage`"
_ENTROPY = "say `algorithm.penalties: [{name: entropy, beta: …}]`"


class GRPO:
    """Samples groups of completions and follows the equation: TRL's GRPOTrainer with the recipe's parts in it.

    `trainer:` is word for word ``trl.GRPOConfig`` (groups of one allowed, and `target_kl`, which is ours); what the
    equation decides is refused there.
    """

    needs_equation = True
    refused: Mapping[str, str] = {
        "beta": "say `algorithm.penalties: [{name: kl, beta: …}]`",
        "use_bias_correction_kl": "say `algorithm.penalties: [{name: kl, beta: …, importance_weighted: true}]`",
        "loss_type": "say it by `algorithm.aggregator` (and `policy_loss`)",
        "epsilon": _LOSS,
        "epsilon_high": _LOSS,
        "delta": _LOSS,
        "sapo_temperature_neg": _LOSS,
        "sapo_temperature_pos": _LOSS,
        "vespo_k_pos": _LOSS,
        "vespo_lambda_pos": _LOSS,
        "vespo_k_neg": _LOSS,
        "vespo_lambda_neg": _LOSS,
        "importance_sampling_level": "say `algorithm.importance: token` or `sequence`",
        "scale_rewards": _ADVANTAGE,
        "multi_objective_aggregation": _ADVANTAGE,
        "reward_weights": "give each entry of `rewards:` its `weight`",
        "top_entropy_quantile": "say it in `algorithm.token_weights`",
        "off_policy_mask_threshold": "say it in `algorithm.token_weights`",
        "entropy_coef": _ENTROPY,
        "use_adaptive_entropy": _ENTROPY,
        "entropy_coef_min": _ENTROPY,
        "entropy_coef_max": _ENTROPY,
        "entropy_coef_delta": _ENTROPY,
        "entropy_target": _ENTROPY,
        **RUN,
    }

    def config_class(self) -> type[GRPOConfig]:
        """``trl.GRPOConfig`` with `target_kl`, and groups may be of one."""
        from rlm_plugins.trainer.config import GRPOConfig

        return GRPOConfig

    def __call__(self, stage: Stage) -> None:
        """Trains the policy and saves it."""
        from rlm_plugins.rewards.fault_log import FaultLog
        from rlm_plugins.rewards.trl_adapter import setup_parts, trl_reward
        from rlm_plugins.rollout.collector import RolloutCollector
        from rlm_plugins.rollout.group_layout import check_whole_groups, columns_read
        from rlm_plugins.rollout.prompt_sampler import order_of
        from rlm_plugins.rollout.prompt_source import prompt_source_for
        from rlm_plugins.run import trainer_setup as engine
        from rlm_plugins.trainer import EquationTrainer, TrainerOptions
        from rlm_plugins.trainer.checkpoint import SaveWhenBufferIsEmpty

        assert stage.equation is not None
        multi_turn = stage.environment_spec.multi_turn
        reads_reference = stage.equation.needs("ref_logp")
        weighs_engine = any("rollout_logp" in weight.part.needs for weight in stage.equation.token_weights)
        args = engine.arguments(
            stage,
            beta=1.0 if reads_reference else 0.0,  # TRL's switch for the reference pass, no coefficient
            reward_weights=[reward.weight for reward in stage.rewards],
            **({"vllm_importance_sampling_correction": False} if weighs_engine else {}),  # TRL's would weigh again
        )
        check_whole_groups(stage.rollouts, args.num_generations, args.generation_batch_size // args.world_size)
        unseen = {"demonstration", "completion"} - {*columns_read(stage.rollouts)}
        model, tokenizer, lora = engine.weights(stage)
        if reads_reference and lora is None:
            engine.save_initial_model(model, stage)
        data = dataset(stage.environment_spec.train, without=unseen)
        order = order_of(stage.sampler, shuffle=args.shuffle_dataset)
        parts, faults = stage.equation.parts(), FaultLog()
        with engine.refusals(stage):
            collector = RolloutCollector(stage.rollouts, args.num_generations, plays=multi_turn)
            options = TrainerOptions(
                equation=stage.equation,
                rewards=stage.rewards,
                order=order,
                prompt_source=prompt_source_for(stage.sampler, parts, order, size=len(data), seed=args.seed),
                collector=collector if stage.rollouts or multi_turn else None,
                environment_spec=stage.environment_spec,
                generator=stage.generator,
                critic=stage.critic,
                speed=stage.speed,
                schedules=named((HOOKS[part.part.hook].key, part) for part in stage.parts()),
                faults=faults,
                note=stage.note,
                observer=stage.observer,
            )
            trainer = EquationTrainer(
                options,
                model=model,
                args=args,
                reward_funcs=[trl_reward(reward, faults) for reward in stage.rewards],
                train_dataset=data,
                processing_class=tokenizer,
                peft_config=lora,
            )
        setup_parts(stage.parts(), trainer.model, stage.results, tokenizer)
        micro_steps = args.steps_per_generation * args.num_iterations
        trainer.add_callback(SaveWhenBufferIsEmpty(micro_steps, args.gradient_accumulation_steps))
        engine.run(trainer, stage)
        trainer.save_critic(stage.folder / "critic")


@hookimpl
def rlm_trainers() -> dict[str, object]:
    return {"grpo": GRPO, "sft": SFT, "dft": DFT, "reward_model": Preferences}
