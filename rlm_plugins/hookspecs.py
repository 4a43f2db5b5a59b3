"""Every seam of the framework, in the order a batch meets them.

J(θ) = E[ 1/Z Σᵢ Σₜ cᵢₜ · ℓ(wᵢₜ, Âᵢₜ) ] − Σₖ βₖ Ωₖ — one hook per symbol. A hook is called once, at start, and
returns ``{name: part}``; no hook is called inside the training loop. A part is a plain function (or, where the
maths has memory, a class): **before the star the data it needs, by the names of** :mod:`rlm_plugins.batch`;
**after the star the knobs a recipe may turn**, annotated (where a recipe says a schedule, the part is handed the
number of its step). The signature is the schema. A data name with the default ``None`` is optional: given when
something supplies it. Each docstring below ends in a complete part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pluggy

from rlm_plugins.batch import LOSS, SCORING

if TYPE_CHECKING:
    from rlm_plugins.algorithm import Algorithm

WRITING = ("prompts", "inputs", "source_index", "generate", "tokenizer", "step", "seed", "trainer")
"""What a rollout source may name: see :func:`rlm_rollouts`."""

GENERATING = ("generate", "model", "inputs", "config", "return_logprobs", "on_finished")
"""What a generator may name: see :func:`rlm_generators`."""

hookspec = pluggy.HookspecMarker("rlm")
Parts = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Hook:
    """What the machine knows of one seam beside its docstring.

    Args:
        key: The recipe key that names its parts.
        symbol: Its symbol in the equation.
        data: The room of the batch its parts live in, or the names they may ask for; None: any name.
        many: Whether a recipe names a list of them.
        keys: What a recipe writes beside the name and the knobs of a part.
    """

    key: str
    symbol: str
    data: str | tuple[str, ...] | None
    many: bool = False
    keys: tuple[str, ...] = ()

    @property
    def scheduled(self) -> bool:
        """Whether its parts are called at an optimiser step, so that their knobs may follow a schedule."""
        return self.data in (SCORING, LOSS) or self.key in ("sampler", "rollouts")


HOOKS: dict[str, Hook] = {
    "rlm_environments": Hook("environment", "x", ()),
    "rlm_samplers": Hook("sampler", "—", ("size", "epoch", "seed", "count", "draw")),
    "rlm_rollouts": Hook("rollouts", "y", WRITING, many=True, keys=("num_completions", "as")),
    "rlm_generators": Hook("generator", "y", GENERATING),
    "rlm_rewards": Hook(
        "rewards", "r", None, many=True, keys=("weight", "as", "on_error", "timeout", "processes", "prefetch")
    ),
    "rlm_shapers": Hook("shapers", "r′", SCORING, many=True),
    "rlm_filters": Hook("filters", "—", SCORING, many=True, keys=("refill",)),
    "rlm_advantages": Hook("advantage", "Â", SCORING),
    "rlm_importance": Hook("importance", "w", LOSS),
    "rlm_policy_losses": Hook("policy_loss", "ℓ", LOSS, keys=("source",)),
    "rlm_token_weights": Hook("token_weights", "c", LOSS, many=True, keys=("source",)),
    "rlm_penalties": Hook("penalties", "βΩ", LOSS, many=True, keys=("beta", "source")),
    "rlm_aggregators": Hook("aggregator", "1/Z", LOSS),
    "rlm_algorithms": Hook("algorithm", "row", ()),
    "rlm_trainers": Hook("trainer", "—", ("stage",)),
    "rlm_models": Hook("model", "π", (), keys=("lora",)),
    "rlm_callbacks": Hook("callbacks", "—", ("run",), many=True),
}
"""Hook name → what the machine knows of it, in batch order."""


def beside(key: str) -> str:
    """Where a recipe writes `key` beside the name of a part, as a hint; empty where nowhere.

    >>> beside("beta")
    "'beta' stands beside the name of a part: `penalties: [{name: …, beta: …}]`"
    """
    for hook in HOOKS.values():
        if key in hook.keys:
            entry = f"{{name: …, {key}: …}}"
            example = f"{hook.key}: {f'[{entry}]' if hook.many else entry}"
            return f"'{key}' stands beside the name of a part: `{example}`"
    return ""


@hookspec
def rlm_environments() -> Parts:
    """x: where problems come from, and how the world answers.

    A part returns a :class:`rlm_plugins.specs.EnvironmentSpec`: rows to train on and rows to test on. A row is a dict
    with ``prompt`` (text or chat messages); further columns go to the rewards that name them; a column
    ``demonstration`` is what a supervised stage learns to write. ``environment=`` makes it answer, turn by turn: see
    :mod:`rlm_plugins.environment`. It is built before any weight is loaded::

        def doubling(*, highest: int = 99, held_out: int = 20):
            \"\"\"Double a number.\"\"\"
            rows = [{"prompt": f"2*{n}=", "answer": str(2 * n), "demonstration": str(2 * n)}
                    for n in range(highest + 1)]
            return EnvironmentSpec(train=rows[held_out:], test=rows[:held_out])

        @hookimpl
        def rlm_environments():
            return {"doubling": doubling}
    """


@hookspec
def rlm_samplers() -> Parts:
    """Which problem next: the order in which one epoch visits the training rows.

    Data: ``size`` (rows of the data set), ``epoch`` (0, 1, …), ``seed``. Returns indices, none of them twice; an epoch
    may leave rows out (it is over the sooner, while `trainer:` counts its steps from `size`). The order may depend on
    nothing else, so that a resumed run meets the same problems. A part that names ``count`` is asked before every
    generation instead, for `count` different indices; ``draw`` (0, 1, …) is the number of the request. Such a class may
    learn from what came of them: its method ``update`` names data of the scoring phase (``prompt_index``,
    ``named_rewards``, …) and is called after every draw, also for groups that a filter then drops::

        def easy_first(size, epoch, *, epochs: int = 1):
            \"\"\"In order while `epoch` < `epochs` (sort your data set by difficulty), backwards afterwards.\"\"\"
            return list(range(size)) if epoch < epochs else list(range(size))[::-1]

        @hookimpl
        def rlm_samplers():
            return {"easy_first": easy_first}
    """


@hookspec
def rlm_rollouts() -> Parts:
    """y: who writes the rows. Without one, the policy itself through TRL (transformers or vLLM).

    Several sources share a group: each takes the `num_completions` the recipe gives it, from the last of the group
    towards the first; one without takes all that are left. The policy writes the others, and every row a source leaves
    open. Parts see who wrote a row in ``sources``; a loss, weight or penalty with ``source: LABEL`` counts on those
    rows alone.

    Data: ``prompts``, ``inputs`` and ``source_index`` (of each row to write its prompt, its columns, and its number
    among those of the source in its group: 0, 1, …), ``tokenizer``, ``step`` (optimiser steps done), ``seed``,
    ``trainer``, and ``generate(prompts, prefixes=None, greedy=False)``: the policy generates. On a process that holds
    none of its rows a source is asked with empty lists. Returns ``completion_ids``, one list of token ids per row
    (None: leave it to the policy; what is longer than a completion may be is cut), and optionally ``mask`` (per token:
    is it trained on), ``logprobs``, ``prompt_ids``; any further key is a column for rewards. A class may say
    ``columns`` (those of the data set that it reads), ``whole_groups = True`` (it needs the rows of a group on one
    process), and have a method ``check()``, called before any weight is loaded (if it names ``prompts``: with those of
    the training rows, or None where they are a stream)::

        def scripted(prompts, tokenizer, *, text: str = "4"):
            \"\"\"Always answers `text`: a baseline that needs no model.\"\"\"
            ids = tokenizer(text)["input_ids"] + [tokenizer.eos_token_id]
            return {"completion_ids": [ids] * len(prompts)}

        @hookimpl
        def rlm_rollouts():
            return {"scripted": scripted}
    """


@hookspec
def rlm_generators() -> Parts:
    """y: how a text model writes, while it trains and when it is judged. The rows are asked for elsewhere.

    Data: ``generate`` (the model's own, of transformers), ``model`` (with or without adapters, not wrapped),
    ``inputs`` (``input_ids`` (B, P), padded on the left, and ``attention_mask``), ``config`` (a ``GenerationConfig``:
    how long, how hot, which tokens end a row), ``return_logprobs`` (True where log-probs are needed) and
    ``on_finished`` (None, or to be called with the numbers of rows that are done and the ids written on each, as soon
    as they are: rewards then work while others are written). Returns token ids (B, P + T): the prompts, and what was
    written, padded after its end; or, with `return_logprobs`, a :class:`rlm_plugins.generation.output.Generation`.
    From the same state of the random generator it writes the same. A part may carry ``trainer_settings``, what
    `trainer:` must say with it (then TRL writes while it trains), and ``dry_run(model, config, **knobs)``: for a model
    without weights why it will leave the writing to transformers (or None), and the bytes it holds while it writes;
    `rlm check` tells both::

        def in_pieces(generate, inputs, config, *, rows: int = 8):
            \"\"\"At most `rows` at a time: less memory, more time.\"\"\"
            starts = range(0, len(inputs["input_ids"]), rows)
            pieces = [generate(**{name: x[i : i + rows] for name, x in inputs.items()}, generation_config=config)
                      for i in starts]
            width, pad = max(x.shape[1] for x in pieces), config.pad_token_id
            return torch.cat([torch.nn.functional.pad(x, (0, width - x.shape[1]), value=pad) for x in pieces])

        @hookimpl
        def rlm_generators():
            return {"in_pieces": in_pieces}
    """


@hookspec
def rlm_rewards() -> Parts:
    """r: how good a completion was. Called with whole groups, on every process for its own rows.

    Data: any of :data:`rlm_plugins.batch.SAMPLE` and any column of the data set. Returns one float per row;
    ``None`` means "does not apply here". One that names ``completion`` is asked about each row alone, with the values
    of its row, and returns its float. `async def` works, and may be asked about each group alone. A function that
    ends in ``**kwargs`` is taken for one written for TRL and gets exactly what TRL passes. What it raises names plugin
    and sample; beside it a recipe may say ``on_error`` (stop, zero, skip), ``timeout``, ``processes`` and ``prefetch``.
    A class may have a method ``check()``, called before any weight is loaded, and ``setup(policy, results)``, called
    with every model that is trained or judged before its first score (``results``: name of an earlier stage → where its
    result lies; it may name ``tokenizer`` too; no ``processes`` then, and nothing is asked early). The value of a knob
    may have `setup` as well. Any class of the equation may have both: it meets the policy that is trained, once, and
    its ``check`` may name ``lora`` (the policy's adapter; None: all weights are trained)::

        def brevity(completions, *, characters: int = 200):
            \"\"\"1 for an empty completion, falling to 0 at `characters`.\"\"\"
            return [max(0.0, 1 - len(text) / characters) for text in completions]

        @hookimpl
        def rlm_rewards():
            return {"brevity": brevity}
    """


@hookspec
def rlm_shapers() -> Parts:
    """r′: how the raw score is bent before anyone compares. Shapers run in the order of the recipe.

    Returns ``(B,)``, the new reward of each row, or ``(B, T)``, a dense reward that is *added* token by token::

        def squashed(rewards, *, temperature: float = 1.0):
            \"\"\"r′ = σ(r / temperature).\"\"\"
            return torch.sigmoid(rewards / temperature)

        @hookimpl
        def rlm_shapers():
            return {"squashed": squashed}
    """


@hookspec
def rlm_filters() -> Parts:
    """Which rows teach. Returns ``(B,)`` booleans.

    A row that is not kept trains nothing, is not counted and is compared with nobody. With ``refill: N`` in the
    recipe, up to N generation batches are drawn until the batch is full of groups of which something was kept; a
    filter (and a shaper) then sees one draw at a time::

        def solved_sometimes(rewards, group, *, at_least: float = 0.1):
            \"\"\"Keeps the groups whose mean reward is at least `at_least`.\"\"\"
            means = torch.stack([rewards[group == g].mean() for g in group])
            return means >= at_least

        @hookimpl
        def rlm_filters():
            return {"solved_sometimes": solved_sometimes}
    """


@hookspec
def rlm_advantages() -> Parts:
    """Â: how much better a row did than expected.

    Returns ``(B,)`` (the same for all tokens of a row), ``(B, T)``, or the pair (advantages, returns) where a
    critic learns from the returns. Rows no reward could score are left out before the call. Like any part of the
    scoring room it may try what nobody is taught: ``generate(prompts, prefixes)`` continues from token ids,
    ``rewards_of(prompts, completion_ids, inputs)`` scores them with the recipe's rewards, ``logprobs_of(prompt_ids,
    completion_ids)`` returns their log-probs. Every process asks for the same; each does its share of writing and
    scoring, and all are answered in full::

        def median_baseline(rewards, group):
            \"\"\"Âᵢ = rᵢ − median of its group: one lucky row does not move the baseline.\"\"\"
            return rewards - torch.stack([rewards[group == g].median() for g in group])

        @hookimpl
        def rlm_advantages():
            return {"median_baseline": median_baseline}
    """


@hookspec
def rlm_importance() -> Parts:
    """w: how far the policy has moved since the rows were written. Returns **log w**, ``(B, T)`` or ``(B, 1)``.

    The machine computes ``ratio = exp(log w)`` once, for every part that names it::

        def per_token(logp, old_logp):
            \"\"\"log wᵢₜ = log π(yₜ) − log π_old(yₜ).\"\"\"
            return logp - old_logp

        @hookimpl
        def rlm_importance():
            return {"per_token": per_token}
    """


@hookspec
def rlm_policy_losses() -> Parts:
    """ℓ: what is done with w and Â. Returns the per-token loss to be *minimised*, ``(B, T)`` or ``(B, 1)``.

    ::

        def capped(ratio, advantages, *, cap: float = 2.0):
            \"\"\"ℓ = −min(w, cap) · Â.\"\"\"
            return -ratio.clamp(max=cap) * advantages

        @hookimpl
        def rlm_policy_losses():
            return {"capped": capped}
    """


@hookspec
def rlm_token_weights() -> Parts:
    """c: how much a token of ℓ counts. Returns ``(B, T)`` or ``(B, 1)`` without gradient; several multiply.

    Weights touch ℓ only: neither the penalties nor the counts in 1/Z. A part that compares its tokens with those of the
    whole optimiser step names ``step_batch`` and ``step_batch_rows``, and takes what it finds home by
    ``x[step_batch_rows, : mask.shape[1]]``: so no way of splitting the step changes its answer::

        def fading(logp, *, half_life: float = 100.0):
            \"\"\"Early tokens count more: c halves every `half_life` tokens.\"\"\"
            positions = torch.arange(logp.shape[1], device=logp.device)
            return (0.5 ** (positions / half_life)).expand_as(logp)

        @hookimpl
        def rlm_token_weights():
            return {"fading": fading}
    """


@hookspec
def rlm_penalties() -> Parts:
    """βΩ: what else is paid for. Returns the per-token cost Ω, ``(B, T)`` or ``(B, 1)``.

    The recipe gives each penalty its ``beta`` beside its knobs; β·Ω is added to the loss before aggregation. A
    coefficient that moves with the steps is a schedule in the recipe; one that adapts is a class with ``update``::

        def drift(logp, old_logp):
            \"\"\"Ω = (log π − log π_old)² / 2.\"\"\"
            return (logp - old_logp) ** 2 / 2

        @hookimpl
        def rlm_penalties():
            return {"drift": drift}
    """


@hookspec
def rlm_aggregators() -> Parts:
    """1/Z: how per-token losses become one number. Returns a scalar; the machine sums it over micro-batches.

    Divide by the counts that are handed in (``num_tokens``, ``num_sequences``: global, of the whole optimiser step),
    never by what you count yourself: then no way of splitting the batch changes a gradient::

        def square_root_length(loss, mask, num_sequences):
            \"\"\"A row of n tokens weighs √n: between sequence mean and sequence sum.\"\"\"
            lengths = mask.sum(1).clamp(min=1)
            return ((loss * mask).sum(1) / lengths.sqrt()).sum() / num_sequences

        @hookimpl
        def rlm_aggregators():
            return {"square_root_length": square_root_length}
    """


@hookspec
def rlm_algorithms() -> Mapping[str, Algorithm]:
    """A named row of the table: one choice for every symbol.

    A row is data. What it does not name keeps the default of :class:`rlm_plugins.algorithm.Algorithm`; a recipe
    overrides it slot by slot::

        bold_grpo = Algorithm(
            about="GRPO with a wide upper clip.",
            source="this file",
            advantage="group_relative",
            importance="token",
            policy_loss={"name": "clip", "epsilon": 0.2, "epsilon_high": 1.0},
            aggregator="token_mean",
        )

        @hookimpl
        def rlm_algorithms():
            return {"bold_grpo": bold_grpo}
    """


@hookspec
def rlm_trainers() -> Parts:
    """The engine that runs a stage. A row of the table names its engine.

    An engine is a class: ``config_class()`` gives the dataclass that the recipe's ``trainer:`` fills, ``refused``
    maps keys of it to the reason why they mean nothing here, and ``__call__(stage)`` trains. It may say
    ``needs_equation = True`` (it cannot run a row without symbols) and ``columns`` (those it learns from). One that
    makes no policy says what it ``produces`` (the next stage then starts where this one did), what its ``metrics`` are,
    and judges by ``evaluate(stage, rows, model=None)``, None being what it has saved::

        class DryRun:
            \"\"\"Builds everything, trains nothing.\"\"\"
            refused: dict[str, str] = {}
            def config_class(self):
                return trl.GRPOConfig
            def __call__(self, stage):
                stage.save(stage.model(), stage.tokenizer)

        @hookimpl
        def rlm_trainers():
            return {"dry_run": DryRun}
    """


@hookspec
def rlm_models() -> Parts:
    """π: what starts it. Returns a :class:`rlm_plugins.specs.ModelSpec`; no weight is loaded until it is asked.

    ::

        def tiny_gpt(*, path: str, layers: int = 2):
            \"\"\"A GPT-2 of `layers` layers with random weights and the tokenizer at `path`.\"\"\"
            config = transformers.GPT2Config(n_layer=layers)
            return ModelSpec(config=config, tokenizer=lambda: AutoTokenizer.from_pretrained(path),
                               load=lambda: transformers.GPT2LMHeadModel(config))

        @hookimpl
        def rlm_models():
            return {"tiny_gpt": tiny_gpt}
    """


@hookspec
def rlm_callbacks() -> Parts:
    """Who watches: transformers' ``TrainerCallback``s. Data: ``run``, the :class:`rlm_plugins.run.Run` folder.

    ::

        def stop_when_long(*, tokens: float = 500.0):
            \"\"\"Stops a run whose completions grow beyond `tokens` on average.\"\"\"
            from transformers import TrainerCallback

            class Watch(TrainerCallback):
                def on_log(self, args, state, control, logs=None, **kwargs):
                    control.should_training_stop |= (logs or {}).get("completions/mean_length", 0) > tokens
            return Watch()

        @hookimpl
        def rlm_callbacks():
            return {"stop_when_long": stop_when_long}
    """
