"""Algorithms with a critic (configured by ``critic:``): PPO and its variants; registered by `algorithms`."""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm

CRITIC = "with a critic"
value_loss = {"name": "value_loss", "beta": 1.0, "epsilon": 0.2}

ppo = Algorithm(
    about="Clipped surrogate on per-token advantages from a critic (GAE), with the KL to the reference in the reward.",
    source="arXiv 1707.06347 eq. 7 and 9, 1506.02438 eq. 16; in RLHF: 1909.08593. λ 0.95, γ 1, β 0.05: RLHF practice",
    pitfalls="An untrained critic misleads the policy: train it first, `critic: {warmup_steps: …}`. With λ < 1 the "
    "reward of a long completion hardly reaches its beginning (vc_ppo, vapo). One completion per prompt is enough: "
    "`trainer: {num_generations: 1}`. Several updates per generation batch are `num_iterations` and "
    "`steps_per_generation`, and `target_kl` stops them early. The paper's entropy bonus is not included. ε of the "
    "value loss is in units of reward. verl, TRL and this algorithm whiten with n − 1, OpenRLHF with n: `advantage: "
    "{unbiased: false}`. Masked tokens inside a completion are skipped; in OpenRLHF and ORZ they discount: "
    "`masked_tokens: discount`.",
    family=CRITIC,
    shapers=({"name": "kl_in_reward", "beta": 0.05},),
    advantage={"name": "gae", "gamma": 1.0, "lam": 0.95},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    penalties=(value_loss,),
    aggregator="token_mean",
    names={
        "advantage": "Â, generalized advantage estimation",
        "importance": "r_t(θ), the probability ratio",
        "policy_loss": "L^CLIP",
        "penalties": "L^VF",
    },
)

orz = Algorithm(
    about="PPO without KL and entropy terms, γ = λ = 1: the advantage is the Monte-Carlo return minus V, whitened.",
    source="Open-Reasoner-Zero, arXiv 2503.24290",
    pitfalls="Its critic has a larger learning rate than its policy, 5e-6 against 1e-6, and twelve steps per policy "
    "step; here both take the same steps. Its code takes the mean of the advantages over padding too, and their std "
    "over the mask; here both are over the mask.",
    family=CRITIC,
    advantage={"name": "gae", "gamma": 1.0, "lam": 1.0, "unbiased": False, "masked_tokens": "discount"},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    penalties=(value_loss,),
    aggregator="token_mean",
)

vc_ppo = Algorithm(
    about="PPO whose critic is trained on Monte-Carlo returns (λ = 1), while the policy keeps its λ of 0.95.",
    source="VC-PPO, arXiv 2503.01491",
    pitfalls="Half of it is not part of the algorithm: pretrain the critic, `critic: {warmup_steps: …}`. Its ε of the "
    "value loss is verl's default.",
    family=CRITIC,
    advantage={"name": "gae", "gamma": 1.0, "lam": 0.95, "lam_critic": 1.0},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    penalties=({**value_loss, "epsilon": 0.5},),
    aggregator="token_mean",
    names={"advantage": "Decoupled-GAE"},
)

vapo = Algorithm(
    about="VC-PPO with a λ that grows with the length, DAPO's clip, and an imitation term on right completions.",
    source="VAPO, arXiv 2504.05118",
    pitfalls="Pretrain the critic: `critic: {warmup_steps: …}`. Its α is meant for completions of thousands of tokens: "
    "λ is 0.99 at 2,000, 0.39 at 33, 0 up to 1/α = 20. For short completions use a larger `by_length`. The imitation "
    "term counts rewards of 1 or more, and its mean is over all tokens, the paper's over those of right completions "
    "only. Its ε of the value loss is verl's default; no code of the authors is public.",
    family=CRITIC,
    advantage={"name": "gae", "gamma": 1.0, "lam_critic": 1.0, "by_length": 0.05},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2, "epsilon_high": 0.28},
    penalties=({**value_loss, "epsilon": 0.5}, {"name": "nll", "beta": 0.1, "threshold": 1.0}),
    aggregator="token_mean",
    names={
        "advantage": "Decoupled-GAE, Length-adaptive GAE with α",
        "policy_loss": "Clip-Higher",
        "penalties": "value loss, Positive Example LM Loss with μ",
        "aggregator": "Token-level Policy Gradient Loss",
    },
)
