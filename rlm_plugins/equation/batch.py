"""Data of one training step, and the names by which parts request it.

A part requests data by naming it: ``def rloo(rewards, group)`` receives `Batch.rewards` and `Batch.group`.
This file therefore lists every name. Shapes: B completions, T tokens of the longest completion.
In the scoring phase B counts all completions of the generation batch, over all ranks. In the loss phase it
counts the completions of one micro-batch of one rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

SCORING = "scoring"
"""Once per generation batch, gathered over all ranks, without gradient: shapers → filters → advantage."""
LOSS = "loss"
"""Once per micro-batch: importance → policy loss → token weights → penalties → aggregator."""
_BOTH = (SCORING, LOSS)

Log = Callable[[str, Any], None]
"""``log(name, x)`` adds `x` to the metrics log: (B, T) in the loss phase, one number in the scoring phase."""

LogprobsOf = Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], Any]
"""``logprobs_of(prompt_ids, completion_ids)`` → (n, longest): log-probability of each token of the completions."""
Generate = Callable[..., list[list[int]]]
"""``generate(prompts, prefixes=None, greedy=False)`` → token ids that the policy generates after prompt and prefix."""
RewardsOf = Callable[[Sequence[Any], Sequence[Sequence[int]], Sequence[Any]], Any]
"""``rewards_of(prompts, completion_ids, inputs)`` → (n,): weighted sum of the recipe's rewards, unshaped."""

DivergenceOf = Callable[[float], Any]
"""``divergence_of(beta)`` → (B, T) in nats, with gradient: KL(teacher ‖ policy) at 0, KL(policy ‖ teacher) at 1."""


def _field(shape: str, meaning: str, *phases: str) -> Any:
    return field(default=None, metadata={"shape": shape, "meaning": meaning, "phases": phases})


@dataclass
class Batch:
    """Completions with everything computed for them so far; a field that no part requests stays None."""

    # -- identity of each completion
    group: Tensor = _field("B", "index of the group: the completions of one prompt", SCORING, LOSS)
    mask: Tensor = _field("B T", "True where a token is trained on (no padding, no tool output)", SCORING, LOSS)
    observation_mask: Tensor = _field("B T", "True on tokens of the environment after the first response", *_BOTH)
    truncated: Tensor = _field("B", "True where the completion reached the length limit", SCORING, LOSS)
    keep_mask: Tensor = _field("B", "True where the filters keep the completion")
    counts_for_refill: Tensor = _field("B", "True where the filters with `refill` keep the completion")
    prompt_index: Tensor = _field("B", "index of the prompt in the training set", SCORING)
    sources: dict[str, Tensor] = _field(
        "name → B", "per rollout source, True where it generated the completion", *_BOTH
    )
    max_completion_length: int = _field("", "maximum length of a completion, in tokens", SCORING, LOSS)
    step: int = _field("", "number of optimizer steps done", SCORING, LOSS)

    # -- content (lists: one entry per completion)
    prompts: list[Any] = _field("B", "list: the prompt, as in the data set", SCORING)
    inputs: list[Any] = _field("B", "list: the columns of the data set, name → value", SCORING)
    prompt_ids: list[list[int]] = _field("B", "list: token ids of the prompt, without padding", SCORING)
    completion_ids: list[list[int]] = _field("B", "list: token ids of the completion, without padding", SCORING)

    # -- rewards and advantages
    rewards: Tensor = _field("B", "weighted sum of all rewards, after the shapers", SCORING, LOSS)
    named_rewards: dict[str, Tensor] = _field("name → B", "each reward by name, unweighted and unshaped", SCORING)
    token_rewards: Tensor = _field("B T", "`rewards` per token: dense rewards, the rest on the last token", SCORING)
    turn_rewards: Tensor = _field("B T", "reward of each turn, on its last token (multi-turn environments)", SCORING)
    dense_rewards: Tensor = _field("B T", "per-token rewards added by shapers; part of `token_rewards`", SCORING)
    advantages: Tensor = _field("B T or B 1", "advantage Â of each token or completion", LOSS)
    returns: Tensor = _field("B T", "regression targets of the critic", LOSS)

    # -- log-probabilities of the sampled tokens, in nats
    logp: Tensor = _field("B T", "log-probs under the current policy, with gradient", LOSS)
    old_logp: Tensor = _field(
        "B T",
        "log-probs under the policy that the ratio divides by: that of the start of this update, or a stale one",
        SCORING,
        LOSS,
    )
    expected_logp: Tensor = _field("B", "log Σq²/Σq over the group, q = exp(mean `old_logp`)", LOSS)
    ref_logp: Tensor = _field("B T", "log-probs under the frozen reference policy", SCORING, LOSS)
    rollout_logp: Tensor = _field(
        "B T", "log-probs under the behavior policy: vLLM's, a rollout source's, or a stale policy's", SCORING, LOSS
    )
    rollout_weight: Tensor = _field("B T or B 1", "TRL's importance weight for vLLM's log-probs", LOSS)
    teacher_logp: Tensor = _field("B T", "log-probs under a teacher (a section `teacher`)", SCORING, LOSS)
    has_teacher: Tensor = _field("B", "True where `teacher_logp` exists; it is 0 elsewhere", SCORING, LOSS)
    teacher_top_ids: Tensor = _field("B T K", "token ids at which teacher and policy are compared", SCORING, LOSS)
    teacher_top_logp: Tensor = _field("B T K", "log-probs of `teacher_top_ids` under the teacher", SCORING, LOSS)
    top_logp: Tensor = _field("B T K", "log-probs of `teacher_top_ids` under the current policy, with gradient", LOSS)
    divergence_of: DivergenceOf = _field(
        "→ B T", "divergence_of(beta): Jensen–Shannon divergence of teacher and policy over the vocabulary", LOSS
    )
    policy_version: Tensor = _field(
        "B",
        "optimizer steps done by the policy that sampled the completion; `step` less this is its age",
        SCORING,
        LOSS,
    )
    policy_drift: Tensor = _field(
        "B", "mean |change of log π| over the tokens of the prompt's previous completion, in nats", SCORING
    )
    entropy: Tensor = _field(
        "B T", "entropy of the current policy, in nats; with gradient in the loss phase", SCORING, LOSS
    )
    self_certainty: Tensor = _field("B T", "KL(uniform ‖ policy) before the update, in nats", SCORING)
    top2_margin: Tensor = _field("B T", "gap between the two largest token probabilities, before the update", SCORING)
    sum_pi_squared: Tensor = _field("B T", "Σπ² over the vocabulary, before the update", SCORING)
    values: Tensor = _field("B T", "the critic's current value estimate before each token", SCORING, LOSS)
    old_values: Tensor = _field("B T", "the critic's value estimate at the start of this update", LOSS)
    log_ratio: Tensor = _field("B T or B 1", "log w, the log of the importance ratio", LOSS)
    ratio: Tensor = _field("B T or B 1", "importance ratio w = exp(log_ratio)", LOSS)

    # -- normalization: GLOBAL counts of one optimizer step, over micro-batches and ranks
    loss: Tensor = _field("B T", "per-token loss to be aggregated (aggregators only)", LOSS)
    num_tokens: Tensor = _field("", "trained tokens per optimizer step, a mean over the generation batch", LOSS)
    num_sequences: Tensor = _field("", "completions with at least one trained token in this optimizer step", LOSS)
    num_sequences_all: Tensor = _field("", "completions in this optimizer step, those without trained tokens too", LOSS)
    num_micro_batches: Tensor = _field("", "micro-batches in this optimizer step", LOSS)
    term_counts: dict[str, Any] = _field("", "the same counts over the completions of one term of the loss")

    # -- statistics over the optimizer step (covariances, quantiles)
    step_batch: Batch = _field("Batch", "all completions of the optimizer step, over all ranks, without gradient", LOSS)
    step_batch_rows: Tensor = _field("B", "indices of the micro-batch's completions in `step_batch`", LOSS)

    # -- functions for extra completions that are not trained on; every rank must make the same calls
    logprobs_of: LogprobsOf = _field(
        "→ n T", "logprobs_of(prompt_ids, completion_ids): log-probs under the current policy", SCORING
    )
    generate: Generate = _field("→ n", "generate(prompts, prefixes): token ids that continue the prefixes", SCORING)
    rewards_of: RewardsOf = _field(
        "→ n", "rewards_of(prompts, completion_ids, inputs): weighted sum of the rewards, unshaped", SCORING
    )
    tokenizer: Any = _field("", "the policy's tokenizer", SCORING)

    # -- metrics
    log: Log = _field(
        "name, x →", "log(name, x): logs the mean of x (B T) over trained tokens; in scoring, a number", *_BOTH
    )


SHAPES: dict[str, str] = {f.name: f.metadata["shape"] for f in fields(Batch)}
"""Field name → shape."""

MEANINGS: dict[str, str] = {f.name: f.metadata["meaning"] for f in fields(Batch)}
"""Field name → one line of meaning and unit."""

SAMPLE: dict[str, str] = {
    "prompts": "list[str]: the prompt of each completion, as text",
    "completions": "list[str]: the completions, as text (of a chat: the assistant's messages)",
    "prompt_messages": "list: the prompts in TRL's format (text, or a list of messages)",
    "completion_messages": "list: the completions in TRL's format",
    "completion_ids": "list[list[int]]: token ids of the completions, without padding",
    "trainer_state": "transformers' TrainerState: the step, the epoch",
    "episodes": "list[rlm_plugins.specs.Episode]: the episode of each completion (multi-turn environments)",
    "environments": "list: the environment object of each completion (multi-turn environments)",
    "log_extra": "function(column, values): adds a column to the completions table",
    "log_metric": "function(name, value): adds a number to the metrics",
}
"""Names that a reward may request beside the columns of its data set."""
PER_COMPLETION: dict[str, str] = {
    "completion": "str: one completion, as text; the reward is then called once per completion and returns one number",
    "prompt": "str: the prompt of that completion",
}
"""Names of a per-completion reward in place of `completions` and `prompts`; columns then hold single values."""


def names(phase: str) -> list[str]:
    """Return the names that parts of `phase` may request.

    >>> "ref_logp" in names(SCORING), "loss" in names(SCORING)
    (True, False)
    """
    return [f.name for f in fields(Batch) if phase in f.metadata["phases"]]
