"""Options and set-up of a trainer for a stage: prompts, rollout sources, logs, and the errors of libraries."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from rlm_plugins.durable.files import file_error
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.equation.knobs import Schedule, schedules_by_name
from rlm_plugins.errors import RecipeError, RlmError, is_out_of_memory
from rlm_plugins.models.fingerprints import digest_of_tokenizer, digest_of_weights
from rlm_plugins.recipe.checks.part_needs import warnings_of
from rlm_plugins.recipe.trainer_settings import adapter_config, trainer_defaults
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.registry.setting import Setting
from rlm_plugins.rewards.fault import FaultLog
from rlm_plugins.rollout.collector import RolloutCollector
from rlm_plugins.rollout.engine_call import Engine
from rlm_plugins.rollout.prompt_source import Order, PromptSource, order_of, prompt_source_for
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage import Critic, Reward, RunState, Stage
from rlm_plugins.trainer.checkpoint import saving
from rlm_plugins.trainer.critic_update import refused_critic
from rlm_plugins.trainer.observer import StepObserver
from rlm_plugins.trainer.passes import ForwardPasses, PassesFactory
from rlm_plugins.trainer.rewards import LogFaults
from rlm_plugins.workers.distributed import PLANNED, processes, sharding

if TYPE_CHECKING:
    from transformers import PreTrainedModel


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainerOptions:
    """Arguments of a stage beside those of GRPOTrainer.

    Args:
        equation: The parts. `args.beta` only switches TRL's reference pass on; coefficients live in the parts.
        rewards: Entries of ``rewards:`` in the order of `reward_funcs`.
        order: (size, epoch, seed) → order in which an epoch visits the prompts.
        prompt_source: Chooses the prompts of each generation batch; None: the data loader does.
        collector: Assigns each completion to a rollout source; None: the policy generates all of them.
        environment_spec: Environment and tools; None: completions have one turn.
        generator: Decodes; None: `transformers.generate`.
        engine: Samples in place of the generator; None: the generator does.
        critic: ``critic:`` of the recipe; None: no part names values.
        passes: Builds the forward passes; the default are TRL's.
        schedules: Name → schedule of a knob, to be logged.
        faults: Failures that the rewards report; None: they raise.
        log_faults: Called with the samples on which rewards failed, of every process.
        observers: Observers of the training steps.
    """

    equation: Equation
    rewards: Sequence[Reward]
    order: Order
    prompt_source: PromptSource | None = None
    collector: RolloutCollector | None = None
    environment_spec: EnvironmentSpec | None = None
    generator: Bound | None = None
    engine: Engine | None = None
    critic: Critic | None = None
    passes: PassesFactory = ForwardPasses
    schedules: Mapping[str, Schedule] | None = None
    faults: FaultLog | None = None
    log_faults: LogFaults | None = None
    observers: Sequence[StepObserver] = ()

    def with_rewards(self, names: Sequence[str]) -> TrainerOptions:
        """Return the options with entries for the rewards that TRL appended: those of its environments."""
        added = [Part("rlm_rewards", name, "trl", _environment_reward).bind({}) for name in names[len(self.rewards) :]]
        return replace(self, rewards=[*self.rewards, *(Reward(part.part.name, part) for part in added)])


def _environment_reward(completions: Any) -> Any:
    """Placeholder of a reward that TRL calls itself."""


def options_of(stage: Stage, args: Any, data: Any, faults: FaultLog, run: RunState | None = None) -> TrainerOptions:
    """Return the options of the trainer of a stage with an equation; examples without a length are a stream."""
    run = run or RunState()
    assert stage.equation is not None
    for warning in warnings_of(vars(stage.equation), {**vars(args), **stage.settings}):
        logger.warning("%s", warning)
    multi_turn = stage.environment_spec.multi_turn
    order, parts = order_of(stage.sampler, shuffle=args.shuffle_dataset), stage.equation.parts()
    source = None
    if hasattr(data, "__len__"):
        source = prompt_source_for(stage.sampler, parts, order, size=len(data), seed=args.seed)
    collector = RolloutCollector(stage.rollouts, args.num_generations, plays=multi_turn)
    return TrainerOptions(
        equation=stage.equation,
        rewards=stage.rewards,
        order=order,
        prompt_source=source,
        collector=collector if stage.rollouts or multi_turn else None,
        environment_spec=stage.environment_spec,
        generator=stage.generator,
        engine=stage.policy_engine,
        critic=_scaled(stage.critic, run.rate_scale),
        passes=_passes(stage),
        schedules=schedules_by_name((HOOKS[part.part.hook].key, part) for part in stage.parts()),
        faults=faults,
        log_faults=run.log_faults,
        observers=[*observers_of_settings(args), *run.observers],
    )


def check_sharding(stage: Stage, args: Any) -> None:
    """Check that what a stage trains can be sharded, if FSDP or DeepSpeed is requested, before a weight is loaded."""
    refused = [("", "") if stage.critic is None else refused_critic(stage.critic)]
    named = {"target_kl": "`target_kl` cannot be kept", "stale": "`stale` cannot be simulated"}
    refused += [(problem, f"trainer.{name}") for name, problem in named.items() if getattr(args, name, None)]
    if stage.evaluation is not None and stage.evaluation.keep == "best":
        refused.append(("the best weights cannot be kept", "evaluation.keep"))
    if stage.critic is not None and (is_deepspeed_zero3_enabled() or PLANNED[0] == "zero3"):
        refused.append(("a critic cannot be copied from weights that ZeRO-3 partitions", "critic.kind"))
    for problem, where in refused:
        if problem and (title := sharding(args)):
            hint = "train on one device or with DDP (`accelerate launch --multi_gpu`), or leave it out"
            raise RlmError(f"{problem} with {title}", where=where, hint=hint)


def check_sharded(trainer: Any) -> None:
    """Check that accelerate shards where a config requests it; on CPUs it does not with FSDP."""
    title = sharding(trainer.args)
    if title and not (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
        problem = f"{title} is requested, but accelerate does not shard on {trainer.accelerator.device.type.upper()}"
        raise RlmError(problem, where="trainer", hint="leave the config of accelerate out, or use a GPU")


def _passes(stage: Stage) -> PassesFactory:
    """Return the builder of the forward passes: of the one section which may have one, else TRL's passes."""
    builders = {key: section.passes for key, section in stage.sections.items() if section.passes is not None}
    if len(builders) > 1:
        problem = f"the sections {' and '.join(f'`{key}`' for key in builders)} both replace the forward passes"
        raise RecipeError(problem, where=f"stage '{stage.name}'", hint=f"`{min(builders)}: none`")
    return next(iter(builders.values()), ForwardPasses)


def observers_of_settings(args: Any) -> list[StepObserver]:
    """Return the observers that do what the settings of packages in a config say."""
    settings: Mapping[str, Setting] = getattr(args, "added", {})
    observers = [setting.observer(args) for setting in settings.values() if setting.observer is not None]
    return [observer for observer in observers if observer is not None]


def _scaled(critic: Critic | None, factor: float) -> Critic | None:
    """Return the settings of a critic with its learning rate multiplied, where it is a number."""
    if critic is None or not isinstance(critic.learning_rate, float):
        return critic
    return replace(critic, learning_rate=critic.learning_rate * factor)


class Integration(NamedTuple):
    """A library that training calls, and that may be unreachable; `setting` of the trainer turns it on."""

    modules: tuple[str, ...]
    title: str
    setting: str
    hint: str


INTEGRATIONS = (
    Integration(
        ("transformers.integrations.integration_utils",),
        "a tracker",
        "report_to",
        "log in, use its offline mode (WANDB_MODE=offline), or `report_to: none`; metrics.jsonl has every number",
    ),
    Integration(
        ("huggingface_hub",),
        "the Hugging Face hub",
        "push_to_hub",
        "`hf auth login`, or `push_to_hub: false` and `rlm export RUN --to hub:OWNER/NAME` later",
    ),
    Integration(("deepspeed", "transformers.integrations.deepspeed"), "DeepSpeed", "deepspeed", "leave it out"),
)


@contextmanager
def integration_errors(stage: str) -> Iterator[None]:
    """Raise an error that passed through an integration as a `RecipeError` that names its setting."""
    try:
        yield
    except RlmError:
        raise
    except Exception as error:
        integration = _integration_of(error)
        if integration is None:
            raise
        reason = " ".join(str(error).split())
        problem = f"{integration.title} failed: {type(error).__name__}: {reason}"
        where = f"trainer.{integration.setting} (stage '{stage}')"
        raise RecipeError(problem, where=where, hint=integration.hint) from error


def _integration_of(error: BaseException) -> Integration | None:
    """Return the integration whose code the traceback of an error passes through."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    for integration in INTEGRATIONS:
        if any(module == name or module.startswith(f"{name}.") for module in modules for name in integration.modules):
            return integration
    return None


def arguments(stage: Stage, run: RunState | None = None, **overrides: Any) -> Any:
    """Return the trainer's config: our defaults, the recipe's ``trainer:``, `overrides`, and what sections choose."""
    config = stage.trainer.config_class()
    settings = {**trainer_defaults(), **stage.settings, "output_dir": str(stage.folder), **overrides}
    if stage.extensions.settings:
        settings["added"] = stage.extensions.settings
    args = config(**settings)
    for section in stage.sections.values():
        chosen = {name: value for name, value in section.settings(stage, args).items() if name not in stage.settings}
        if chosen:
            settings |= chosen
            args = config(**settings)
    args.learning_rate *= 1.0 if run is None else run.rate_scale
    return args


def load_model(stage: Stage, run: RunState) -> tuple[PreTrainedModel, Any, Any]:
    """Return the model to train, its tokenizer or processor, and its adapter (None: all parameters are trained)."""
    processing_class = stage.source.processing_class()
    model = stage.source.load()
    if run.record is not None and not stage.place.results and processes().is_main_process:
        # a later stage starts from the result of an earlier one, which is compared instead
        base = {} if is_deepspeed_zero3_enabled() else {"base": digest_of_weights(model)}  # a part of it is here
        run.record(**base, tokenizer=digest_of_tokenizer(processing_class))
    if stage.lora is None:
        return model, processing_class, None
    return model, processing_class, adapter_config(stage.lora)


@contextmanager
def refusals(stage: Stage) -> Iterator[None]:
    """Raise errors of TRL, PEFT or an integration while a trainer is built as a `RecipeError`."""
    try:
        with integration_errors(stage.name):
            yield
    except RlmError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        if isinstance(error, OSError) and error.filename is not None:
            raise file_error(error) from None
        problem = f"the trainer cannot be built: {type(error).__name__}: {error}"
        raise RecipeError(problem, where=f"stage '{stage.name}'") from error


def save_initial_model(model: Any, stage: Stage) -> None:
    """Save a model that was created or merged in memory and set `config._name_or_path` to its folder.

    TRL loads the reference policy of a fully trained model from that path, and a reward model its base.
    """
    if stage.source.origin == model.config._name_or_path:
        return
    start = stage.folder / "start"
    if processes().is_main_process:
        with saving(start):
            model.save_pretrained(start)
    processes().wait_for_everyone()
    model.config._name_or_path = str(start)
