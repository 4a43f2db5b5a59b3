"""TRL's trainers with the equation and complete checkpoints: one changed import, and every symbol can be replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, Unpack

import trl

from rlm_plugins.equation.knobs import value_at
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Stateful
from rlm_plugins.rewards.trl_adapter import setup_parts
from rlm_plugins.trainer.checkpoint import DurableCheckpoints, SaveWhenBufferIsEmpty
from rlm_plugins.trainer.equation_trainer import EquationTrainer

if TYPE_CHECKING:
    from pathlib import Path

    from datasets import Dataset, IterableDataset
    from peft import PeftConfig, PeftModel
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LambdaLR
    from transformers import (
        BitsAndBytesConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
        ProcessorMixin,
        TrainerCallback,
    )

    from rlm_plugins.api.arguments import AlgorithmLike, Data, RewardLike


class SupervisedArguments(TypedDict, total=False):
    """Further arguments of TRL's supervised trainers; the first and the last are those of `SFTTrainer` only."""

    compute_loss_func: Callable[..., Any] | None
    compute_metrics: Callable[[Any], dict[str, Any]] | None
    callbacks: list[TrainerCallback] | None
    optimizers: tuple[Optimizer | None, LambdaLR | None]
    optimizer_cls_and_kwargs: tuple[type[Optimizer], dict[str, Any]] | None
    preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None
    quantization_config: BitsAndBytesConfig | None
    peft_config: PeftConfig | None
    formatting_func: Callable[[dict[str, Any]], str] | None


class SFTTrainer(DurableCheckpoints, trl.SFTTrainer):  # type: ignore[misc]
    """TRL's `SFTTrainer`, whose checkpoints are complete or absent.

    Args:
        model, args, data_collator, train_dataset, eval_dataset, processing_class, **arguments: As in TRL.
        algorithm: ``"sft"``, or ``"dft"`` for dynamic fine-tuning; None: the config's `loss_type`.

    Raises:
        RecipeError: Another algorithm, or one that contradicts `loss_type`.
    """

    def __init__(
        self,
        model: PreTrainedModel | PeftModel | str,
        args: trl.SFTConfig | None = None,
        data_collator: Callable[[list[Any]], dict[str, Any]] | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        eval_dataset: Dataset | IterableDataset | Mapping[str, Dataset | IterableDataset] | None = None,
        processing_class: PreTrainedTokenizerBase | ProcessorMixin | None = None,
        *,
        algorithm: Literal["sft", "dft"] | None = None,
        **arguments: Unpack[SupervisedArguments],
    ) -> None:
        if algorithm not in (None, "sft", "dft"):
            raise RecipeError(f"unknown algorithm '{algorithm}'", where="algorithm", allowed="sft, dft")
        if algorithm == "dft":
            args = args or trl.SFTConfig()
            if args.loss_type not in ("nll", "dft"):
                problem = f"SFTConfig has loss_type='{args.loss_type}', but the algorithm is 'dft'"
                raise RecipeError(problem, where="args.loss_type", hint="say it once")
            args.loss_type = "dft"
        super().__init__(model, args, data_collator, train_dataset, eval_dataset, processing_class, **arguments)


class RewardTrainer(DurableCheckpoints, trl.RewardTrainer):  # type: ignore[misc]
    """TRL's `RewardTrainer`, whose checkpoints are complete or absent; arguments as there."""

    def __init__(
        self,
        model: PreTrainedModel | PeftModel | str,
        args: trl.RewardConfig | None = None,
        data_collator: Callable[[list[Any]], dict[str, Any]] | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        eval_dataset: Dataset | IterableDataset | Mapping[str, Dataset | IterableDataset] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        **arguments: Unpack[SupervisedArguments],
    ) -> None:
        super().__init__(model, args, data_collator, train_dataset, eval_dataset, processing_class, **arguments)


class GRPOTrainer(EquationTrainer):
    """TRL's `GRPOTrainer`, whose objective is an algorithm of parts.

    Without `algorithm` it is the algorithm of the config, and trains to the weights of TRL. The other arguments are
    those of :class:`trl.GRPOTrainer`; a reward may also be a mapping ``{"name": "accuracy", …}`` of a reward part.

    Args:
        model: Name, path or instance of the policy.
        reward_funcs: Reward functions and reward models.
        args: :class:`trl.GRPOConfig`.
        train_dataset: Examples with the column ``prompt``; each other column is an argument of the rewards.
        eval_dataset: Examples of the evaluations, or several sets by name.
        processing_class: Tokenizer or processor; default: that of the model's name.
        reward_processing_classes: Tokenizers of the reward models.
        callbacks: Callbacks of transformers.
        optimizers: Optimizer and scheduler; default: those of the config.
        quantization_config: Quantization of a model that is given by name.
        peft_config: Adapter of the policy; default: all weights are trained.
        tools: Functions that the policy may call.
        rollout_func: Generates in the place of the policy, as in TRL.
        environment_factory: Builds an environment per completion, as in TRL.
        algorithm: A name (``"dapo"``), an :class:`rlm_plugins.specs.Algorithm`, or a mapping of slots, where a
            function is a part: ``{"name": "dapo", "advantage": my_function}``. Without ``name`` it changes the
            algorithm of the config.
        speed: Optimizations: a mapping as in a recipe, or ``"none"``; default: all.
        critic: ``"shared"``, ``"head"``, ``"separate"``, or a mapping as in a recipe.
        generator: Decoding: a name, or a mapping as in a recipe.
        plugins: Python files to load as plugins.

    Raises:
        RecipeError: A field of the config contradicts `algorithm`; an unknown part or knob.

    Attributes:
        stage: The stage that is equivalent to the arguments.
    """

    _config: ClassVar[type] = trl.GRPOConfig
    _default_algorithm: ClassVar[str | None] = None
    _name = "GRPO"
    _tag_names: tuple[str, ...] = ("trl", "grpo", "rlm-plugins")

    def __init__(
        self,
        model: PreTrainedModel | PeftModel | str,
        reward_funcs: RewardLike | list[RewardLike] | None = None,
        args: trl.GRPOConfig | trl.RLOOConfig | None = None,
        train_dataset: Data | None = None,
        eval_dataset: Data | Mapping[str, Data] | None = None,
        processing_class: PreTrainedTokenizerBase | ProcessorMixin | None = None,
        reward_processing_classes: PreTrainedTokenizerBase | list[PreTrainedTokenizerBase] | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Optimizer | None, LambdaLR | None] = (None, None),
        quantization_config: BitsAndBytesConfig | None = None,
        peft_config: PeftConfig | None = None,
        tools: list[Callable[..., Any]] | None = None,
        rollout_func: Callable[..., dict[str, Any]] | None = None,
        environment_factory: Callable[[], Any] | dict[str, Callable[[], Any]] | None = None,
        *,
        algorithm: AlgorithmLike | None = None,
        speed: Mapping[str, Any] | Literal["none"] | None = None,
        critic: Mapping[str, Any] | Literal["shared", "head", "separate"] | None = None,
        generator: Mapping[str, Any] | str | None = None,
        plugins: Sequence[str | Path] = (),
    ) -> None:
        args = self._default_config(model) if args is None else args
        if not isinstance(args, self._config):
            raise RecipeError(f"expected a trl.{self._config.__name__}, got {type(args).__name__}", where="args")
        from rlm_plugins.api.trainer_arguments import prepared, sections_of  # they load what reads and checks recipes
        from rlm_plugins.builtin.callbacks import warn_of_constant_rewards

        algorithm = self._default_algorithm if algorithm is None else algorithm
        sections = sections_of(algorithm, speed, critic, generator)
        generates = rollout_func is None and environment_factory is None
        stage, trainer_config, options, reward_functions = prepared(
            plugins, sections, args, model, reward_funcs, peft_config, train_dataset, generates=generates
        )
        if stage.rollouts and rollout_func is not None:
            raise RecipeError("`rollout_func` and `rollouts` of the algorithm exclude each other", where="rollout_func")
        if stage.critic is not None and stage.critic.kind == "separate" and isinstance(model, str):
            model = trl.trainer.utils.create_model_from_path(model, **(trainer_config.model_init_kwargs or {}))
        self.stage = stage
        super().__init__(
            options,
            model=model,
            args=trainer_config,
            reward_funcs=reward_functions,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            reward_processing_classes=reward_processing_classes,
            callbacks=[*(callbacks or []), warn_of_constant_rewards()],
            optimizers=optimizers,
            quantization_config=quantization_config,
            peft_config=peft_config,
            tools=tools,
            rollout_func=rollout_func,
            environment_factory=environment_factory,
        )
        setup_parts(stage.parts(), self.model, {}, self.tokenizer)
        self.add_callback(SaveWhenBufferIsEmpty())

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log TRL's metrics, and the coefficient of an entropy bonus under TRL's name."""
        if self.model.training and self._entropy_bonus() is not None:
            logs["entropy_coef"] = self.entropy_coef
        super().log(logs, start_time)

    def _entropy_bonus(self) -> Bound | None:
        assert self.stage.equation is not None
        return next((part for part in self.stage.equation.penalties if "entropy" in part.part.required_data), None)

    @property
    def entropy_coef(self) -> float:
        """Coefficient of the entropy bonus now; 0 without one. TRL's attribute."""
        bonus = self._entropy_bonus()
        if bonus is None:
            return 0.0
        if isinstance(bonus.target, Stateful):
            return float(bonus.target.state_dict()["coefficient"])
        state = getattr(self, "state", None)  # TRL's constructor asks before there is one
        return float(value_at(bonus.beta, state.global_step if state else 0))

    @entropy_coef.setter
    def entropy_coef(self, value: float) -> None:
        """Ignore the value that TRL's constructor sets: the coefficient is that of the part."""

    def _default_config(self, model: Any) -> Any:
        """Return TRL's default config, with its output folder named after the model."""
        name = model if isinstance(model, str) else model.config._name_or_path
        return self._config(f"{name.rpartition('/')[2]}-{self._name}")


class RLOOTrainer(GRPOTrainer):
    """TRL's `RLOOTrainer`, whose objective is an algorithm of parts.

    Without `algorithm` it is the algorithm `rloo@trl` with the values of the config. Arguments as :class:`GRPOTrainer`.
    """

    _config = trl.RLOOConfig
    _name = "RLOO"
    _tag_names: tuple[str, ...] = ("trl", "rloo", "rlm-plugins")


class PPOTrainer(GRPOTrainer):
    """PPO with a critic, which TRL no longer has: the arguments of :class:`GRPOTrainer`, and `critic`.

    Without `algorithm` it is `ppo`. The critic is an adapter on the policy's frozen base if the policy has
    LoRA, else a copy of the model; :meth:`save_critic` saves it.
    """

    _default_algorithm = "ppo"
    _name = "PPO"
    _tag_names: tuple[str, ...] = ("trl", "ppo", "rlm-plugins")
