"""Every hook of the framework, in the order of a training step.

L(θ) = E[ 1/Z Σᵢ Σₜ (cᵢₜ · ℓ(wᵢₜ, Âᵢₜ) + Σₖ βₖ Ωₖᵢₜ) ], with one hook per symbol. Each is called once, at start,
and returns ``{name: part}``; the training loop calls none. A part is a plain function, or a class if it is stateful:

- **before** ``*``: **its data**, by the names of :mod:`rlm_plugins.equation.batch`; the default ``None`` marks optional
  data;
- **after** ``*``: **its knobs**, annotated, set by recipes. A scheduled knob has its value at the current step.

The signature is the schema. Each docstring below ends in a complete part, to which its registration is added::

    @hookimpl
    def rlm_rewards():
        return {"brevity": brevity}

Optional members of parts are declared in :mod:`rlm_plugins.registry.protocols`, recipe key and data of each hook in
:mod:`rlm_plugins.equation.hooks`.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

if TYPE_CHECKING:
    from rlm_plugins.registry.setting import Setting
    from rlm_plugins.specs import Algorithm

Parts = Mapping[str, Callable[..., Any]]
Hook = TypeVar("Hook", bound=Callable[[], Any])


def hookspec(function: Hook) -> Hook:
    """Declare a hook, and add the registration of the example to its docstring."""
    if function.__doc__ and "::\n" in function.__doc__:
        text = inspect.cleandoc(function.__doc__)
        example = text.partition("::\n")[2]
        target = re.findall(r"^    (?:def |class )?([A-Za-z_]\w*)(?:\(| =|:)", example, re.MULTILINE)[-1]
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", target).lower()
        registration = f'@hookimpl\ndef {function.__name__}():\n    return {{"{name}": {target}}}'
        function.__doc__ = f"{text}\n\n{textwrap.indent(registration, '    ')}"
    return pluggy.HookspecMarker("rlm")(function)


@hookspec
def rlm_environments() -> Parts:
    """x: the prompts, and the environment that answers the policy.

    A part returns a :class:`rlm_plugins.specs.EnvironmentSpec`: examples to train on and held-out examples. An example
    is a dict with ``prompt`` (text or chat messages). Further columns go to the rewards that name them; a column
    ``demonstration`` is the target of supervised stages. ``environment=`` makes episodes of several turns: see
    :mod:`rlm_plugins.specs`. It is built before any weight is loaded::

        def doubling(*, highest: int = 99, held_out: int = 20):
            \"\"\"Double a number.\"\"\"
            examples = [{"prompt": f"2*{n}=", "answer": str(2 * n), "demonstration": str(2 * n)}
                        for n in range(highest + 1)]
            return EnvironmentSpec(train=examples[held_out:], test=examples[:held_out])
    """


@hookspec
def rlm_samplers() -> Parts:
    """Prompt order: the order in which one epoch visits the training examples.

    Data: ``size`` (of the data set), ``epoch`` (0, 1, …), ``seed``. Returns indices, each at most once. An epoch that
    leaves some out is shorter, while `trainer` counts its steps from `size`. The order depends on nothing else, so a
    resumed run sees the same prompts.

    A part that names ``count`` is called before every generation instead, for `count` distinct indices; ``draw`` (0,
    1, …) counts the calls. Such a class may adapt to the results: its method ``update`` names data of the scoring phase
    (``prompt_index``, ``named_rewards``, …). It is called after every sampling round, also for groups that a filter
    then drops::

        def easy_first(size, epoch, *, epochs: int = 1):
            \"\"\"In order while `epoch` < `epochs` (of a data set sorted by difficulty), then backwards.\"\"\"
            return list(range(size)) if epoch < epochs else list(range(size))[::-1]
    """


@hookspec
def rlm_rollouts() -> Parts:
    """y: rollout sources beside the policy, which by default generates all completions through TRL.

    Several sources share a group. Each takes its `num_completions` from the end of the group; one without takes all
    that are left. The policy generates the rest, and those for which a source returns None. Parts see the source of
    each completion in ``sources``; a loss, weight or penalty with ``source: LABEL`` applies to those completions only.

    Data: ``prompts``, ``inputs`` and ``source_index`` (per completion: its prompt, its columns, and its index among
    those of the source in its group), ``tokenizer``, ``step`` (optimizer steps done), ``seed``, ``trainer``, and
    ``generate(prompts, prefixes=None, greedy=False)`` of the policy. A process without completions of this source
    calls it with empty lists.

    Returns ``completion_ids``: one list of token ids per completion, or None to leave it to the policy. Those longer
    than ``max_completion_length`` are truncated. Optional: ``mask`` (per token: is it trained on), ``logprobs``,
    ``prompt_ids``; any further key is a column for rewards. Optional members: ``columns`` (columns it requires),
    ``whole_groups = True`` (it requires all completions of a group on one process), and ``check()``, called before any
    weight is loaded. If `check` names ``prompts``, it gets the training prompts, or None for a stream::

        def scripted(prompts, tokenizer, *, text: str = "4"):
            \"\"\"Answer `text` to every prompt: a baseline without a model.\"\"\"
            ids = tokenizer(text)["input_ids"] + [tokenizer.eos_token_id]
            return {"completion_ids": [ids] * len(prompts)}
    """


@hookspec
def rlm_generators() -> Parts:
    """y: decoding. Generates completions during training and evaluation.

    Data: ``generate`` (that of the transformers model), ``model`` (with or without adapters, not wrapped), ``inputs``
    (``input_ids`` (B, P), left-padded, and ``attention_mask``), ``config`` (a ``GenerationConfig``:
    ``max_new_tokens``, ``temperature``, ``eos_token_id``, …) and ``return_logprobs``. ``on_finished`` is None or a
    function of finished sequences: their indices and their token ids; rewards then run while others are decoded.

    Returns token ids (B, P + T): prompts and completions, right-padded; with `return_logprobs` a
    :class:`rlm_plugins.rollout.generator_call.Generation`. The same RNG state gives the same completions. Optional
    members: ``trainer_settings`` (fields of the trainer's config that it fixes; TRL then generates during training) and
    ``dry_run(model, config, **knobs)``. The latter gets a model without weights and returns why it falls back to
    transformers (or None), and its memory in bytes; `rlm check` prints both::

        def in_chunks(generate, inputs, config, *, batch_size: int = 8):
            \"\"\"Generate at most `batch_size` completions at a time: less memory, more time.\"\"\"
            starts = range(0, len(inputs["input_ids"]), batch_size)
            chunks = [generate(**{name: x[i : i + batch_size] for name, x in inputs.items()},
                               generation_config=config) for i in starts]
            width, pad = max(x.shape[1] for x in chunks), config.pad_token_id
            return torch.cat([torch.nn.functional.pad(x, (0, width - x.shape[1]), value=pad) for x in chunks])
    """


@hookspec
def rlm_engines() -> Parts:
    """y: inference engines, which sample in training with a copy of the policy: vLLM, a server, a second process.

    A recipe names one under ``engine:``; its knobs are those of `__init__`. ``trainer: {use_vllm: true}`` alone means
    the engine ``vllm``. Every process has one. A class has the methods of
    :class:`rlm_plugins.rollout.engine_call.Engine`; a `check` that names ``lora`` gets the policy's adapter before any
    weight is loaded. `sync` receives the adapter as a folder, or all weights, and never changes the policy. The setting
    ``engine_check`` of rlm-engines compares both sides after each sync::

        class Parrot:
            \"\"\"Repeat the last token of the prompt: an engine for tests.\"\"\"
            trainer_settings = {"use_vllm": True}
            start = sleep = wake = close = lambda self, *policy: None
            def sync(self, weights, version):
                self._version = version
            def generate(self, prompts, sampling):
                ids = [[prompt[-1]] * sampling["max_tokens"] for prompt in prompts]
                return EngineCompletions(ids, [[0.0] * len(row) for row in ids], [self._version] * len(ids))
            def score(self, sequences):
                return [[0.0] * (len(sequence) - 1) for sequence in sequences]
    """


@hookspec
def rlm_rewards() -> Parts:
    """r: reward of a completion. Called with whole groups, on every process for its own completions.

    Data: any of :data:`rlm_plugins.equation.batch.SAMPLE` and any column of the data set. Returns one float per
    completion; ``None`` means "does not apply here". A part that names ``completion`` is called once per completion,
    with the values of its example, and returns one float. `async def` works, and may be called group by group. A
    function that ends in ``**kwargs`` gets all columns. Completions are text, also of a chat, unless their annotation
    says messages (``list[list[dict[str, str]]]``), or the key ``messages`` of the recipe.

    An exception is reported with plugin and sample. Keys beside the knobs: ``weight``, ``as``, ``on_error`` (stop,
    zero, skip), ``timeout``, ``processes``, ``prefetch`` and ``messages``. Optional members: ``check()``, called before
    any weight is loaded, and ``setup(policy, results)``, called with every model that is trained or evaluated, before
    its first score. ``results``: name of an earlier stage → path of its result; `setup` may name ``tokenizer`` too. A
    reward with `setup` supports neither ``processes`` nor prefetching. An object in a knob may define `setup` too. Any
    class of the equation may have both: `setup` is then called once with the trained policy, and `check` may name
    ``lora`` (the policy's adapter; None: all weights are trained)::

        def brevity(completions, *, characters: int = 200):
            \"\"\"1 for an empty completion, falling to 0 at `characters`.\"\"\"
            return [max(0.0, 1 - len(text) / characters) for text in completions]
    """


@hookspec
def rlm_teachers() -> Parts:
    """π_T: log-probs of a teacher for completions of the policy: a server, a model in another framework.

    The section ``teacher`` of rlm-algorithms names one as its ``model``, and gives its knobs as ``options``. It returns
    per completion the log-prob of each token, in nats: a tensor ``(n, T)``, or lists::

        def steady(completion_ids, *, logp: float = -1.0):
            \"\"\"log π_T = `logp` for every token.\"\"\"
            return [[logp] * len(ids) for ids in completion_ids]
    """


@hookspec
def rlm_shapers() -> Parts:
    """r′: reward shaping, before completions are compared. Shapers run in the order of the recipe.

    Returns ``(B,)``, the new reward of each completion, or ``(B, T)``, a dense reward that is *added* per token::

        def squashed(rewards, *, temperature: float = 1.0):
            \"\"\"r′ = σ(r / temperature).\"\"\"
            return torch.sigmoid(rewards / temperature)
    """


@hookspec
def rlm_filters() -> Parts:
    """Selection of the completions to train on. Returns ``(B,)`` booleans.

    A dropped completion has no loss, is in no count, and enters no baseline. With ``refill: N`` up to N generation
    batches are sampled until every group has a kept completion (dynamic sampling). Filters and shapers then see one
    sampling round at a time::

        def solved_sometimes(rewards, group, *, at_least: float = 0.1):
            \"\"\"Keep groups whose mean reward is at least `at_least`.\"\"\"
            means = torch.stack([rewards[group == g].mean() for g in group])
            return means >= at_least
    """


@hookspec
def rlm_advantages() -> Parts:
    """Â: advantage of a completion over the expected reward.

    Returns ``(B,)`` (one value for all tokens), ``(B, T)``, or the pair (advantages, returns), whose returns are the
    targets of a critic. Completions without any score are left out before the call.

    Like any part of the scoring phase it may sample extra completions that are not trained on: ``generate(prompts,
    prefixes)`` continues from token ids, ``rewards_of(prompts, completion_ids, inputs)`` scores them with the recipe's
    rewards, ``logprobs_of(prompt_ids, completion_ids)`` returns their log-probs. Every process makes the same calls;
    the work is shared, and each gets all results::

        def median_baseline(rewards, group):
            \"\"\"Âᵢ = rᵢ − median of its group: one lucky completion does not change the baseline.\"\"\"
            return rewards - torch.stack([rewards[group == g].median() for g in group])
    """


@hookspec
def rlm_importance() -> Parts:
    """w: importance ratio π / π_old of current and old policy. Returns **log w**, ``(B, T)`` or ``(B, 1)``.

    ``ratio = exp(log w)`` is computed once, for every part that names it::

        def per_token(logp, old_logp):
            \"\"\"log wᵢₜ = log π(yₜ) − log π_old(yₜ).\"\"\"
            return logp - old_logp
    """


@hookspec
def rlm_policy_losses() -> Parts:
    """ℓ: loss per token from w and Â, to be *minimized*. Returns ``(B, T)`` or ``(B, 1)``.

    ::

        def capped(ratio, advantages, *, cap: float = 2.0):
            \"\"\"ℓ = −min(w, cap) · Â.\"\"\"
            return -ratio.clamp(max=cap) * advantages
    """


@hookspec
def rlm_token_weights() -> Parts:
    """c: weight of a token in ℓ. Returns ``(B, T)`` or ``(B, 1)`` without gradient; several are multiplied.

    Weights apply to ℓ only: neither to penalties nor to the counts in 1/Z. A part that compares its tokens with the
    whole optimizer step names ``step_batch`` and ``step_batch_rows``, and selects its own by
    ``x[step_batch_rows, : mask.shape[1]]``: then the result does not depend on the micro-batches::

        def fading(logp, *, half_life: float = 100.0):
            \"\"\"Early tokens count more: c halves every `half_life` tokens.\"\"\"
            positions = torch.arange(logp.shape[1], device=logp.device)
            return (0.5 ** (positions / half_life)).expand_as(logp)
    """


@hookspec
def rlm_penalties() -> Parts:
    """βΩ: a term added to the loss. Returns the cost Ω per token, ``(B, T)`` or ``(B, 1)``.

    The recipe gives each penalty its ``beta`` beside its knobs; β·Ω is added to the loss before aggregation, or to
    the total after its own, if ``aggregator`` names one. A
    coefficient that changes with the steps is a schedule in the recipe; one that adapts is a class with ``update``::

        def drift(logp, old_logp):
            \"\"\"Ω = (log π − log π_old)² / 2.\"\"\"
            return (logp - old_logp) ** 2 / 2
    """


@hookspec
def rlm_aggregators() -> Parts:
    """1/Z: aggregation of the loss over tokens. Returns a scalar, which is summed over micro-batches.

    Divide by the counts of the batch (``num_tokens``, ``num_sequences``: of the whole optimizer step, over all ranks),
    never by those of the micro-batch: then the gradient does not depend on the micro-batches::

        def square_root_length(loss, mask, num_sequences):
            \"\"\"Weigh a completion of n tokens by √n: between sequence mean and sequence sum.\"\"\"
            lengths = mask.sum(1).clamp(min=1)
            return ((loss * mask).sum(1) / lengths.sqrt()).sum() / num_sequences
    """


@hookspec
def rlm_algorithms() -> Mapping[str, Algorithm]:
    """Algorithms: a name for one choice per symbol.

    An algorithm is data. A slot that it leaves out keeps the default of :class:`rlm_plugins.specs.Algorithm`; a
    recipe overrides it slot by slot::

        bold_grpo = Algorithm(
            about="GRPO with a wide upper clip.",
            source="this file",
            advantage="group_relative",
            importance="token",
            policy_loss={"name": "clip", "epsilon": 0.2, "epsilon_high": 1.0},
            aggregator="token_mean",
        )
    """


@hookspec
def rlm_trainers() -> Parts:
    """Trainers: classes that build the trainer of a stage. An algorithm names its trainer.

    ``config_class()`` returns the dataclass that the recipe's ``trainer:`` fills, ``refused`` maps fields of it to the
    reason why they cannot be set. ``build(stage, run)`` returns a transformers `Trainer` with the mixin
    :class:`rlm_plugins.trainer.observer.ObservedSteps`; the run trains it and saves the result. Optional members:
    ``complete(trainer, stage, folder)`` writes further files into the folder of the result; ``needs_equation = True``:
    it cannot run an algorithm without an equation; ``columns``: columns it requires. A trainer of something else than
    a policy declares what it ``produces``; the next stage then starts from the same model as this one. It also declares
    its ``metrics``, and ``evaluate(stage, rows, model=None)``; None means the saved result::

        class LastLayer:
            \"\"\"Fine-tune the last layer on demonstrations.\"\"\"
            refused: dict[str, str] = {}
            def config_class(self):
                return trl.SFTConfig
            def build(self, stage, run):
                model, tokenizer, _ = setup.load_model(stage, run)
                for name, weight in model.named_parameters():
                    weight.requires_grad_("lm_head" in name)
                return Observed(model=model, args=setup.arguments(stage, run), processing_class=tokenizer)
    """


@hookspec
def rlm_models() -> Parts:
    """π: the initial model. Returns a :class:`rlm_plugins.specs.ModelSpec`, which loads no weight by itself.

    ::

        def tiny_gpt(*, path: str, layers: int = 2):
            \"\"\"A GPT-2 of `layers` layers with random weights and the tokenizer at `path`.\"\"\"
            config = transformers.GPT2Config(n_layer=layers)
            return ModelSpec(config=config, tokenizer=lambda: AutoTokenizer.from_pretrained(path),
                               load=lambda: transformers.GPT2LMHeadModel(config))
    """


@hookspec
def rlm_callbacks() -> Parts:
    """Callbacks: transformers' ``TrainerCallback``. Data: ``run``, the :class:`rlm_plugins.run.folder.Run`.

    ::

        def stop_when_long(*, tokens: float = 500.0):
            \"\"\"Stop a run whose completions are longer than `tokens` on average.\"\"\"
            from transformers import TrainerCallback

            class Watch(TrainerCallback):
                def on_log(self, args, state, control, logs=None, **kwargs):
                    control.should_training_stop |= (logs or {}).get("completions/mean_length", 0) > tokens
            return Watch()
    """


@hookspec
def rlm_observers() -> Parts:
    """Observers of the training steps: classes derived from :class:`rlm_plugins.trainer.observer.StepObserver`.

    A recipe lists them under ``observers:``. Their methods are called with the completions, the batches and the losses
    of each step, on every process. A callback (`rlm_callbacks`) sees the logged numbers only::

        class LongestCompletion(StepObserver):
            \"\"\"Log the length of the longest completion of each generation batch, in units of `tokens`.\"\"\"
            def __init__(self, *, tokens: int = 1):
                self._unit = tokens
            def attach(self, trainer):
                self._log = trainer.components.context.log
            def scored(self, batch, turn_ends):
                self._log("longest", batch.mask.sum(1).max().item() / self._unit)
    """


@hookspec
def rlm_settings() -> Mapping[str, Setting]:
    """Settings under ``trainer:``, beside the fields of ``trl.GRPOConfig``, for algorithms with an equation.

    A setting is one :class:`rlm_plugins.registry.setting.Setting`: type and range, checks, the observer that does what
    it says, its memory and its metrics. ``rlm_plugins.GRPOConfig`` takes it too::

        def no_engine(config):
            if config.use_vllm:
                raise RecipeError("requires decoding in this process", where="trainer.max_seconds")

        max_seconds = Setting(
            Annotated[float, Field(gt=0)],
            "Seconds that a generation batch may take; a longer one is logged.",
            check=no_engine,
            observer=lambda config: Stopwatch(config.max_seconds),
        )
    """


@hookspec
def rlm_sections() -> Parts:
    """Sections of a stage in a recipe that a package owns: :class:`rlm_plugins.registry.setting.Section`.

    The knobs of the class are the keys of the section. Its other members say what the section does: observe steps, add
    callbacks, choose settings of the trainer, replace the forward passes, warn and report in ``rlm check``::

        class Budget(Section):
            \"\"\"Stop a stage after some tokens.\"\"\"
            def __init__(self, *, tokens: int = 10_000_000):
                self.tokens = tokens
            def callbacks(self, stage, run, console):
                class Stop(TrainerCallback):
                    def on_step_end(_, args, state, control, **kwargs):
                        control.should_training_stop |= state.num_input_tokens_seen >= self.tokens
                return [Stop()]
    """


@hookspec
def rlm_commands() -> Mapping[str, Callable[..., Any]]:
    """Commands of `rlm`: functions whose annotated arguments are those of the command line, as for typer.

    A group of commands is a ``typer.Typer``. The first line of the docstring is shown by ``rlm --help``, in the panel
    that an attribute `panel` names. The module that implements this hook is imported when the command is called, so
    the function imports what it needs itself::

        def mean_length(run: Annotated[Path, typer.Argument(help="The folder of a run.")]) -> None:
            \"\"\"Print the mean length of the completions of a run.\"\"\"
            lines = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
            print(sum(len(line["completion"]) for line in lines) / max(len(lines), 1))
    """
