"""The engines that run a stage (hook ``rlm_trainers``): TRL's trainers behind one call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlm_plugins import hookimpl
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.schedule import named
from rlm_plugins.stage import Stage

if TYPE_CHECKING:
    from trl import GRPOConfig, SFTConfig

_LOSS = "say it in `algorithm.policy_loss`"
_ADVANTAGE = "say it in `algorithm.advantage`"
_RUN = {
    "output_dir": "the run chooses it: `rlm train --out FOLDER`",
    "resume_from_checkpoint": "say `rlm train --resume`",
    "eval_strategy": "say `evaluation: {every: …}`",
    "eval_steps": "say `evaluation: {every: …}`",
}
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
        **_RUN,
    }

    def config_class(self) -> type[GRPOConfig]:
        """``trl.GRPOConfig`` with `target_kl`, and groups may be of one."""
        from rlm_plugins.training.groups import GRPOConfig

        return GRPOConfig

    def __call__(self, stage: Stage) -> None:
        """Trains the policy and saves it."""
        from rlm_plugins.trainer import EquationTrainer
        from rlm_plugins.training import engine
        from rlm_plugins.training.checkpoint import SaveWhenBufferIsEmpty
        from rlm_plugins.training.desk import desk_for, order_of
        from rlm_plugins.training.fault_book import Faults
        from rlm_plugins.training.judge import trl_reward
        from rlm_plugins.training.sharing import check_whole_groups, columns_read
        from rlm_plugins.training.writing import Writers

        assert stage.equation is not None
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
            _give_address(model, stage)
        data = _dataset(stage.world.train, without=unseen)
        order = order_of(stage.sampler, shuffle=args.shuffle_dataset)
        parts, faults = stage.equation.parts(), Faults()
        with engine.refusals(stage):
            trainer = EquationTrainer(
                equation=stage.equation,
                rewards=stage.rewards,
                critic=stage.critic,
                writers=Writers(stage.rollouts, args.num_generations) if stage.rollouts else None,
                order=order,
                desk=desk_for(stage.sampler, parts, order, size=len(data), seed=args.seed),
                observer=stage.observer,
                faults=faults,
                note=stage.note,
                schedules=named((HOOKS[part.part.hook].key, part) for part in stage.parts()),
                model=model,
                args=args,
                reward_funcs=[trl_reward(reward, faults) for reward in stage.rewards],
                train_dataset=data,
                processing_class=tokenizer,
                peft_config=lora,
                tools=list(stage.world.tools) or None,
                environment_factory=stage.world.environment_factory,
            )
        micro_steps = args.steps_per_generation * args.num_iterations
        trainer.add_callback(SaveWhenBufferIsEmpty(micro_steps, args.gradient_accumulation_steps))
        engine.run(trainer, stage)
        trainer.save_critic(stage.folder / "critic")


class SFT:
    """Supervised fine-tuning on the column ``demonstration`` of the environment: TRL's SFTTrainer.

    `trainer:` is word for word ``trl.SFTConfig``.
    """

    columns = ("demonstration",)
    refused: Mapping[str, str] = _RUN
    settled: Mapping[str, Any] = {}
    """Fields of the config that the engine decides."""

    def config_class(self) -> type[SFTConfig]:
        """``trl.SFTConfig``."""
        from trl import SFTConfig

        return SFTConfig

    def __call__(self, stage: Stage) -> None:
        """Trains on every demonstration and saves the model."""
        from trl import SFTTrainer

        from rlm_plugins.training import engine
        from rlm_plugins.training.checkpoint import DurableCheckpoints

        class Trainer(DurableCheckpoints, SFTTrainer):  # type: ignore[misc]
            """SFTTrainer with checkpoints that are whole or absent."""

        args = engine.arguments(stage, **self.settled)
        model, tokenizer, lora = engine.weights(stage)
        data = _dataset(stage.world.train).map(_demonstrated, remove_columns=_columns(stage.world.train))
        with engine.refusals(stage):
            trainer = Trainer(model=model, args=args, train_dataset=data, processing_class=tokenizer, peft_config=lora)
        engine.run(trainer, stage)


class DFT(SFT):
    """Dynamic fine-tuning: SFT that weighs each token by its probability (`loss_type: dft`)."""

    settled: Mapping[str, Any] = {"loss_type": "dft"}
    refused: Mapping[str, str] = {**_RUN, "loss_type": "it is this row's: say `algorithm: sft` for another"}


def _demonstrated(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as TRL's prompt-completion format has it, chat or plain like its prompt."""
    prompt, text = row["prompt"], row["demonstration"]
    chat = not isinstance(prompt, str)
    return {"prompt": prompt, "completion": [{"role": "assistant", "content": text}] if chat else text}


def _dataset(rows: Any, without: Collection[str] = ()) -> Any:
    import datasets

    data = datasets.Dataset.from_list(list(rows)) if isinstance(rows, Sequence) else rows
    return data.remove_columns([name for name in without if name in (data.column_names or [])])


def _columns(rows: Any) -> list[str]:
    return list(rows[0]) if isinstance(rows, Sequence) else list(rows.column_names or [])


def _give_address(model: Any, stage: Stage) -> None:
    """TRL loads the reference of a fully trained model from disk: one made or merged in memory is saved for it."""
    from rlm_plugins.training.processes import processes

    if stage.source.origin == model.config._name_or_path:
        return
    start = stage.folder / "start"
    if processes().is_main_process:
        model.save_pretrained(start)
    processes().wait_for_everyone()
    model.config._name_or_path = str(start)


@hookimpl
def rlm_trainers() -> dict[str, object]:
    return {"grpo": GRPO, "sft": SFT, "dft": DFT}
