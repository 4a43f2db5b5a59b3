"""Each logged number: formula, meaning, what healthy looks like. ``rlm explain NAME`` reads it from here.

A mean without a subscript is over the trained tokens (Â, w, entropy) or the rows (rewards, lengths) of all processes,
averaged over the steps since the last log. The names are those of ``metrics.jsonl``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One number of the ledger.

    Args:
        name: As it is logged; ``<label>`` stands for any name, ``<a|b>`` for one of these.
        formula: How it is computed.
        meaning: What it tells.
        healthy: What to expect of a run that learns, and what to do when it looks different.
    """

    name: str
    formula: str
    meaning: str
    healthy: str

    def matches(self, name: str) -> bool:
        """Whether `name` is one of the names this entry stands for.

        >>> Metric("rewards/<label>/<mean|std>", "", "", "").matches("rewards/accuracy/std")
        True
        >>> Metric("rewards/<label>/<mean|std>", "", "", "").matches("rewards/accuracy/max")
        False
        """
        pieces = re.split(r"<([^>]+)>", self.name)
        escaped = [f"({p})" if "|" in p else ".+" if odd % 2 else re.escape(p) for odd, p in enumerate(pieces)]
        return re.fullmatch("".join(escaped), name) is not None


def find(name: str) -> Metric | None:
    """The entry for a logged name; the most particular one when several fit.

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
    # -- how good
    Metric(
        "held_out/<low|high>",
        "95 % interval of the score: Wilson's for scores of 0 and 1, mean ± 1.96 std / √n for others",
        "Where the true held-out score lies.",
        "Two runs whose intervals overlap have not been told apart: raise `evaluation.rows`.",
    ),
    Metric("held_out/rows", "n", "Held-out problems that were answered.", "Constant; the interval narrows as 1/√n."),
    Metric(
        "held_out/pair_accuracy",
        "share of held-out pairs with r(x, y⁺) > r(x, y⁻), ties counted half",
        "How many preferences a reward model foretells that it has not seen.",
        "From 0.5 to the share on which readers agree. It says nothing of answers unlike those in the pairs.",
    ),
    Metric(
        "held_out/<label>",
        "mean over held-out rows of the reward `label`, on greedy answers",
        "How good the model is on problems it is never trained on. The number a run is about.",
        "Rises, then levels off. Rises in `reward` but not here: the rewards are being gamed or memorised.",
    ),
    Metric(
        "reward",
        "mean of Σ weight · reward, before shapers",
        "How good the sampled completions are.",
        "Rises. Flat from the start: all groups fail (easier problems) or the step is too small. Sudden rise: read "
        "samples.jsonl, it may be a trick.",
    ),
    Metric(
        "reward_std",
        "standard deviation of the summed reward over all rows of the batch (Bessel)",
        "How different completions are in quality.",
        "Falls slowly as problems are solved. 0: nothing can be learned from this batch.",
    ),
    Metric(
        "rewards/<label>/<mean|std>",
        "mean and standard deviation of one reward, unweighted and unshaped, over the rows it applied to",
        "Which reward the model is earning.",
        "The one you care about rises. An easy one (format) should saturate early and then stay.",
    ),
    Metric(
        "rewards/<label>/share",
        "cov(weight · reward, Σ weight · reward) / var(Σ weight · reward) over all rows",
        "Which reward makes the difference between rows, and so decides what is learned. The shares sum to 1.",
        "Most of it belongs to the reward that you care about. Negative: it pulls against the rest.",
    ),
    Metric(
        "rewards/<label>/length_correlation",
        "Pearson's correlation of one reward with the trained tokens of the completion",
        "Whether the reward pays for length.",
        "Near 0, or what you want it to be. Drifting towards ±1: the model is paid for writing more, or less.",
    ),
    Metric(
        "rewards/<label>/unscored",
        "share of rows for which the reward returned None, or failed and was skipped",
        "How often it did not apply.",
        "Constant. Growing: the model writes what the reward cannot read.",
    ),
    Metric(
        "rewards/<label>/failed",
        "rows of the generation for which the reward raised, hung or returned no number",
        "How often `on_error: zero` or `skip` stood in for a score; the samples are in faults.jsonl.",
        "0. Anything else is a fault of the reward; who finds it may be paid for making it fail.",
    ),
    Metric(
        "rewards/<label>/seconds",
        "seconds of one call, on the slowest process",
        "What the reward costs.",
        "Small beside `step_time`; steady.",
    ),
    Metric(
        "reward_ties",
        "share of the pairs within a group that have one reward, before shapers and filters",
        "How often the reward cannot tell two answers apart.",
        "Below 0.8. Near 1 nothing is compared; a reward in finer steps, or harder problems.",
    ),
    Metric(
        "reward_length_correlation",
        "Pearson's correlation of Σ weight · reward with the trained tokens of the completion",
        "Whether length is what pays.",
        "As of one reward. Not logged where all rewards, or all lengths, are equal.",
    ),
    Metric(
        "frac_reward_zero_std",
        "share of rows whose group has equal rewards, before shapers and filters",
        "How much of the writing teaches nothing: without spread a group-relative advantage is 0.",
        "Below 0.5. Near 1 with a low reward: too hard; with a high reward: solved, take harder problems.",
    ),
    Metric(
        "shapers/reward",
        "mean of r′",
        "The reward that advantages are computed from.",
        "Moves with `reward`; a widening gap says the model pays more and more for what the shapers punish.",
    ),
    Metric(
        "filters/kept",
        "rows that were kept / rows with at least one trained token",
        "How much of the batch the filters let teach.",
        "Above 0.3. Near 0 the step rests on a handful of rows: larger groups or other problems.",
    ),
    Metric(
        "dynamic_sampling/rounds",
        "generation batches drawn to fill one",
        "What the filters cost in writing. `reward`, `filters/kept` and the lengths are then means over all that was "
        "drawn, not over the rows that were trained on.",
        "Near 1. At the bound: too hard or too easy problems; take others, or larger groups.",
    ),
    Metric(
        "refill/full",
        "places of the batch taken by groups of which the refilling filters kept something / places",
        "Whether refilling succeeded; the rest of the places trains nothing.",
        "1. Below: the bound on draws was met first.",
    ),
    # -- how much better than expected
    Metric(
        "advantage/abs_mean",
        "mean |Â|",
        "The size of the lesson.",
        "Of order 0.5–1 when advantages are divided by a std; without, of the order of `reward_std`.",
    ),
    Metric(
        "advantage/std",
        "std of Â over the trained tokens (with n)",
        "The spread of the lesson.",
        "1 where advantages are whitened. A critic that learns lets it fall: less of what comes is a surprise.",
    ),
    Metric(
        "advantage/nonzero",
        "share of trained tokens with Â ≠ 0",
        "How many tokens teach at all.",
        "Above 0.3. At 0 for long the run is idle: the callback `stop_when_nothing_teaches` ends it.",
    ),
    Metric(
        "speed/skipped",
        "share of rows that the update did not read, since they have no advantage; with "
        "`speed: {skip_zero_advantage: true}`",
        "How much work was saved. The means of the loss's own metrics and of the entropy are over the other rows.",
        "As `advantage/nonzero` says, turned round.",
    ),
    # -- what the critic expected
    Metric(
        "critic/explained_variance",
        "1 − var(R − V) / var(R) over trained tokens, V before the update; not logged where R does not vary",
        "How much of what came the critic foresaw.",
        "0 at first, then rising, to 0.3 and far more. Below 0: it misleads; more `warmup_steps`, or a smaller step.",
    ),
    Metric(
        "critic/<value|return>",
        "mean of V before the update, and of R, what it should have been",
        "What the critic expected, and what came.",
        "The value follows the return after some steps. A lasting gap: a larger `critic.learning_rate`.",
    ),
    Metric(
        "critic/grad_norm",
        "‖gradient‖₂ over all that the critic trains, before clipping to `critic.max_grad_norm`",
        "How hard the critic's own step pulled.",
        "Large at first, then small. Always above the clip: rewards are large; scale them, or clip higher.",
    ),
    Metric("critic/learning_rate", "the critic's at this step", "How far its step goes.", "As the recipe says."),
    # -- what a reward model has learned
    Metric(
        "accuracy",
        "share of the pairs of a batch with r(x, y⁺) > r(x, y⁻)",
        "How many pairs a reward model tells apart that it learns from.",
        "Rises above 0.5, to the share on which readers agree with each other. Far above `held_out/pair_accuracy`: "
        "it memorises; fewer epochs, more pairs.",
    ),
    Metric(
        "margin",
        "mean r(x, y⁺) − r(x, y⁻) over pairs of a batch",
        "How sure a reward model is of the pairs it learns from.",
        "Rises, and levels off where readers disagree. Rising without end: it is too sure; fewer steps.",
    ),
    Metric(
        "<min|mean|max>_reward",
        "least, mean and largest score of a batch of pairs",
        "Where the scores of a reward model lie.",
        "Near 0, a few units wide. The zero means nothing: `center_rewards_coefficient` keeps it in place.",
    ),
    # -- what the step did
    Metric(
        "loss",
        "the objective that was minimised, summed up by the aggregator",
        "For reinforcement learning next to nothing: its gradient counts, not its value.",
        "Near 0, either sign: advantages of a group sum to 0. In a supervised stage it falls.",
    ),
    Metric(
        "grad_norm",
        "‖gradient‖₂ over all trained weights, before clipping to `max_grad_norm`",
        "How hard the step pulled.",
        "Steady, with no trend. Spikes: lower the learning rate or `max_grad_norm`. 0: nothing teaches. NaN: broken.",
    ),
    Metric("learning_rate", "the schedule at this step", "How far a step goes.", "As the recipe says."),
    Metric(
        "entropy",
        "mean over the tokens that the update reads of −Σ π log π, in nats; not those of rows left out by "
        "`speed.skip_zero_advantage`",
        "How undecided the policy is at the tokens it wrote.",
        "Falls slowly. Near 0 early: it has stopped exploring, all rows of a group become alike; raise the "
        "temperature, clip higher, or pay for entropy. Rising without bound: the policy dissolves.",
    ),
    Metric(
        "policy_loss/clipped_<low|high>",
        "share of tokens with w below 1−ε and Â < 0 (low), above 1+ε_high and Â > 0 (high)",
        "Tokens that have moved enough and lost their gradient.",
        "0 while every batch is used once (w = 1); up to some percent with several updates. Above 0.2: smaller steps.",
    ),
    Metric(
        "policy_loss/capped",
        "share of tokens with w > 1+ε_high and Â > 0",
        "Tokens whose weight is capped; their gradient lives on.",
        "As for clipped tokens: 0 on policy, some percent otherwise.",
    ),
    Metric(
        "token_weights/drawn",
        "share of tokens that the covariance clip keeps from learning",
        "Drawn from those whose probability and advantage rise or fall together.",
        "At most `share` of the part. Always 0: the band holds no token, for lack of rows that differ.",
    ),
    Metric(
        "schedule/<key>.<part>.<knob>",
        "value of the knob, a pure function of the optimiser steps done",
        "Where a schedule of the recipe stands.",
        "As the recipe says.",
    ),
    Metric(
        "penalties/value_clipped",
        "share of tokens whose value has moved further than ε in the direction of R",
        "Tokens that no longer teach the critic in this batch.",
        "0 while every batch is used once; some percent otherwise. Above 0.5: ε is small for rewards of this size.",
    ),
    Metric(
        "penalties/kl_factor",
        "f of `adaptive_kl`; its coefficient is β f",
        "How hard the penalty must pull to hold the KL at its target.",
        "Settles. Rising without end: the target cannot be held at this learning rate. Near 0: it is never reached.",
    ),
    Metric(
        "penalties/entropy_coefficient",
        "α of `adaptive_entropy`: c where the entropy is at its target or below, else 0",
        "What is paid for staying undecided.",
        "0 at first, small and intermittent later. At the most for long: the bonus cannot hold the entropy.",
    ),
    Metric(
        "penalties/<name>",
        "mean Ω, before its coefficient β",
        "What the penalty measures; of a KL: nats per token between the policy and the other one.",
        "A KL starts at 0 and grows to a few hundredths or tenths. Far beyond 1 the policy has left its reference.",
    ),
    Metric(
        "<importance|policy_loss|token_weights|penalties|aggregator>/<name>",
        "mean over trained tokens of what the part logged as `name`",
        "Said by the part in that slot of the recipe.",
        "See `rlm explain` of the part.",
    ),
    # -- what was written
    Metric(
        "completions/<mean|min|max>_length",
        "tokens per completion; tool output is not counted",
        "How much the model writes.",
        "Grows where thinking pays. Growth without reward: it rambles; falling to the minimum: it stopped thinking.",
    ),
    Metric(
        "completions/<mean|min|max>_terminated_length",
        "tokens per completion among those that ended by themselves; 0 if none did",
        "How long a finished answer is.",
        "Well below `max_completion_length`.",
    ),
    Metric(
        "completions/clipped_ratio",
        "share of completions cut off at `max_completion_length`",
        "Answers that never came to an end.",
        "Below 0.1, else raise the limit or add `overlong`. A mark of rambling when it grows.",
    ),
    Metric(
        "episodes/turns",
        "turns of the model per episode (worlds that answer)",
        "How long the model and the world talk.",
        "What the task needs. At the world's `turns`: it never comes to an end.",
    ),
    Metric(
        "episodes/return",
        "mean over episodes of what the world paid, all turns together",
        "How well the episodes went, whatever the recipe makes of it.",
        "Rises; with weight 1 and nothing else, the same as `reward`.",
    ),
    Metric(
        "episodes/done",
        "share of episodes that the world ended itself; of worlds with tools, that ended without a call",
        "The others met the end of the room for tokens, or of the turns.",
        "Near 1, else raise `max_completion_length`.",
    ),
    Metric(
        "episodes/failed",
        "share of episodes in which the environment raised or hung",
        "A mistake in the world, not of the model.",
        "0. The samples are in `faults.jsonl`.",
    ),
    Metric(
        "tools/<call|failure>_frequency",
        "tool calls per completion; share of calls that failed",
        "Whether the model uses its tools, and how well.",
        "Calls settle at what the task needs; failures fall.",
    ),
    Metric(
        "mean_token_accuracy",
        "share of demonstrated tokens that were the model's first choice",
        "How much of the demonstrations it has learned (supervised stages).",
        "Rises; 1.0 means it can recite them.",
    ),
    Metric(
        "sources/<label>/share",
        "rows of that source / all rows of the generation batch",
        "Who wrote what: `policy`, or a source of the recipe by its label.",
        "As the recipe says; `policy` has more when a source leaves rows open (a pool without that prompt).",
    ),
    Metric(
        "sources/<label>/filled",
        "rows that source wrote / rows the recipe gives it",
        "How often it had something to write; the policy writes what it leaves open.",
        "1. Less: a pool without that prompt, or with fewer completions than rows; a demonstration that is missing.",
    ),
    Metric(
        "sources/<label>/reward",
        "mean of Σ weight · reward over the rows of that source, before shapers",
        "How good each writer is; `reward` is the mean over all of them.",
        "`policy` rises towards the others. Demonstrations far below 1: the rewards cannot read them.",
    ),
    Metric(
        "sources/<label>/truncated",
        "share of the source's rows that do not end with an end token",
        "Rows that were cut at `max_completion_length`.",
        "0 for demonstrations and replayed rows, else raise the limit: the policy would learn to stop in the middle.",
    ),
    # -- two engines, one policy
    Metric(
        "sampling/sampling_logp_difference/<mean|max>",
        "|log π_trainer − log π_vLLM| over sampled tokens",
        "How far the inference engine is from the model that is trained.",
        "Mean below 0.05. More: another precision, stale weights, or a template that differs.",
    ),
    Metric(
        "sampling/importance_sampling_ratio/<min|mean|max>",
        "TRL's correction π_trainer / π_vLLM, after its cap",
        "How much that mismatch is corrected for.",
        "Mean near 1.",
    ),
    # -- how far and how fast
    Metric("stage", "", "The stage of the recipe that logged this line.", "—"),
    Metric("step", "optimiser steps so far", "When.", "—"),
    Metric("epoch", "passes over the training problems so far", "When.", "With few problems, beyond some: memorised."),
    Metric("num_tokens", "prompt and completion tokens so far, all processes", "How much was read.", "—"),
    Metric("num_input_tokens_seen", "as `num_tokens`", "How much was read.", "—"),
    Metric("step_time", "seconds of one optimiser step, writing included", "Speed.", "Grows with completion length."),
    Metric("aux_loss", "load-balancing loss of a mixture of experts", "How evenly experts are used.", "Near constant."),
    Metric("train_loss", "mean of `loss` over the stage", "A summary, once at the end.", "See `loss`."),
    Metric("total_flos", "floating-point operations, by transformers' 6 N per token", "Once, at the end.", "—"),
    Metric("train_runtime", "seconds of the stage", "Once, at the end.", "—"),
    Metric("train_<samples|steps|tokens>_per_second", "what it says", "Speed over the whole stage.", "—"),
)
"""In the order a person reads a log; of two entries that fit a name the first counts."""
