"""Rows whose baseline is a critic. (Offered by `algorithms`.) What the critic is like stands in ``critic:``."""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm

CRITIC = "with a critic"
value_loss = {"name": "value_loss", "beta": 1.0, "epsilon": 0.2}

ppo = Algorithm(
    about="The clip on advantages that a critic gives to every token; the KL to the reference is part of the reward.",
    source="arXiv 1707.06347 eq. 7 and 9, 1506.02438 eq. 16; in RLHF: 1909.08593. λ 0.95, γ 1, β 0.05: RLHF practice",
    pitfalls="A young critic misleads the policy: give it steps of its own, `critic: {warmup_steps: …}`. With λ < 1 "
    "the reward of a long row hardly reaches its beginning (vc_ppo, vapo). One answer per problem is enough: "
    "`trainer: {num_generations: 1}`. Several updates per generation are `num_iterations` and `steps_per_generation`, "
    "and `target_kl` ends them early. The paper's entropy bonus is not in this row. ε of the value is in units of "
    "reward. verl, TRL and this row whiten with n − 1, OpenRLHF with n: `advantage: {unbiased: false}`; masked tokens "
    "inside a row are stepped over, in OpenRLHF and ORZ they discount: `masked_tokens: through`.",
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
    about="PPO with nothing added: γ = λ = 1, no KL, no entropy. Advantage: what came, less what the critic expected.",
    source="Open-Reasoner-Zero, arXiv 2503.24290",
    pitfalls="Its critic learns faster than its policy: 5e-6 against 1e-6, and twelve critic steps per policy step; "
    "here both step together. Its code takes the mean of the advantages over padding too, and their std over the "
    "mask; this row both over the mask.",
    family=CRITIC,
    advantage={"name": "gae", "gamma": 1.0, "lam": 1.0, "unbiased": False, "masked_tokens": "through"},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    penalties=(value_loss,),
    aggregator="token_mean",
)

vc_ppo = Algorithm(
    about="PPO whose critic learns from what really came (λ = 1) while the policy keeps its λ of 0.95.",
    source="VC-PPO, arXiv 2503.01491",
    pitfalls="Half of it is not in the row: the critic is trained alone first, `critic: {warmup_steps: …}`. Its ε of "
    "the value is verl's default.",
    family=CRITIC,
    advantage={"name": "gae", "gamma": 1.0, "lam": 0.95, "lam_critic": 1.0},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    penalties=({**value_loss, "epsilon": 0.5},),
    aggregator="token_mean",
    names={"advantage": "Decoupled-GAE"},
)

vapo = Algorithm(
    about="VC-PPO with a λ that grows with the row, DAPO's clip, and right rows imitated a little.",
    source="VAPO, arXiv 2504.05118",
    pitfalls="The critic is trained alone first: `critic: {warmup_steps: …}`. Its α is meant for rows of "
    "thousands of tokens: λ is 0.99 at 2,000, 0.39 at 33, 0 up to 1/α = 20. For short rows take a larger `by_length`. "
    "The term for right rows counts rewards of 1 or more, and its mean is over all tokens, the paper's over "
    "those of right rows alone. Its ε of the value is verl's default; no code of the authors is public.",
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
