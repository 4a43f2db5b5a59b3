"""verl 0.9.1's numbers of the rows that differ in w, ℓ, c or βΩ. (Offered by `conventions`.)"""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm, variant, with_knobs
from rlm_plugins.builtin import algorithms as table
from rlm_plugins.builtin import algorithms_by_loss as by_loss
from rlm_plugins.builtin.conventions_verl import GROUP

gspo = variant(
    table.gspo,
    about="GSPO as verl computes it: the token form, under a token mean.",
    source="verl 0.9.1, loss_mode=gspo",
    pitfalls="Long rows pull more than the paper lets them; its recipe sets loss_agg_mode=seq-mean-token-mean, which "
    "is the paper's gradient. No dual clip here. verl cuts the log-ratio at +10.",
    advantage=GROUP,
    importance="sequence_token",
    aggregator="token_mean",
)

gmpo = variant(
    by_loss.gmpo,
    about="GMPO as verl computes it: clipped at ±0.2 in log space; rows without tokens are counted.",
    source="verl 0.9.1, loss_mode=geo_mean",
    pitfalls="clip_ratio_low and _high are distances in log space here and nowhere else in verl; the paper has 0.4. "
    "Log-ratios are not clamped there, nor in clip_cov and kl_cov; ours stop at ±20.",
    advantage=GROUP,
    importance={"name": "geometric_clipped", "epsilon": 0.2},
    aggregator={"name": "sequence_mean", "empty_rows": "counted"},
)

cispo = variant(
    table.cispo,
    about="CISPO as verl (and SkyRL) compute it: the weight is clipped to [0.8, 1.2], below as well.",
    source="verl 0.9.1, loss_mode=cispo",
    pitfalls="verl's clip_ratio serves every loss; the paper's cap is far higher and it has no lower bound.",
    advantage=GROUP,
    policy_loss={"name": "cispo", "epsilon_low": 0.2, "epsilon_high": 0.2},
)

clip_cov = variant(
    by_loss.clip_cov,
    about="Clip-Cov as verl computes it: with PPO's clip at 0.2, where the paper's recipe has it at 1.",
    source="verl 0.9.1, loss_mode=clip_cov",
    pitfalls="verl draws with torch's generator, so it draws other tokens. No dual clip here.",
    advantage=GROUP,
    policy_loss={"name": "clip", "epsilon": 0.2},
    token_weights=({"name": "clip_cov", "share": 2e-4, "low": 1.0, "high": 5.0, "epsilon": 0.2},),
)

kl_cov = variant(
    by_loss.kl_cov,
    about="KL-Cov as verl computes it: 2e-4 of the tokens pay, a tenth of the paper's price.",
    source="verl 0.9.1, loss_mode=kl_cov (ppo_kl_coef=0.1, kl_cov_ratio=2e-4)",
    pitfalls="kl_cov_ratio is a fraction; the authors' k_percent is a percentage. verl's docstring says 1 for the "
    "price.",
    advantage=GROUP,
    penalties=({"name": "kl_cov", "beta": 0.1, "share": 2e-4},),
)

flash_rl = variant(
    by_loss.flash_rl,
    about="Truncated importance as verl computes it: with dual clip; the cap of its recipe, 2.",
    source="verl 0.9.1, rollout_is=token, rollout_is_threshold=2",
    pitfalls="A threshold of two numbers is IcePop: `masked_importance`. The DAPO recipe has dual clip at 10.",
    advantage=GROUP,
    policy_loss=with_knobs(by_loss.flash_rl.policy_loss, delta=3.0),
)


def rows() -> dict[str, Algorithm]:
    """Name → row."""
    return {f"{name}@verl": row for name, row in globals().items() if isinstance(row, Algorithm)}
