"""The record that walks through the rooms of one training step, and the words parts may ask it for.

A part asks for data by naming it: ``def rloo(rewards, group)`` is handed `Batch.rewards` and `Batch.group`.
This file is therefore the whole vocabulary. Shapes: B rows (completions), T tokens of the longest completion.
In the scoring room B counts every row of the generation batch, over all processes; in the learning room it
counts the rows of one micro-batch of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

SCORING = "scoring"
"""Once per generation: shapers → filters → advantage. Sees every row of every process; no gradient."""
LOSS = "loss"
"""Once per micro-batch: importance → policy loss → token weights → penalties → aggregator."""
_BOTH = (SCORING, LOSS)

Log = Callable[[str, Any], None]
"""How a part writes into the ledger: ``log(name, x)``, x being (B, T) while learning, one number while scoring."""

LogprobsOf = Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], Any]
"""``read(prompt_ids, completion_ids)`` → (n, longest): log-probability of each token of the completions."""
Generate = Callable[..., list[list[int]]]
"""``write(prompts, prefixes=None, greedy=False)`` → what the policy writes after each prompt and prefix, token ids."""
RewardsOf = Callable[[Sequence[Any], Sequence[Sequence[int]], Sequence[Any]], Any]
"""``score(prompts, completion_ids, inputs)`` → (n,): what the recipe's rewards say of completions, weighted."""


def _datum(shape: str, meaning: str, *phases: str) -> Any:
    return field(default=None, metadata={"shape": shape, "meaning": meaning, "phases": phases})


@dataclass
class Batch:
    """Rows of completions with everything known about them so far; a field nobody asked for stays None."""

    # -- who the rows are
    group: Tensor = _datum("B", "number of the prompt a row answers; rows of one group share it", SCORING, LOSS)
    mask: Tensor = _datum("B T", "True where a token is trained on (no padding, no tool output)", SCORING, LOSS)
    truncated: Tensor = _datum("B", "True where the completion hit the length limit", SCORING, LOSS)
    keep_mask: Tensor = _datum("B", "True where the filters keep the row")
    counts_for_refill: Tensor = _datum("B", "True where the filters that refill keep the row")
    prompt_index: Tensor = _datum("B", "row number of the prompt in the training set", SCORING)
    sources: dict[str, Tensor] = _datum("name → B", "True where that source wrote the row (`policy` is one)", *_BOTH)
    max_completion_length: int = _datum("", "longest completion allowed, in tokens", SCORING, LOSS)
    step: int = _datum("", "optimiser steps done", SCORING, LOSS)

    # -- what they are (lists: one entry per row)
    prompts: list[Any] = _datum("B", "list: the prompt of the row, as the data set has it", SCORING)
    inputs: list[Any] = _datum("B", "list: the columns of the data set, name → value", SCORING)
    prompt_ids: list[list[int]] = _datum("B", "list: the prompt as token ids, no padding", SCORING)
    completion_ids: list[list[int]] = _datum("B", "list: the completion as token ids, no padding", SCORING)

    # -- how good they were
    rewards: Tensor = _datum("B", "reward of the row: weighted sum of all rewards, then shaped", SCORING, LOSS)
    named_rewards: dict[str, Tensor] = _datum("name → B", "each reward alone, unweighted and unshaped", SCORING)
    token_rewards: Tensor = _datum("B T", "`rewards` spread over tokens: dense ones, the rest on the last", SCORING)
    turn_rewards: Tensor = _datum(
        "B T", "what the world paid for each turn, on its last token (worlds that answer)", SCORING
    )
    dense_rewards: Tensor = _datum("B T", "what shapers added token by token; a part of `token_rewards`", SCORING)
    advantages: Tensor = _datum("B T or B 1", "how much better than expected", LOSS)
    returns: Tensor = _datum("B T", "what the critic should have predicted", LOSS)

    # -- how likely they are (log-probability of each sampled token, in nats)
    logp: Tensor = _datum("B T", "under the policy now; carries the gradient", LOSS)
    old_logp: Tensor = _datum("B T", "under the policy at the start of this update", SCORING, LOSS)
    expected_logp: Tensor = _datum("B", "log Σq²/Σq over the group, q each row's old probability per token", LOSS)
    ref_logp: Tensor = _datum("B T", "under the frozen reference policy", SCORING, LOSS)
    rollout_logp: Tensor = _datum("B T", "as reported by the engine that sampled them (vLLM)", SCORING, LOSS)
    rollout_weight: Tensor = _datum("B T or B 1", "TRL's correction for vLLM's log-probabilities", LOSS)
    policy_drift: Tensor = _datum(
        "B", "mean |Δ log π| of the last answer to this problem, since it was written", SCORING
    )
    entropy: Tensor = _datum(
        "B T", "entropy of the policy now, in nats; carries a gradient while learning", SCORING, LOSS
    )
    self_certainty: Tensor = _datum("B T", "KL(uniform ‖ policy) before the update, in nats", SCORING)
    top2_margin: Tensor = _datum(
        "B T", "probability of the likeliest token less that of the next, before the update", SCORING
    )
    values: Tensor = _datum("B T", "the critic's prediction before each token, now", SCORING, LOSS)
    old_values: Tensor = _datum("B T", "the critic's prediction at the start of this update", LOSS)
    log_ratio: Tensor = _datum("B T or B 1", "log w: how far the policy has moved", LOSS)
    ratio: Tensor = _datum("B T or B 1", "w = exp(log_ratio)", LOSS)

    # -- how much they count: GLOBAL counts of one optimiser step, over micro-batches and processes
    loss: Tensor = _datum("B T", "per-token objective to be summed up (aggregators only)", LOSS)
    num_tokens: Tensor = _datum("", "trained tokens in this optimiser step", LOSS)
    num_sequences: Tensor = _datum("", "rows with at least one trained token in this optimiser step", LOSS)
    num_sequences_all: Tensor = _datum("", "rows in this optimiser step, those without a trained token too", LOSS)
    num_micro_batches: Tensor = _datum("", "micro-batches in this optimiser step", LOSS)

    # -- what only the whole optimiser step can tell (covariances, quantiles)
    step_batch: Batch = _datum("Batch", "all rows of the optimiser step, of all processes, without gradient", LOSS)
    step_batch_rows: Tensor = _datum("B", "where the rows of this micro-batch stand in `window`", LOSS)

    # -- what a part may try, on rows that nobody is taught; every process asks for the same
    logprobs_of: LogprobsOf = _datum("→ n T", "read(prompt_ids, completion_ids): log-probabilities, now", SCORING)
    generate: Generate = _datum("→ n", "write(prompts, prefixes): the policy writes on from token ids", SCORING)
    rewards_of: RewardsOf = _datum(
        "→ n", "score(prompts, completion_ids, inputs): Σ weight · reward, unshaped", SCORING
    )
    tokenizer: Any = _datum("", "the policy's tokenizer", SCORING)

    # -- what a part wants written into the ledger
    log: Log = _datum("name, x →", "log(name, x): mean of x (B T) over trained tokens; while scoring, a number", *_BOTH)


SHAPES: dict[str, str] = {f.name: f.metadata["shape"] for f in fields(Batch)}
"""Field name → shape."""

MEANINGS: dict[str, str] = {f.name: f.metadata["meaning"] for f in fields(Batch)}
"""Field name → one line of meaning and unit."""

SAMPLE: dict[str, str] = {
    "prompts": "list[str]: the question each row answers, as text",
    "completions": "list[str]: what the model wrote, as text (of a chat: the assistant's words)",
    "prompt_messages": "list: the prompts as TRL holds them (text, or a list of messages)",
    "completion_messages": "list: the completions as TRL holds them",
    "completion_ids": "list[list[int]]: the completions as token ids, no padding",
    "trainer_state": "transformers' TrainerState: the step, the epoch",
    "episodes": "list[rlm_plugins.environment.Episode]: what happened on each row (worlds that answer)",
    "environments": "list: the environment object of each row (worlds that answer)",
    "log_extra": "function(column, values): adds a column to the completions table",
    "log_metric": "function(name, value): adds a number to the metrics",
}
"""What a reward may name beside the columns of its data set."""
PER_COMPLETION: dict[str, str] = {
    "completion": "str: what the model wrote on one row; who names it is asked row by row, and says one number",
    "prompt": "str: the question that row answers",
}
"""What a reward of one completion names in place of `completions` and `prompts`; columns are values of its row then."""


def names(phase: str) -> list[str]:
    """Names that a part living in `phase` may ask for.

    >>> "ref_logp" in names(SCORING), "loss" in names(SCORING)
    (True, False)
    """
    return [f.name for f in fields(Batch) if phase in f.metadata["phases"]]
