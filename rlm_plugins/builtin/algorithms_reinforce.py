"""REINFORCE and its variants: critic-free algorithms that differ in the baseline; registered by `algorithms`."""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm

reinforce = Algorithm(
    about="The policy gradient with the group's mean as baseline: no ratio, no clip, no division by a std.",
    source="Williams 1992; grouped as in arXiv 2402.14740 §4",
    pitfalls="On policy only: with several updates per generation batch nothing bounds the policy change.",
    advantage={"name": "group_relative", "scale": "none"},
    policy_loss="reinforce",
    aggregator="sequence_sum",
)

remax = Algorithm(
    about="REINFORCE with the reward of the policy's greedy completion of the same prompt as baseline: no critic.",
    source="ReMax, arXiv 2310.10505",
    pitfalls="`num_generations` counts the greedy completion: 2 is one sample and its baseline. The greedy completion "
    "is not trained on, but `reward` and the lengths in the log include it. With a KL in the reward verl sums it over "
    "future tokens, like this algorithm; the authors' code uses each token's own, and discounts the last reward once "
    "per token.",
    names={"rollouts": "greedy response", "advantage": "r(x, a) − r(x, ā), the greedy response as baseline"},
    rollouts=({"name": "greedy", "num_completions": 1},),
    advantage="greedy_baseline",
    policy_loss="reinforce",
    aggregator="sequence_sum",
)

rloo = Algorithm(
    about="REINFORCE on complete completions; the baseline of each is the mean reward of the others in its group.",
    source="arXiv 2402.14740 eq. 5",
    pitfalls="The completion is one action: its log-probability is a sum over tokens. TRL's RLOOTrainer clips a "
    "sequence ratio instead; verl and OpenRLHF use a token ratio and a token mean.",
    shapers=({"name": "kl_in_reward", "beta": 0.03},),
    advantage="leave_one_out",
    policy_loss="reinforce",
    aggregator="sequence_sum",
    names={"advantage": "REINFORCE Leave-One-Out"},
)

reinforce_pp = Algorithm(
    about="PPO's clip on returns with a KL penalty, whitened over the batch: no critic, and no group needed.",
    source="REINFORCE++, arXiv 2501.03262; β: OpenRLHF's default",
    pitfalls="With one baseline for all prompts, easy prompts get positive advantages: see reinforce_pp_baseline. "
    "OpenRLHF and NeMo-RL whiten with n in the variance (`unbiased: false`), verl and this algorithm with n − 1. At "
    "tool output verl skips the masked tokens, SkyRL ends the sum, OpenRLHF discounts through them.",
    shapers=({"name": "kl_in_reward", "beta": 0.01},),
    advantage="batch_whitened",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="token_mean",
    names={"advantage": "global advantage normalization", "shapers": "token-level KL penalty"},
)

reinforce_pp_baseline = Algorithm(
    about="REINFORCE++ that subtracts the group's mean before it whitens over the batch; the KL is a penalty.",
    source="arXiv 2501.03262; β: OpenRLHF's default",
    pitfalls="The batch mean counts tokens, so with completions of different lengths it is not 0, and shifts groups "
    "without spread too. Add the filter `nonzero_std` to leave such groups out.",
    advantage={"name": "batch_whitened", "center_by_group": True},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    penalties=({"name": "kl", "estimator": "k2", "beta": 0.01},),
    aggregator="token_mean",
)

opo = Algorithm(
    about="REINFORCE with the baseline of minimum variance: the group's mean reward, weighted by length.",
    source="arXiv 2505.23585",
    pitfalls="Exactly on policy: one update per generation batch, no ratio, no KL. The weights fit a log-probability "
    "summed over tokens; verl uses a token mean, which is the same but for one factor per batch.",
    advantage="optimal_baseline",
    policy_loss="reinforce",
    aggregator="sequence_sum",
    names={"advantage": "optimal reward baseline b*, approximated by lengths"},
)

gpg = Algorithm(
    about="The policy gradient with the group's mean as baseline, rescaled for groups without gradient.",
    source="GPG, arXiv 2504.02546",
    pitfalls="The scale is large if few groups have a gradient. verl scales by the completions whose reward is not 0 "
    "instead of those with a gradient: `counted: nonzero_rewards`.",
    advantage="gpg",
    policy_loss="reinforce",
    aggregator="token_mean",
)
