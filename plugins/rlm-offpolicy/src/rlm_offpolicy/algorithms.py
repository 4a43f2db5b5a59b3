"""FlowRL, Prefix-RFT and ReLIFT, as data."""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm

flowrl = Algorithm(
    about="Squared trajectory balance: sampling in proportion to exp(β r̂), not only the largest reward.",
    source="FlowRL, arXiv 2509.15207 eq. 6; settings of its repository",
    pitfalls="log Z is estimated from the group; the paper trains a network for it. The reference is the initial "
    "model: with β 15 it hardly counts, with a small β it dominates. The loss is a square, so its scale grows with β². "
    "In groups of equal rewards only the term of the reference remains. The sequence ratio is a product over tokens: "
    "with several updates per generation batch it leaves the clip range soon, but the clip bounds a weight and keeps "
    "the gradient.",
    names={"policy_loss": "trajectory balance, log Z_φ(x)", "advantage": "r̂, group-normalized reward"},
    advantage="group_relative",
    importance="sequence_sum",
    policy_loss={"name": "trajectory_balance", "beta": 15.0, "epsilon": 0.2},
    aggregator="sequence_mean",
)

prefix_rft = Algorithm(
    about="Dr. GRPO on groups with one completion that continues a prefix of a demonstration.",
    source="Prefix-RFT, arXiv 2507.01679; code of ZeroYuHuang/prefix_rft",
    pitfalls="`num_generations` counts the hybrid completion: 8 is 7 samples and 1. The prefix is treated as on "
    "policy: its old log-probs are the policy's. The paper's schedule of its shortest length is `rollouts: "
    "{prefixes: {low: {from: 0.95, to: 0.05, over: …, shape: cosine}}}`; without it the share of the demonstration is "
    "uniform from the start. Its code ranks the prefix tokens of a micro-batch by entropy, here of one completion. It "
    "has no configuration of its runs: 0.95, 0.05 and the share of trained tokens 0.2 are from a write-up by others "
    "(kiadev.net). 1/Z counts trained tokens only.",
    family="off-policy and supervised",
    names={"rollouts": "hybrid sequence; low and high bound the prefix, trained is the entropy-based clip"},
    rollouts=({"name": "prefixes", "num_completions": 1},),
    advantage={"name": "group_relative", "scale": "none"},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="fixed_length",
)

relift = Algorithm(
    about="Dr. GRPO where a sample is right, and supervised fine-tuning on the demonstration where none is.",
    source="ReLIFT, arXiv 2506.07527; script of TheRoadQaQ/ReLIFT, examples/math-7b/train.sh",
    pitfalls="`num_generations` counts the demonstration: 9 is 8 samples and 1. The paper collects the questions "
    "without a right sample in a buffer, and takes a supervised step when it has 128; here both terms are in one step, "
    "each normalized by itself, so the ratio of their steps is not a setting. Unlike `hpt` the demonstrations have a "
    "mean over their tokens, and there is no clip. The code sums over the batch and divides by the padded width only.",
    family="off-policy and supervised",
    names={"filters": "the hardest questions", "penalties": "online fine-tuning"},
    rollouts=({"name": "demonstrations", "num_completions": 1},),
    filters=({"name": "gate", "at_most": 0},),
    advantage={"name": "group_relative", "scale": "none"},
    importance="token",
    policy_loss={"name": "unclipped", "source": "policy", "aggregator": "fixed_length"},
    penalties=(
        {"name": "nll", "beta": 1.0, "source": "demonstrations", "aggregator": "token_mean"},
        {"name": "entropy", "beta": 0.001, "aggregator": "token_mean"},
    ),
    aggregator="fixed_length",
)
