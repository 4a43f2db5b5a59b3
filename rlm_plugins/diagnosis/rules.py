"""The rules: bounds of metrics, their condition, the evidence, and the override that mends the cause.

A rule is violated with certainty if all of its bounds are violated in its last `steps` optimizer steps. A single step
beyond a bound is noise. A rule that replaces a less precise one names it in `instead_of`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from rlm_plugins.diagnosis.settings import StageSettings


@dataclass(frozen=True)
class Bound:
    """The healthy range of a metric.

    Args:
        metric: Name of a metric, or of a quantity of :mod:`rlm_plugins.diagnosis.history`. ``<label>`` stands for a
            reward or a rollout source.
        low: Least healthy value.
        high: Largest healthy value.
    """

    metric: str
    low: float = -math.inf
    high: float = math.inf

    def is_violated(self, value: float | None) -> bool:
        """Return True if a logged value is outside the range; null in the log (NaN or infinite) always is.

        >>> Bound("entropy", low=0.1).is_violated(0.05), Bound("grad_norm").is_violated(None)
        (True, True)
        """
        return value is None or not self.low <= value <= self.high


def _always(_settings: StageSettings, _label: str) -> bool:
    return True


@dataclass(frozen=True)
class Rule:
    """One cause of a run that does not learn.

    Args:
        name: Name of the cause.
        bounds: Healthy ranges; all are violated if the rule is.
        evidence: Format string over the means of the metrics of `bounds` ({0}, {1}, …), `label` and `settings`.
        remedy: Override of the recipe, or advice, from the settings.
        steps: Optimizer steps in a row.
        applies: Condition under which the bounds hold: (settings, label) → bool.
        instead_of: Rules that describe the same observation less precisely.
        severity: 3: the run cannot learn, 2: it learns badly, 1: a note.
    """

    name: str
    bounds: tuple[Bound, ...]
    evidence: str
    remedy: Callable[[StageSettings], str]
    steps: int = 3
    applies: Callable[[StageSettings, str], bool] = _always
    instead_of: tuple[str, ...] = ()
    severity: int = 3


def _times(path: str, factor: float) -> Callable[[StageSettings], str]:
    """Return the remedy that multiplies a number of the recipe."""

    def remedy(settings: StageSettings) -> str:
        value = settings[path]
        if not isinstance(value, int | float):
            return f"a {'larger' if factor > 1 else 'smaller'} {path}"
        return f"{path}={value * factor:g}"

    return remedy


def _text(advice: str) -> Callable[[StageSettings], str]:
    return lambda _settings: advice


def _has_group_baseline(settings: StageSettings, _label: str) -> bool:
    return settings.has_group_baseline


def _has_token_ratio(settings: StageSettings, _label: str) -> bool:
    """A ratio of whole sequences is clipped two orders of magnitude more often, by design (GSPO, arXiv 2507.18071)."""
    return settings["algorithm.importance.name"] in (None, "token", "builtin/token")


def _is_main_reward(settings: StageSettings, label: str) -> bool:
    return label == settings.main_reward


def _is_secondary_reward(settings: StageSettings, label: str) -> bool:
    return label != settings.main_reward


def _rewards_no_length(settings: StageSettings, _label: str) -> bool:
    names = [str(reward.get("name") if isinstance(reward, dict) else reward) for reward in settings["rewards"] or []]
    names += [str(shaper.get("name")) for shaper in settings["algorithm.shapers"] or []]
    return not any(word in name for name in names for word in ("length", "brevity", "overlong", "budget", "cosine"))


RULES: tuple[Rule, ...] = (
    # -- settings: known before the first step
    Rule(
        "adapter_rate_too_small",
        (Bound("adapter/displacement", low=1e-4),),
        "learning rate × steps is {0:.1g}: Adam moves no weight of the adapter further, and it starts at 0",
        _text("trainer.learning_rate=1e-4 or more: an adapter requires about ten times the rate of full training"),
        steps=1,
    ),
    Rule(
        "adapter_rate_too_large",
        (Bound("adapter/learning_rate", high=0.02),),
        "the learning rate of the adapter is {0:g}",
        _text("trainer.learning_rate=1e-3 or less"),
        steps=1,
    ),
    Rule(
        "adapter_rate_of_full_training",
        (Bound("adapter/learning_rate", low=4e-6),),
        "the learning rate {0:g} is one of full training; an adapter requires about ten times as much",
        _times("trainer.learning_rate", 10),
        steps=1,
        severity=1,
    ),
    Rule(
        "zero_learning_rate",
        (Bound("settings/learning_rate", low=1e-10),),
        "the learning rate is {0:g}: no weight changes",
        _text("trainer.learning_rate=1e-6 for all weights, 1e-4 for an adapter"),
        steps=1,
        instead_of=("adapter_rate_too_small", "adapter_rate_of_full_training"),
    ),
    Rule(
        "warmup_never_ends",
        (Bound("settings/warmup", high=0.9),),
        "the warm-up lasts {0:.1f} times as long as the run: the learning rate is not reached",
        _text("trainer.warmup_steps of a tenth of the steps or less"),
        steps=1,
    ),
    Rule(
        "gradient_clipped_to_nothing",
        (Bound("settings/max_grad_norm", low=1e-5),),
        "gradients are clipped to a norm of {0:g}",
        _text("trainer.max_grad_norm=1.0"),
        steps=1,
        applies=lambda settings, _label: settings["trainer.max_grad_norm"] != 0,  # 0: never
    ),
    Rule(
        "weights_decay_away",
        (Bound("settings/decay", high=0.02),),
        "weight decay shrinks the weights by {0:.0%} in every step",
        _text("trainer.weight_decay=0.0"),
        steps=1,
    ),
    Rule(
        "heavy_dropout",
        (Bound("settings/lora_dropout", high=0.5),),
        "{0:.0%} of the adapter's inputs are dropped",
        _text("model.lora.lora_dropout=0.05"),
        steps=1,
        severity=2,
    ),
    Rule(
        "kl_penalty_dominates",
        (Bound("settings/kl_beta", high=2.0),),
        "the coefficient of the KL penalty is {0:g}: the policy stays at the reference",
        _text("algorithm.penalties.kl.beta=0.04 or less"),
        steps=1,
        severity=2,
    ),
    Rule(
        "main_reward_punished",
        (Bound("settings/main_weight", low=0.0),),
        "the reward that is evaluated has the weight {0:g}: it is trained away",
        _text("a positive `weight` of that reward, or another `evaluation.metric`"),
        steps=1,
    ),
    Rule(
        "identical_completions",
        (Bound("settings/temperature", low=0.1),),
        "the temperature is {0:g}: the completions of a prompt hardly differ",
        _text("trainer.temperature=1.0"),
        steps=1,
    ),
    Rule(
        "greedy_sampling",
        (Bound("settings/top_k", low=1.5),),
        "top_k is 1: the completions of a prompt cannot differ",
        _text("trainer.top_k=0"),
        steps=1,
        applies=lambda settings, _label: settings["trainer.top_k"] == 1,
        instead_of=("biased_ratio_of_top_k",),
    ),
    Rule(
        "biased_ratio",
        (Bound("settings/top_p", low=0.9999),),
        "tokens are sampled from the most likely {0:.0%}, and their log-probs are of the full distribution",
        _text("trainer.top_p=1.0 trainer.top_k=0, if the paper does not ask for it"),
        steps=1,
        severity=1,
    ),
    Rule(
        "biased_ratio_of_top_k",
        (Bound("settings/top_k", high=0.5),),
        "tokens are sampled from the {0:.0f} most likely, and their log-probs are of the full distribution",
        _text("trainer.top_k=0, if the paper does not ask for it"),
        steps=1,
        severity=1,
    ),
    # -- data
    Rule(
        "duplicated_prompts",
        (Bound("data/duplicated", high=0.5),),
        "{0:.0%} of the training prompts occur before",
        _text("a data set with each prompt once: trainer.num_train_epochs repeats it"),
        steps=1,
        severity=1,
    ),
    Rule(
        "held_out_overlap",
        (Bound("data/overlap", high=0.01),),
        "{0:.0%} of the held-out prompts are training prompts: the held-out score measures memory",
        _text("held-out prompts that are not in the training set"),
        steps=1,
        severity=2,
    ),
    Rule(
        "answer_in_prompt",
        (Bound("data/answer_in_prompt", high=0.5),),
        "{0:.0%} of the prompts contain their gold answer: the policy copies it",
        _text("a prompt template without the column of the answer"),
        steps=1,
        severity=2,
    ),
    Rule(
        "no_generation_prompt",
        (Bound("data/generation_prompt", low=0.5),),
        "the chat template does not open the turn of the assistant: the policy continues the user's message",
        _text("a chat template that honors `add_generation_prompt`"),
        steps=1,
    ),
    Rule(
        "pad_is_end",
        (Bound("data/pad_is_end", high=0.5),),
        "the pad token is the end token: a collator that masks by token never trains the end",
        _text("a pad token of its own, if completions do not end; the trainers here mask by length"),
        steps=1,
        severity=1,
    ),
    # -- the update is broken
    Rule(
        "non_finite_gradient",
        (Bound("grad_norm"),),
        "the gradient is not a finite number",
        _times("trainer.learning_rate", 0.1),
        steps=1,
    ),
    Rule(
        "advantage_explosion",
        (Bound("advantage/abs_mean", high=50.0),),
        "the mean |Â| is {0:.3g}; it is of order 1 in a run that learns",
        _text("rewards of order 1: lower `weight` of the largest reward, or `algorithm.advantage.scale=group`"),
        steps=2,
    ),
    Rule(
        "zero_gradient",
        (Bound("policy/grad_norm", low=1e-12), Bound("advantage/nonzero", high=0.2)),
        "{1:.0%} of the tokens have an advantage, and the gradient is 0",
        _text("a larger `algorithm.policy_loss.epsilon`, or trained modules that the loss depends on"),
    ),
    # -- completions
    Rule(
        "truncated_completions",
        (Bound("completions/clipped_ratio", high=0.5),),
        "{0:.0%} of the completions are cut at {settings[trainer.max_completion_length]} tokens",
        _times("trainer.max_completion_length", 4),
    ),
    Rule(
        "no_end_token",
        (Bound("completions/clipped_ratio", high=0.9), Bound("reward/of_maximum", high=0.15)),
        "{0:.0%} of the completions never end, and they are rewarded ({1:.0%} of the largest reward)",
        _text("demonstrations that end with the tokenizer's `eos_token`, or its end token in `generation_config`"),
        instead_of=("truncated_completions",),
    ),
    Rule(
        "growing_completions",
        (Bound("completions/length_of_start", high=2.5), Bound("rewards/<label>/change", low=0.02)),
        "the completions are {0:.1f} times as long as at the start, and `{label}` has not risen",
        _text("the shaper `overlong`, or the aggregator `fixed_length` (`dr_grpo`)"),
        applies=_is_main_reward,
        severity=2,
    ),
    Rule(
        "shrinking_completions",
        (Bound("completions/length_of_start", low=0.25), Bound("rewards/<label>/change", low=-0.05)),
        "the completions have {0:.0%} of their length at the start, and `{label}` fell by {1:.2f}",
        _text("no reward of brevity, or one that is paid for correct completions only"),
        applies=_is_main_reward,
    ),
    # -- the signal
    Rule(
        "prompts_too_hard",
        (
            Bound("frac_reward_zero_std", high=0.9),
            Bound("reward/of_maximum", low=0.5),
            Bound("advantage/nonzero", low=0.1),
        ),
        "{0:.0%} of the groups have equal rewards, at {1:.0%} of the largest reward",
        _times("trainer.num_generations", 2),
        applies=_has_group_baseline,
        steps=4,
    ),
    Rule(
        "prompts_too_easy",
        (
            Bound("frac_reward_zero_std", high=0.9),
            Bound("reward/of_maximum", high=0.5),
            Bound("advantage/nonzero", low=0.1),
        ),
        "{0:.0%} of the groups have equal rewards, at {1:.0%} of the largest reward",
        _text("harder prompts: nothing is left to learn from these"),
        applies=_has_group_baseline,
        steps=4,
        severity=1,
    ),
    Rule(
        "tied_rewards",
        (Bound("reward_ties", high=0.85),),
        "{0:.0%} of the pairs within a group have equal rewards",
        _text("a finer reward: partial credit, or a second reward"),
        applies=_has_group_baseline,
        steps=8,
        severity=1,
    ),
    Rule(
        "dead_reward",
        (Bound("rewards/<label>/std", low=1e-9), Bound("rewards/<label>/mean", low=1e-9)),
        "`{label}` has not paid a single completion",
        _text("`rlm reward probe` with the recipe: does the reward find the answer in the completion?"),
        applies=_is_main_reward,
        steps=8,
        instead_of=("prompts_too_hard",),
    ),
    Rule(
        "unscored_completions",
        (Bound("rewards/<label>/unscored", high=0.95),),
        "`{label}` scores {0:.0%} of the completions with None",
        _text("an answer format that the reward can parse: `rlm reward probe` shows it"),
    ),
    Rule(
        "failing_reward",
        (Bound("rewards/<label>/failed", high=0.0),),
        "`{label}` fails on {0:.0f} completions of a step; they are in faults.jsonl",
        _text("a reward that handles any text: `rlm reward probe` shows which it does not"),
        severity=2,
    ),
    Rule(
        "length_rewarded",
        (Bound("reward_length_correlation", low=-0.9, high=0.9),),
        "the correlation of reward and length is {0:+.2f}",
        _text("a reward that does not depend on length: `rlm reward probe` measures it"),
        applies=_rewards_no_length,
        steps=6,
        severity=2,
    ),
    Rule(
        "secondary_reward_farmed",
        (
            Bound("rewards/<label>/mean", high=0.9),
            Bound("main/mean", low=0.02),
        ),
        "`{label}` is at {0:.0%}, and the main reward pays {1:.0%}",
        _text("a smaller `weight` of that reward, or one that is paid for correct completions only"),
        applies=_is_secondary_reward,
        steps=8,
    ),
    Rule(
        "main_reward_traded",
        (Bound("main/change", low=-0.1), Bound("reward/change", high=0.05)),
        "the reward rose by {1:.2f}, and the one that is evaluated fell by {0:.2f}",
        _text("smaller weights of the other rewards, or ones that are paid for correct completions only"),
        steps=4,
        severity=2,
    ),
    Rule(
        "offset_reward",
        (Bound("reward/offset", high=1e4),),
        "the mean reward is {0:.0f} times its standard deviation: differences are lost to rounding",
        _text("a reward without its constant part"),
        severity=2,
    ),
    Rule(
        "nothing_kept",
        (Bound("filters/kept", low=0.05),),
        "the filters keep {0:.0%} of the completions",
        _text("larger groups, or filters with wider bounds"),
    ),
    Rule(
        "unfilled_batches",
        (Bound("refill/full", low=0.5),),
        "dynamic sampling fills {0:.0%} of the groups",
        _text("prompts of medium difficulty, or larger groups"),
    ),
    # -- the policy
    Rule(
        "entropy_collapse",
        (Bound("entropy/of_start", low=0.2), Bound("entropy", low=0.06), Bound("reward/of_maximum", low=0.5)),
        "the entropy fell to {1:.3f} nats, {0:.0%} of its start, at {2:.0%} of the largest reward",
        _text("a higher `algorithm.policy_loss.epsilon_high`, a smaller learning rate, or the penalty `entropy`"),
    ),
    Rule(
        "entropy_explosion",
        (Bound("entropy/of_start", high=2.0), Bound("entropy", high=1.0), Bound("main/change", low=-0.02)),
        "the entropy rose to {1:.2f} nats, {0:.1f} times its start, and the main reward fell",
        _times("trainer.learning_rate", 0.1),
    ),
    Rule(
        "kl_runaway",
        (Bound("penalties/kl", high=1.0),),
        "the KL from the reference policy is {0:.2f} nats per token",
        _times("trainer.learning_rate", 0.3),
    ),
    Rule(
        "clipped_update",
        (Bound("policy_loss/clipped", high=0.3),),
        "{0:.0%} of the tokens are clipped and have no gradient",
        _times("algorithm.policy_loss.epsilon", 2),
        applies=_has_token_ratio,
    ),
    Rule(
        "stale_policy",
        (Bound("policy_loss/clipped", high=0.1),),
        "{0:.0%} of the tokens are clipped: the updates on one batch move the policy too far from its samples",
        _text("fewer updates per generation batch: trainer.num_iterations=1, a smaller trainer.steps_per_generation"),
        applies=lambda settings, _label: settings.updates_per_batch > 4,
        instead_of=("clipped_update",),
    ),
    Rule(
        "engine_mismatch",
        (Bound("sampling/sampling_logp_difference/mean", high=0.1),),
        "the log-probs of the inference engine differ from the trainer's by {0:.2f} nats per token",
        _text("one precision and one chat template for both, or the algorithm `flash_rl`, which corrects the ratio"),
    ),
    # -- critic, episodes, sources
    Rule(
        "critic_lags",
        (Bound("critic/explained_variance", low=0.02), Bound("critic/gap", high=0.4)),
        "the value function explains {0:.0%} of the variance of the returns, and misses their mean by {1:.1f} std",
        _text("a larger critic.learning_rate, or critic.warmup_steps"),
        steps=8,
    ),
    Rule(
        "failing_environment",
        (Bound("episodes/failed", high=0.2),),
        "{0:.0%} of the episodes end in a failure of the environment; they are in faults.jsonl",
        _text("an environment that handles any action"),
    ),
    Rule(
        "failing_tools",
        (Bound("tools/failure_frequency", high=0.9), Bound("tools/call_frequency", high=0.1)),
        "{0:.0%} of the tool calls fail",
        _text("a prompt that shows how each tool is called"),
        severity=2,
    ),
    Rule(
        "missing_demonstrations",
        (Bound("sources/<label>/filled", low=0.1),),
        "the rollout source `{label}` supplies {0:.0%} of its completions",
        _text("a pool with completions of these prompts"),
        severity=2,
    ),
    Rule(
        "truncated_demonstrations",
        (Bound("sources/<label>/truncated", high=0.5),),
        "{0:.0%} of the completions of the source `{label}` have no end token",
        _times("trainer.max_completion_length", 2),
        applies=lambda _settings, label: label != "policy",
    ),
)
"""Causes before their symptoms: findings of one severity are listed in this order."""
