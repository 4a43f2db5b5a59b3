"""Records that are not compared, each with its reason.

Beside these records of libraries there are some of the authors' own repositories, which are not ours to copy. They were
compared once, in float64, value and gradient: of 270 that concern built-in algorithms 257 match. These are records of
pass@k, Klear's GPPO, CE-GPPO, KL-Cov, LUFFY's loss, GEPO and its GSPO, SPO's tracker, L1 and ORZ's GAE. Others are
estimators and reductions of NeMo, ROLL, SkyRL and oat. The remaining 13 differ for known reasons:

- SkyRL's GAE (4 of 5) has no mask: values and rewards of padding run into the last token.
- LUFFY's split advantage (2) uses mean and std of the policy's completions only; paper and recipe do not use it.
- PRIME's RLOO (2) adds an implicit process reward, for which there is no part yet.
- HeteroRL's GMPO (2, where something is clipped) clamps a log-ratio between the bounds of a ratio.
- HeteroRL's EqP (3) is a weight of its own, for which there is no part.
"""

from __future__ import annotations

from vectors.advantages import OPEN
from vectors.records import Args, matches

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
    return [why for name, args, why in SKIPPED if matches(record, name, args)]
