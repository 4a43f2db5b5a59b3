"""The metrics: formula, meaning and healthy range of each, for ``rlm explain NAME``.

A mean without a subscript is over the trained tokens (Â, w, entropy) or the completions (rewards, lengths) of all
processes, averaged over the steps since the last log. The names are those of ``metrics.jsonl``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One metric of the log.

    Args:
        name: Name in the log; ``<label>`` stands for any name, ``<a|b>`` for one of these.
        formula: Its computation.
        meaning: Its meaning.
        healthy: Expected values in a run that learns, and remedies for other values.
    """

    name: str
    formula: str
    meaning: str
    healthy: str

    def matches(self, name: str) -> bool:
        """Return True if `name` matches the name of this entry.

        >>> Metric("rewards/<label>/<mean|std>", "", "", "").matches("rewards/accuracy/std")
        True
        >>> Metric("rewards/<label>/<mean|std>", "", "", "").matches("rewards/accuracy/max")
        False
        """
        pieces = re.split(r"(<[^>]+>)", self.name)
        return re.fullmatch("".join(map(_pattern, pieces)), name) is not None


def _pattern(piece: str) -> str:
    """Return a regular expression for a piece of a name: a placeholder, alternatives, or literal text."""
    if not piece.startswith("<"):
        return re.escape(piece)
    return f"({piece[1:-1]})" if "|" in piece else ".+"


def find(name: str) -> Metric | None:
    """Return the most specific entry that matches a logged name, or None.

    >>> find("rewards/accuracy/mean").name
    'rewards/<label>/<mean|std>'
    >>> find("penalties/kl").name
    'penalties/<name>'
    >>> find("nonsense") is None
    True
    """
    bare = name.removeprefix("eval_")
    return next((metric for metric in METRICS if metric.matches(bare)), None)


METRICS: tuple[Metric, ...] = (
    # -- quality
    Metric(
        "held_out/<low|high>",
        "95 % interval of the score: Wilson's for scores of 0 and 1, mean ± 1.96 std / √n for others",
        "Confidence interval of the held-out score.",
        "Runs with overlapping intervals are not significantly different: raise `evaluation.rows`.",
    ),
    Metric("held_out/rows", "n", "Number of held-out examples.", "Constant; the interval narrows as 1/√n."),
    Metric(
        "held_out/pair_accuracy",
        "share of held-out pairs with r(x, y⁺) > r(x, y⁻), ties counted half",
        "Accuracy of a reward model on held-out preference pairs.",
        "From 0.5 up to the agreement of the annotators. It does not cover completions unlike those of the pairs.",
    ),
    Metric(
        "held_out/<label>",
        "mean of the reward `label` over greedy completions of held-out examples",
        "Quality of the model on examples it is not trained on: the main result of a run.",
        "Rises, then levels off. If only `reward` rises: reward hacking or memorization.",
    ),
    Metric(
        "reward",
        "mean of Σ weight · reward, before shapers",
        "Quality of the sampled completions.",
        "Rises. Flat from the start: all groups fail (use easier prompts) or the learning rate is too small. Sudden "
        "rise: check samples.jsonl for reward hacking.",
    ),
    Metric(
        "reward_std",
        "standard deviation of the summed reward over all completions of the batch (unbiased)",
        "Spread of the quality of completions.",
        "Falls slowly as prompts are solved. 0: the batch has no policy gradient.",
    ),
    Metric(
        "rewards/<label>/<mean|std>",
        "mean and standard deviation of one reward, unweighted and unshaped, over the completions it applies to",
        "Score of each reward.",
        "The main reward rises. An easy one (format) saturates early and stays.",
    ),
    Metric(
        "rewards/<label>/share",
        "cov(weight · reward, Σ weight · reward) / var(Σ weight · reward) over all completions",
        "Share of each reward in the variance of the sum, and so in the gradient. The shares sum to 1.",
        "The main reward has the largest share. Negative: it works against the others.",
    ),
    Metric(
        "rewards/<label>/length_correlation",
        "Pearson's correlation of one reward with the trained tokens of the completion",
        "Length bias of the reward.",
        "Near 0, unless a length reward is intended. Drifting towards ±1: length is rewarded, or penalized.",
    ),
    Metric(
        "rewards/<label>/unscored",
        "share of completions for which the reward returned None, or failed with `on_error: skip`",
        "Share of completions without a score.",
        "Constant. Growing: the reward cannot parse the completions.",
    ),
    Metric(
        "rewards/<label>/failed",
        "completions of the generation batch for which the reward raised, timed out or returned no number",
        "Failures handled by `on_error: zero` or `skip`; the samples are in faults.jsonl.",
        "0. Otherwise the reward is faulty, and the policy may learn to make it fail.",
    ),
    Metric(
        "rewards/<label>/seconds",
        "seconds of one call, on the slowest process",
        "Duration of the reward.",
        "Small beside `step_time`; steady.",
    ),
    Metric(
        "reward_ties",
        "share of the pairs within a group that have one reward, before shapers and filters",
        "Share of pairs that the reward does not distinguish.",
        "Below 0.8. Near 1 there is no signal: use a finer reward, or other prompts.",
    ),
    Metric(
        "reward_length_correlation",
        "Pearson's correlation of Σ weight · reward with the trained tokens of the completion",
        "Length bias of the summed reward.",
        "As for a single reward. Not logged if all rewards or all lengths are equal.",
    ),
    Metric(
        "frac_reward_zero_std",
        "share of completions whose group has equal rewards, before shapers and filters",
        "Share of samples with zero group-relative advantage.",
        "Below 0.5. Near 1 with a low reward: prompts too hard; with a high reward: too easy.",
    ),
    Metric(
        "shapers/reward",
        "mean of r′",
        "The reward that advantages are computed from.",
        "Follows `reward`. A widening gap: the shapers' penalties grow.",
    ),
    Metric(
        "filters/kept",
        "kept completions / completions with at least one trained token",
        "Share of the batch that the filters keep for the update.",
        "Above 0.3. Near 0 few completions determine the step: use larger groups or other prompts.",
    ),
    Metric(
        "dynamic_sampling/rounds",
        "generation batches sampled to fill one",
        "Cost of dynamic sampling. `reward`, `filters/kept` and the lengths are means over all sampled completions, "
        "not only those of the update.",
        "Near 1. At the bound: prompts too hard or too easy; use others, or larger groups.",
    ),
    Metric(
        "refill/full",
        "groups of the batch of which the refilling filters keep a completion / all groups",
        "Success of dynamic sampling; the other groups have no gradient.",
        "1. Below: the maximum number of sampling rounds was reached.",
    ),
    # -- advantages
    Metric(
        "advantage/abs_mean",
        "mean |Â|",
        "Magnitude of the policy-gradient signal.",
        "Of order 0.5–1 when advantages are divided by a std; without, of the order of `reward_std`.",
    ),
    Metric(
        "advantage/std",
        "std of Â over the trained tokens (with n)",
        "Scale of the policy-gradient signal.",
        "1 if advantages are whitened. With a critic it falls as the TD errors shrink.",
    ),
    Metric(
        "advantage/nonzero",
        "share of trained tokens with Â ≠ 0",
        "Share of tokens with policy gradient.",
        "Above 0.3. At 0 for long the run is idle: the callback `stop_at_zero_advantage` ends it.",
    ),
    Metric(
        "speed/skipped",
        "share of completions that the update skips because their advantage is 0; with "
        "`speed: {skip_zero_advantage: true}`",
        "Saved forward passes. The means of the loss metrics and of the entropy are over the other completions.",
        "1 − `advantage/nonzero`, per completion.",
    ),
    # -- critic
    Metric(
        "critic/explained_variance",
        "1 − var(R − V) / var(R) over trained tokens, V before the update; not logged where R does not vary",
        "Share of the return variance that the critic predicts.",
        "Rises from 0 to 0.3 and far more. Below 0: worse than no critic; raise `warmup_steps`, lower its step size.",
    ),
    Metric(
        "critic/<value|return>",
        "mean of V before the update, and of its target R",
        "Mean prediction and mean return.",
        "The value follows the return after some steps. A lasting gap: a larger `critic.learning_rate`.",
    ),
    Metric(
        "critic/grad_norm",
        "‖gradient‖₂ over the critic's trained parameters, before clipping to `critic.max_grad_norm`",
        "Gradient norm of the critic.",
        "Large at first, then small. Always above the limit: scale the rewards, or raise the limit.",
    ),
    Metric("critic/learning_rate", "the critic's at this step", "Step size of the critic.", "As in the recipe."),
    # -- reward model
    Metric(
        "accuracy",
        "share of the pairs of a batch with r(x, y⁺) > r(x, y⁻)",
        "Training accuracy of a reward model.",
        "Rises above 0.5, to the agreement of the annotators. Far above `held_out/pair_accuracy`: memorization; use "
        "fewer epochs or more pairs.",
    ),
    Metric(
        "margin",
        "mean r(x, y⁺) − r(x, y⁻) over pairs of a batch",
        "Confidence of a reward model on its training pairs.",
        "Rises, then levels off. Rising without bound: overconfident; use fewer steps.",
    ),
    Metric(
        "<min|mean|max>_reward",
        "least, mean and largest score of a batch of pairs",
        "Range of the scores of a reward model.",
        "Near 0, a few units wide. The offset is arbitrary; `center_rewards_coefficient` fixes it.",
    ),
    # -- update
    Metric(
        "loss",
        "the minimized objective, as aggregated",
        "Not informative in reinforcement learning: only its gradient matters.",
        "Near 0, either sign: advantages of a group sum to 0. In a supervised stage it falls.",
    ),
    Metric(
        "grad_norm",
        "‖gradient‖₂ over all trained parameters, before clipping to `max_grad_norm`",
        "Gradient norm of the step.",
        "Steady, with no trend. Spikes: lower the learning rate or `max_grad_norm`. 0: no gradient. NaN: broken.",
    ),
    Metric("learning_rate", "the schedule at this step", "Step size.", "As in the recipe."),
    Metric(
        "entropy",
        "mean over the tokens of the update of −Σ π log π, in nats, without those skipped by "
        "`speed.skip_zero_advantage`",
        "Uncertainty of the policy at the generated tokens.",
        "Falls slowly. Near 0 early: entropy collapse, the completions of a group become alike; raise the temperature "
        "or `epsilon_high`, or add an entropy bonus. Rising without bound: the policy diverges.",
    ),
    Metric(
        "policy_loss/clipped_<low|high>",
        "share of tokens with w below 1−ε and Â < 0 (low), above 1+ε_high and Â > 0 (high)",
        "Share of clipped tokens, which have no gradient.",
        "0 on-policy (w = 1), up to some percent with several updates. Above 0.2: lower the learning rate.",
    ),
    Metric(
        "policy_loss/capped",
        "share of tokens with w > 1+ε_high and Â > 0",
        "Share of tokens with capped weight, which keep their gradient.",
        "As for clipped tokens: 0 on-policy, some percent otherwise.",
    ),
    Metric(
        "token_weights/drawn",
        "share of tokens whose gradient the covariance clip removes",
        "Sampled from the tokens with high covariance of log-prob and advantage.",
        "At most `share` of the part. Always 0: no token has a covariance between `low` and `high`.",
    ),
    Metric(
        "schedule/<key>.<part>.<knob>",
        "value of the knob at this optimizer step",
        "Current value of a schedule of the recipe.",
        "As in the recipe.",
    ),
    Metric(
        "penalties/value_clipped",
        "share of tokens whose value has moved further than ε in the direction of R",
        "Share of clipped values, which have no gradient.",
        "0 with one update per batch; some percent otherwise. Above 0.5: ε is small for rewards of this scale.",
    ),
    Metric(
        "penalties/kl_factor",
        "f of `adaptive_kl`; its coefficient is β f",
        "Adaptive factor that holds the KL at its target.",
        "Settles. Rising without bound: the learning rate is too high for the target. Near 0: the KL stays below it.",
    ),
    Metric(
        "penalties/entropy_coefficient",
        "α of `adaptive_entropy`: c where the entropy is at its target or below, else 0",
        "Coefficient of the entropy bonus.",
        "0 at first, small and intermittent later. Long at its maximum: the bonus cannot hold the entropy.",
    ),
    Metric(
        "penalties/<name>",
        "mean Ω, before its coefficient β",
        "Value of the penalty; a KL in nats per token.",
        "A KL starts at 0 and grows to a few hundredths or tenths. Far beyond 1 the policy has left its reference.",
    ),
    Metric(
        "<importance|policy_loss|token_weights|penalties|aggregator>/<name>",
        "mean over trained tokens of what the part logged as `name`",
        "Logged by the part in that slot.",
        "See `rlm explain` of the part.",
    ),
    # -- completions
    Metric(
        "completions/<mean|min|max>_length",
        "tokens per completion; tool output is not counted",
        "Length of completions.",
        "Grows if longer reasoning is rewarded. Growth without reward: rambling; falling to the minimum: no reasoning.",
    ),
    Metric(
        "completions/<mean|min|max>_terminated_length",
        "tokens per completion that ends with an end token; 0 if none does",
        "Length of complete answers.",
        "Well below `max_completion_length`.",
    ),
    Metric(
        "completions/clipped_ratio",
        "share of completions cut off at `max_completion_length`",
        "Share of truncated completions.",
        "Below 0.1, else raise the limit or add `overlong`. Growing: rambling.",
    ),
    Metric(
        "episodes/turns",
        "turns of the model per episode (multi-turn environments)",
        "Length of episodes.",
        "Depends on the task. At the environment's `turns`: episodes do not end.",
    ),
    Metric(
        "episodes/return",
        "mean over episodes of the sum of per-turn rewards",
        "Return of the environment, before weights and shapers.",
        "Rises; equal to `reward` if it is the only reward, with weight 1.",
    ),
    Metric(
        "episodes/done",
        "share of episodes that the environment ended; with tools, that ended without a tool call",
        "The others reached the limit of tokens or turns.",
        "Near 1, else raise `max_completion_length`.",
    ),
    Metric(
        "episodes/failed",
        "share of episodes in which the environment raised or hung",
        "Faults of the environment, not of the model.",
        "0. The samples are in `faults.jsonl`.",
    ),
    Metric(
        "tools/<call|failure>_frequency",
        "tool calls per completion; share of calls that failed",
        "Use of tools, and errors.",
        "Calls settle at a task-dependent number; failures fall.",
    ),
    Metric(
        "mean_token_accuracy",
        "share of demonstrated tokens that are the model's most likely token",
        "Fit of the demonstrations (supervised stages).",
        "Rises; 1.0 means memorization.",
    ),
    Metric(
        "sources/<label>/share",
        "completions of that source / all completions of the generation batch",
        "Share of each rollout source: `policy`, or a label of the recipe.",
        "As in the recipe; `policy` has more if a source lacks completions (a pool without that prompt).",
    ),
    Metric(
        "sources/<label>/filled",
        "completions of that source / its `num_completions`",
        "Availability of the source; the policy generates the missing completions.",
        "1. Less: a pool without that prompt or with too few completions, or a missing demonstration.",
    ),
    Metric(
        "sources/<label>/reward",
        "mean of Σ weight · reward over the completions of that source, before shapers",
        "Quality of each source; `reward` is the mean over all of them.",
        "`policy` rises towards the others. Demonstrations far below 1: the rewards cannot parse them.",
    ),
    Metric(
        "sources/<label>/truncated",
        "share of the source's completions without an end token",
        "Completions truncated at `max_completion_length`.",
        "0 for demonstrations and replayed completions; else raise the limit, or the policy learns to stop early.",
    ),
    # -- mismatch of trainer and inference engine
    Metric(
        "sampling/sampling_logp_difference/<mean|max>",
        "|log π_trainer − log π_vLLM| over sampled tokens",
        "Mismatch between the inference engine and the trainer.",
        "Mean below 0.05. More: another precision, stale weights, or another template.",
    ),
    Metric(
        "sampling/importance_sampling_ratio/<min|mean|max>",
        "TRL's correction π_trainer / π_vLLM, after its cap",
        "Size of the off-policy correction.",
        "Mean near 1.",
    ),
    # -- progress
    Metric("stage", "", "The stage of the recipe that logged this line.", "—"),
    Metric("step", "optimizer steps so far", "Time.", "—"),
    Metric(
        "epoch", "passes over the training prompts so far", "Time.", "With few prompts, many epochs mean memorization."
    ),
    Metric("num_tokens", "prompt and completion tokens so far, all processes", "Processed tokens.", "—"),
    Metric("num_input_tokens_seen", "as `num_tokens`", "Processed tokens.", "—"),
    Metric(
        "step_time", "seconds of one optimizer step, generation included", "Speed.", "Grows with completion length."
    ),
    Metric("aux_loss", "load-balancing loss of a mixture of experts", "Load balance of the experts.", "Near constant."),
    Metric("train_loss", "mean of `loss` over the stage", "A summary, once at the end.", "See `loss`."),
    Metric("total_flos", "floating-point operations, by transformers' 6 N per token", "Once, at the end.", "—"),
    Metric("train_runtime", "seconds of the stage", "Once, at the end.", "—"),
    Metric("train_<samples|steps|tokens>_per_second", "as named", "Speed over the whole stage.", "—"),
)
"""In reading order of a log; the first entry that matches a name counts."""
