"""Numbers of further libraries, and of two readings of the paper. (Offered by `conventions`.)"""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm, variant, with_knobs
from rlm_plugins.builtin import algorithms as table
from rlm_plugins.builtin import algorithms_by_advantage as by_advantage
from rlm_plugins.builtin import algorithms_by_loss as by_loss

NEMO = "NeMo-RL, commit 7ea279abfb"
ROLL = "alibaba/ROLL, commit 8eb27cc2dc"
SKYRL = "SkyRL, commit a9564572eb"

grpo_nemo = variant(
    table.grpo,
    about="GRPO as NeMo-RL computes it: a row is seen from the mean and the std of the others; token mean.",
    source=f"{NEMO}, use_leave_one_out_baseline (its default); so too arXiv 2509.04419",
    pitfalls="The only right row of a group is compared with rows that are all equal: it is not divided, and worth 1.",
    advantage={"name": "leave_one_out", "scale": "others", "eps": 1e-6},
    aggregator="token_mean",
)

grpo_oat = variant(
    table.grpo,
    about="GRPO as oat computes it: eps 1e-8.",
    source="sail-sg/oat, commit c1a074c320",
    pitfalls="Its k3 is clamped at a log-ratio of ±40, ours at ±20.",
    advantage={"name": "group_relative", "eps": 1e-8},
)

grpo_roll = variant(
    table.grpo,
    about="GRPO as ROLL computes it: eps 1e-6, rows without tokens counted in the mean.",
    source=f"{ROLL}, reward_norm with group mean and group std, loss_agg_mode=seq-mean-token-mean",
    advantage={"name": "group_relative", "eps": 1e-6},
    aggregator={"name": "sequence_mean", "empty_rows": "counted"},
)

grpo_population = variant(
    table.grpo,
    about="GRPO with the std of the group as a population: n, not n − 1, and no eps.",
    source="arXiv 2402.03300 does not say which std; 2508.10751 (Pass@k) has this one at k = 1",
    pitfalls="numpy's std has n, torch's n − 1: no library read here divides by this for GRPO.",
    advantage={"name": "group_relative", "unbiased": False, "eps": 0.0},
)

grpo_centred = variant(
    table.grpo,
    about="GRPO with the mean of the group taken off and no std: half of Dr. GRPO.",
    source="TRL's scale_rewards='none', verl's norm_adv_by_std_in_grpo=false, nothing else changed",
    pitfalls="Rewards of another scale are another learning rate.",
    advantage={"name": "group_relative", "scale": "none"},
)

dr_grpo_roll = variant(
    table.dr_grpo,
    about="Dr. GRPO's sum as ROLL (and verl before 0.9) has it: over L, but not over the rows.",
    source=f"{ROLL}, loss_agg_mode=seq-mean-token-sum-norm",
    pitfalls="Despite its name no mean over rows: a batch of twice the rows takes steps twice as long.",
    aggregator={"name": "fixed_length", "over": "batch"},
)

dapo_skyrl = variant(
    table.dapo,
    about="DAPO's loss as SkyRL summed it: a token mean per micro-batch.",
    source=f"{SKYRL}, legacy loss reduction",
    pitfalls="Depends on how the batch is split into micro-batches; so does TRL's bnpo. DAPO's eq. 8 averages over the "
    "tokens of one group at a time; its code, like `dapo`, over those of the batch.",
    aggregator="micro_batch_token_mean",
)

reinforce_pp_skyrl = variant(
    by_advantage.reinforce_pp,
    about="REINFORCE++ as SkyRL computes it: tokens before tool output are paid nothing for what comes after it.",
    source=SKYRL,
    advantage={"name": "batch_whitened", "masked_tokens": "forget"},
)

reinforce_pp_baseline_nemo = variant(
    by_advantage.reinforce_pp_baseline,
    about="REINFORCE++ with baseline as NeMo-RL computes it: the variance with n.",
    source=f"{NEMO}, ReinforcePlusPlusAdvantageEstimator(minus_baseline=True)",
    advantage=with_knobs(by_advantage.reinforce_pp_baseline.advantage, unbiased=False),
)

lite_ppo_roll = variant(
    by_advantage.lite_ppo,
    about="LitePPO with ROLL's other std: that of centred rewards, which prompts of different difficulty do not widen.",
    source=f"{ROLL}, group_reward_norm(div_std_global=True)",
    pitfalls="Its reward_norm (group mean, batch std) takes that of raw rewards, with eps 1e-6, like the plain row. "
    "Its LitePPO page sets a mean per row beside a token-level loss.",
    advantage={"name": "group_relative", "scale": "centred_batch", "eps": 1e-6},
)

gppo_klear = variant(
    by_loss.gppo,
    about="GPPO as its authors' code computes it: with dual clip at 3.",
    source="suu990901/KlearReasoner, commit 5d2d0b8c5c",
    policy_loss=with_knobs(by_loss.gppo.policy_loss, delta=3.0),
)

ce_gppo_klear = variant(
    by_loss.ce_gppo,
    about="CE-GPPO as its authors' code computes it: with dual clip at 3.",
    source="Kwai-Klear/CE-GPPO, commit 10558fe017",
    policy_loss=with_knobs(by_loss.ce_gppo.policy_loss, delta=3.0),
)


def rows() -> dict[str, Algorithm]:
    """Name → row: the last word of a name here is its convention."""
    found = {name: row for name, row in globals().items() if isinstance(row, Algorithm)}
    return {"@".join(name.rsplit("_", 1)): row for name, row in found.items()}
