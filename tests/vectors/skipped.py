"""Records that are not compared, each with its reason."""

from __future__ import annotations

from vectors.advantages import OPEN
from vectors.records import Args, fits

SKIPPED: list[tuple[str, Args, str]] = [
    ("compute_optimal_token_baseline_advantage", {}, "needs Σπ² of every token"),
    (OPEN, {"estimator": "flash_reinforce"}, "no part of this name"),
    ("GRPOTrainer._compute_loss", {"loss_type": "vespo"}, "no VESPO part"),
    ("GRPOTrainer._compute_loss", {"off_policy_mask_threshold": 0.05}, "no off-policy mask"),
    ("compute_policy_loss_dppo_tv", {}, "no DPPO part"),
    ("compute_policy_loss_dppo_kl", {}, "no DPPO part"),
    ("compute_policy_loss_dro", {}, "no DRO part"),
    ("core_algos.agg_loss", {"loss_agg_mode": "token-sum"}, "a sum without a denominator"),
]


def reasons(record: Args) -> list[str]:
    return [why for name, args, why in SKIPPED if fits(record, name, args)]
