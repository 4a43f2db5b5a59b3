"""Variants of GRPO that differ in ratio, clip, token weights or entropy control; registered by `algorithms`."""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm

gspo = Algorithm(
    about="GRPO with ratio and clip at the level of the sequence, like its reward.",
    source="arXiv 2507.18071 eq. 5–7",
    pitfalls="The clip range is a hundred times smaller than a token's. Only the sequence mean gives its gradient.",
    advantage="group_relative",
    importance="sequence",
    policy_loss={"name": "clip", "epsilon": 3e-4, "epsilon_high": 4e-4},
    aggregator="sequence_mean",
    names={"importance": "sᵢ(θ), the sequence likelihood ratio", "policy_loss": "sequence-level clipping"},
)

gspo_token = Algorithm(
    about="GSPO for advantages that differ between tokens: the sequence ratio as value, each token's own gradient.",
    source="arXiv 2507.18071 eq. 13–14",
    pitfalls="With one advantage per completion this is `gspo`, value and gradient: use it with per-token advantages. "
    "verl calls this form gspo; under its default, a token mean, long completions weigh more than in the paper.",
    advantage="group_relative",
    importance="sequence_token",
    policy_loss={"name": "clip", "epsilon": 3e-4, "epsilon_high": 4e-4},
    aggregator="sequence_mean",
    names={"importance": "sᵢ,ₜ(θ)"},
)

gmpo = Algorithm(
    about="The geometric mean of token ratios in place of GRPO's arithmetic one: less sensitive to outliers.",
    source="arXiv 2507.20673",
    pitfalls="The clip is inside w and in log space: 0.4 is e^±0.4 (verl's default is 0.2). TRL adds a constant −Â for "
    "completions without tokens; HeteroRL's `gmpo` clips a log ratio to the range of a ratio, which is wrong.",
    advantage="group_relative",
    importance={"name": "geometric_clipped", "epsilon": 0.4},
    policy_loss="unclipped",
    aggregator="sequence_mean",
    names={"importance": "geometric mean of token-level clipped ratios"},
)

gepo = Algorithm(
    about="GSPO for stale samples: the denominator of the ratio is the expected probability of the group.",
    source="arXiv 2508.17850",
    pitfalls="On policy w is not 1, so likely completions are clipped and unlikely ones weigh less from the first step "
    "on. The authors' configs leave the clip at TRL's 0.2; their code treats a micro-batch as the group. Old log-probs "
    "over complete groups cost one more forward pass per generation batch.",
    advantage={"name": "group_relative", "scale": "none"},
    importance="group_expectation",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="sequence_mean",
    names={"importance": "group expectation weight, Ê_q[q] in the denominator"},
)

cispo = Algorithm(
    about="Clips the importance weight of a token, not its gradient: rare tokens of new reasoning keep theirs.",
    source="MiniMax-M1, arXiv 2506.13585 eq. 4–5",
    pitfalls="Libraries disagree on the cap: see the part `cispo`.",
    advantage="group_relative",
    importance="token",
    policy_loss="cispo",
    aggregator="token_mean",
    names={"policy_loss": "clipped importance sampling weight, ε_low^IS and ε_high^IS"},
)

gppo = Algorithm(
    about="DAPO's clip in value, but clipped tokens keep a bounded gradient.",
    source="Klear-Reasoner, arXiv 2508.07629",
    pitfalls="Surveys list it as GPO, with a sequence-level sum; its code and recipe take the token mean. The code has "
    "dual clip always on: `policy_loss: {delta: 3}`.",
    advantage="group_relative",
    importance="token",
    policy_loss={"name": "gradient_preserving", "epsilon": 0.2, "epsilon_high": 0.28},
    aggregator="token_mean",
    names={"policy_loss": "gradient-preserving clip"},
)

ce_gppo = Algorithm(
    about="GPPO with separate factors for the gradient of tokens clipped below and above.",
    source="arXiv 2509.20712 eq. 9–10, §4.1",
    pitfalls="β₁ is `beta_low`: 0.75 for its 7B model (here), 0.5 for 1.5B. It scales the value too, so losses are not "
    "comparable with those of `gppo`. ε is the same on both sides, in paper and script: GPPO's 0.28 above is "
    "`epsilon_high`. Dual clip as there.",
    advantage="group_relative",
    importance="token",
    policy_loss={"name": "gradient_preserving", "epsilon": 0.2, "beta_low": 0.75, "beta_high": 1.0},
    aggregator="token_mean",
    names={"policy_loss": "β₁ is beta_low, β₂ is beta_high"},
)

sapo = Algorithm(
    about="A smooth gate around w = 1 instead of a clip; gradients decay faster for negative advantages.",
    source="arXiv 2511.20347",
    pitfalls="On policy the gradient is GRPO's, the value is not: at w = 1 it is −2/τ · Â.",
    advantage="group_relative",
    importance="token",
    policy_loss={"name": "sapo", "tau_positive": 1.0, "tau_negative": 1.05},
    aggregator="sequence_mean",
    names={"policy_loss": "soft gate, τ_pos and τ_neg"},
)

clip_cov = Algorithm(
    about="Entropy control: no gradient for a few random tokens of those that would reduce the entropy most.",
    source="arXiv 2505.22617",
    pitfalls="Covariance and draw are those of the complete optimizer step; the libraries use each micro-batch, so "
    "that its size changes their result. The paper's recipe clips at 0 and 2 only; change the clip in `policy_loss` "
    "and in the token weight together.",
    advantage="group_relative",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 1.0, "epsilon_high": 1.0},
    token_weights=({"name": "clip_cov", "share": 2e-4, "low": 1.0, "high": 5.0, "epsilon": 1.0},),
    aggregator="token_mean",
    names={"token_weights": "Clip-Cov: share is r, low and high are ω_low and ω_high"},
)

kl_cov = Algorithm(
    about="Entropy control: a KL penalty to the old policy on the tokens that would reduce the entropy most; no clip.",
    source="arXiv 2505.22617",
    pitfalls="The share is a fraction here and in verl, a percentage in the authors' code (0.2 there). verl's config "
    "has a coefficient of 0.1, paper and recipe 1. The top share is that of the complete optimizer step; the "
    "libraries use each micro-batch.",
    advantage="group_relative",
    importance="token",
    policy_loss="unclipped",
    penalties=({"name": "kl_cov", "beta": 1.0, "share": 2e-3},),
    aggregator="token_mean",
    names={"penalties": "KL-Cov: share is k, beta is β"},
)

flash_rl = Algorithm(
    about="DAPO's loss for samples of another inference engine (vLLM, quantized), with truncated importance weights.",
    source="Yao et al. 2025, fengyao.notion.site/off-policy-rl and /flash-rl",
    pitfalls="Requires an engine that reports log-probs (`trainer: {use_vllm: true}` or a rollouts part). FlashRL's "
    "scripts have the cap off by default, verl's recipe has 2. TRL's own correction (a sequence mask at 3) is "
    "disabled, or it would be applied twice. IcePop: `token_weights: [masked_importance]`.",
    advantage="group_relative",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2, "epsilon_high": 0.28},
    token_weights=({"name": "truncated_importance", "cap": 2.0},),
    aggregator="token_mean",
    names={"token_weights": "truncated importance sampling (TIS); cap is C"},
)
