"""Rows of the table that differ in Â, or in which rows are compared; the rest of them is GRPO's or REINFORCE's."""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm

reinforce_pp = Algorithm(
    about="PPO's clip on rewards to come, less the KL, whitened over the whole batch: no critic, and no group needed.",
    source="REINFORCE++, arXiv 2501.03262; β: OpenRLHF's default",
    pitfalls="With one baseline for all prompts an easy prompt is praised for being easy: see reinforce_pp_baseline. "
    "OpenRLHF and NeMo-RL whiten with n in the variance (`unbiased: false`), verl and this row with n − 1; after tool "
    "output verl steps over the masked tokens, SkyRL forgets what comes after them, OpenRLHF discounts through them.",
    shapers=({"name": "kl_in_reward", "beta": 0.01},),
    advantage="batch_whitened",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="token_mean",
    names={"advantage": "global advantage normalization", "shapers": "token-level KL penalty"},
)

reinforce_pp_baseline = Algorithm(
    about="REINFORCE++ that takes the group's mean off before it whitens over the batch; the KL is a penalty.",
    source="arXiv 2501.03262; β: OpenRLHF's default",
    pitfalls="The batch mean counts tokens, so with rows of different lengths it is not 0: a group without spread is "
    "moved by it too. Add the filter `nonzero_std` to leave such groups out.",
    advantage={"name": "batch_whitened", "centre_by_group": True},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    penalties=({"name": "kl", "estimator": "k2", "beta": 0.01},),
    aggregator="token_mean",
)

lite_ppo = Algorithm(
    about="Two tricks on a plain clip: the group's mean but the batch's std, and a mean over tokens.",
    source="LitePPO, arXiv 2508.08221",
    pitfalls="The std of raw rewards (this row, TRL's scale 'batch', ROLL's reward_norm) also measures how prompts "
    "differ; ROLL's group_reward_norm takes that of centred rewards: `scale: centred_batch`.",
    advantage={"name": "group_relative", "scale": "batch"},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="token_mean",
    names={"advantage": "group-level mean, batch-level std", "aggregator": "token-level loss"},
)

opo = Algorithm(
    about="REINFORCE with the baseline of least variance: the group's mean reward, each row weighted by its length.",
    source="arXiv 2505.23585",
    pitfalls="Exactly on policy: one update per generation, no ratio, no KL. The weights suit a log-probability summed "
    "over tokens; verl takes a token mean, which is the same but for one factor per batch.",
    advantage="optimal_baseline",
    policy_loss="reinforce",
    aggregator="sequence_sum",
    names={"advantage": "optimal reward baseline b*, approximated by lengths"},
)

gpg = Algorithm(
    about="The bare policy gradient with the group's mean as baseline, scaled up for groups that teach nothing.",
    source="GPG, arXiv 2504.02546",
    pitfalls="The scale is large when few groups teach. verl scales by the rows whose reward is not 0 instead of those "
    "with a gradient: `counted: nonzero_rewards`.",
    advantage="gpg",
    policy_loss="reinforce",
    aggregator="token_mean",
)

pass_at_k = Algorithm(
    about="GRPO paid for one right answer in k tries: it explores, since only the first right row is worth much.",
    source="Pass@k Training, arXiv 2508.10751; k and the other slots: ours (clip and token mean of GRPO/DAPO)",
    pitfalls="Needs rewards of 0 and 1 and groups larger than k: with n ≤ k nothing is learned. Another estimator of "
    "this name, verl's grpo_passk (2503.19595), pays only the best row of a group: `pass_at_k@verl`.",
    advantage={"name": "pass_at_k", "k": 4},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="token_mean",
    names={"advantage": "analytical Â_pos and Â_neg"},
)

gfpo = Algorithm(
    about="GRPO that writes more and learns from less: of each group only the k shortest rows are compared.",
    source="GFPO, arXiv 2508.09726 eq. 2, §4 (k of 4–8 among up to 24); ε: PPO's",
    pitfalls="Right or wrong, short rows are kept: when no right one is short, none is seen. `by: reward_per_token` "
    "keeps the efficient ones. Rows that were left out are in no denominator and in no penalty (TRL 0.26); the paper's "
    "formula counts them with advantage 0. It writes the KL to π_old (`kl_old`); verl, which trained it, has it to the "
    "reference, like this row. It gives no ε, and one for both sides: DAPO's 0.28 above is `epsilon_high`.",
    filters=({"name": "keep_k", "k": 4, "by": "length"},),
    advantage="group_relative",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    penalties=({"name": "kl", "beta": 0.001}, {"name": "entropy", "beta": 0.001}),
    aggregator="token_mean",
    names={"filters": "rejection: the top k by a metric, the set S", "penalties": "β D_KL and γ Entropy"},
)

spo = Algorithm(
    about="One answer per problem, seen from what the problem has brought before; undecided problems come more often.",
    source="Single-stream Policy Optimization, arXiv 2509.13232",
    pitfalls="Say `trainer: {num_generations: 1}`: it needs no groups. Rewards belong between 0 and 1. The last answer "
    "to every problem is kept, in memory and in checkpoints, and read again when the problem returns. The paper starts "
    "v̂ from 8 answers per problem, here it starts at 0.5 with the weight of one. Token mean: the authors' code.",
    sampler="prioritised",
    advantage="tracked_baseline",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2, "epsilon_high": 0.28, "delta": 10.0},
    aggregator="token_mean",
    names={"advantage": "KL-adaptive value tracker, global advantage normalisation", "sampler": "prioritized sampling"},
)
