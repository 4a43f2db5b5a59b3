"""GRPO and variants that differ in advantage, filter or aggregation; registered by `algorithms`."""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm

grpo = Algorithm(
    about="PPO's clip with the critic replaced by the mean and std of a group of completions.",
    source="DeepSeekMath, arXiv 2402.03300 eq. 3–4",
    pitfalls="Dividing by the group's std favors prompts that are almost solved or almost hopeless; 1/n favors "
    "short right and long wrong completions (see dr_grpo). TRL's default is not this algorithm but `dapo` with β = 0.",
    advantage="group_relative",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    penalties=({"name": "kl", "beta": 0.04},),
    aggregator="sequence_mean",
    names={
        "advantage": "group relative advantage, outcome supervision",
        "penalties": "D_KL[π_θ ‖ π_ref], an unbiased estimator",
    },
)

dr_grpo = Algorithm(
    about="GRPO without the two divisions that bias it: by the std of the group, and by the length.",
    source="arXiv 2503.20783",
    pitfalls="L is a constant of the recipe; divide by the padded width instead and padding changes the gradient.",
    advantage={"name": "group_relative", "scale": "none"},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="fixed_length",
    names={"advantage": "Â without the division by std", "aggregator": "1/|oᵢ| replaced by a constant"},
)

bnpo = Algorithm(
    about="GRPO with a token mean per micro-batch, under TRL's name.",
    source="trl.GRPOConfig(loss_type='bnpo')",
    pitfalls="Depends on how the batch is split into micro-batches; prefer `dapo`.",
    advantage="group_relative",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="micro_batch_token_mean",
)

dapo = Algorithm(
    about="GRPO without KL, with a higher upper clip, token mean, dynamic sampling and a soft length limit.",
    source="arXiv 2503.14476 eq. 8–13",
    pitfalls="The filter uses the reward `accuracy`, before the length penalty: by the shaped sum, groups that are all "
    "wrong at different lengths would stay. For another reward: `filters: {nonzero_std: {reward: …}}`. At most 10 "
    "generation batches are sampled to fill one; verl's script samples 10 of three times the size and then stops with "
    "an error, the paper sets no limit.",
    shapers=("overlong",),
    filters=({"name": "nonzero_std", "reward": "accuracy", "refill": 10},),
    advantage="group_relative",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2, "epsilon_high": 0.28},
    aggregator="token_mean",
    names={
        "shapers": "Soft Overlong Punishment, R_length; cache is L_cache",
        "filters": "Dynamic Sampling",
        "policy_loss": "Clip-Higher, ε_low and ε_high",
        "aggregator": "Token-Level Policy Gradient Loss",
    },
)

lite_ppo = Algorithm(
    about="A plain clip with two changes: the group's mean but the batch's std, and a mean over tokens.",
    source="LitePPO, arXiv 2508.08221",
    pitfalls="The std of raw rewards (here, TRL's scale 'batch', ROLL's reward_norm) includes the differences between "
    "prompts; ROLL's group_reward_norm takes that of centered rewards: `scale: centered_batch`.",
    advantage={"name": "group_relative", "scale": "batch"},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="token_mean",
    names={"advantage": "group-level mean, batch-level std", "aggregator": "token-level loss"},
)

pass_at_k = Algorithm(
    about="GRPO that maximizes the probability of a right answer among k samples, which favors exploration.",
    source="Pass@k Training, arXiv 2508.10751; k and the other slots: ours (clip and token mean of GRPO/DAPO)",
    pitfalls="Requires rewards of 0 and 1 and groups larger than k: with n ≤ k all advantages are 0. Another estimator "
    "of this name, verl's grpo_passk (2503.19595), gives only the best completion an advantage: `pass_at_k@verl`.",
    advantage={"name": "pass_at_k", "k": 4},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="token_mean",
    names={"advantage": "analytical Â_pos and Â_neg"},
)

gfpo = Algorithm(
    about="GRPO on a filtered group: more samples are generated, and only the k shortest of a group are trained on.",
    source="GFPO, arXiv 2508.09726 eq. 2, §4 (k of 4–8 among up to 24); ε: PPO's",
    pitfalls="Short completions are kept, right or wrong: if no right one is short, none is trained on. `by: "
    "reward_per_token` keeps the efficient ones. Completions that are filtered out are in no denominator and in no "
    "penalty (TRL 0.26); the paper's formula counts them with advantage 0. It has the KL to π_old (`kl_old`); verl, "
    "which trained it, has it to the reference, like this algorithm. It gives one ε for both sides, without a value: "
    "DAPO's 0.28 above is `epsilon_high`.",
    filters=({"name": "keep_k", "k": 4, "by": "length"},),
    advantage="group_relative",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    penalties=({"name": "kl", "beta": 0.001}, {"name": "entropy", "beta": 0.001}),
    aggregator="token_mean",
    names={"filters": "rejection: the top k by a metric, the set S", "penalties": "β D_KL and γ Entropy"},
)

spo = Algorithm(
    about="One completion per prompt, with a running estimate of its mean reward as baseline; prioritized sampling.",
    source="Single-stream Policy Optimization, arXiv 2509.13232",
    pitfalls="Set `trainer: {num_generations: 1}`: it needs no groups. Rewards should be between 0 and 1. The last "
    "completion of every prompt is kept, in memory and in checkpoints, for a forward pass when the prompt returns. The "
    "paper initializes v̂ from 8 completions per prompt; here it starts at 0.5 with the weight of one. Token mean: the "
    "authors' code.",
    sampler="prioritised",
    advantage="tracked_baseline",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2, "epsilon_high": 0.28, "delta": 10.0},
    aggregator="token_mean",
    names={"advantage": "KL-adaptive value tracker, global advantage normalisation", "sampler": "prioritized sampling"},
)
