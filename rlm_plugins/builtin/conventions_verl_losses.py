"""Variants of verl 0.9.1 that differ in w, ℓ, c or βΩ; registered by `conventions`."""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm, variant, with_knobs
from rlm_plugins.builtin.algorithms import ALGORITHMS
from rlm_plugins.builtin.conventions_verl import GROUP

gspo = variant(
    ALGORITHMS["gspo"],
    about="GSPO as verl computes it: the token form, with a token mean.",
    source="verl 0.9.1, loss_mode=gspo",
    pitfalls="Long completions weigh more than in the paper; its recipe sets loss_agg_mode=seq-mean-token-mean, which "
    "is the paper's gradient. No dual clip here. verl clamps the log-ratio at +10.",
    advantage=GROUP,
    importance="sequence_token",
    aggregator="token_mean",
)

gmpo = variant(
    ALGORITHMS["gmpo"],
    about="GMPO as verl computes it: clipped at ±0.2 in log space; completions without tokens are counted.",
    source="verl 0.9.1, loss_mode=geo_mean",
    pitfalls="clip_ratio_low and _high are distances in log space here and nowhere else in verl; the paper has 0.4. "
    "Log-ratios are not clamped there, nor in clip_cov and kl_cov; ours are clamped at ±20.",
    advantage=GROUP,
    importance={"name": "geometric_clipped", "epsilon": 0.2},
    aggregator={"name": "sequence_mean", "empty_completions": "included"},
)

cispo = variant(
    ALGORITHMS["cispo"],
    about="CISPO as verl (and SkyRL) compute it: the weight is clipped to [0.8, 1.2], below as well.",
    source="verl 0.9.1, loss_mode=cispo",
    pitfalls="verl's clip_ratio is shared by all losses; the paper's cap is far higher and it has no lower bound.",
    advantage=GROUP,
    policy_loss={"name": "cispo", "epsilon_low": 0.2, "epsilon_high": 0.2},
)

clip_cov = variant(
    ALGORITHMS["clip_cov"],
    about="Clip-Cov as verl computes it: with PPO's clip at 0.2, where the paper's recipe has it at 1.",
    source="verl 0.9.1, loss_mode=clip_cov",
    pitfalls="verl draws with torch's global RNG, so it selects other tokens. No dual clip here.",
    advantage=GROUP,
    policy_loss={"name": "clip", "epsilon": 0.2},
    token_weights=({"name": "clip_cov", "share": 2e-4, "low": 1.0, "high": 5.0, "epsilon": 0.2},),
)

kl_cov = variant(
    ALGORITHMS["kl_cov"],
    about="KL-Cov as verl computes it: 2e-4 of the tokens, a tenth of the paper's coefficient.",
    source="verl 0.9.1, loss_mode=kl_cov (ppo_kl_coef=0.1, kl_cov_ratio=2e-4)",
    pitfalls="kl_cov_ratio is a fraction; the authors' k_percent is a percentage. verl's docstring gives 1 for "
    "the coefficient.",
    advantage=GROUP,
    penalties=({"name": "kl_cov", "beta": 0.1, "share": 2e-4},),
)

flash_rl = variant(
    ALGORITHMS["flash_rl"],
    about="Truncated importance as verl computes it: with dual clip; the cap of its recipe, 2.",
    source="verl 0.9.1, rollout_is=token, rollout_is_threshold=2",
    pitfalls="A threshold of two numbers is IcePop: `masked_importance`. The DAPO recipe has dual clip at 10.",
    advantage=GROUP,
    policy_loss=with_knobs(ALGORITHMS["flash_rl"].policy_loss, delta=3.0),
)


def algorithms() -> dict[str, Algorithm]:
    """Return name → algorithm."""
    return {f"{name}@verl": value for name, value in globals().items() if isinstance(value, Algorithm)}
