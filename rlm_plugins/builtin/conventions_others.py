"""Variants of further libraries, and two readings of the GRPO paper; registered by `conventions`."""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm, variant, with_knobs
from rlm_plugins.builtin.algorithms import ALGORITHMS

NEMO = "NeMo-RL, commit 7ea279abfb"
ROLL = "alibaba/ROLL, commit 8eb27cc2dc"
SKYRL = "SkyRL, commit a9564572eb"

grpo_nemo = variant(
    ALGORITHMS["grpo"],
    about="GRPO as NeMo-RL computes it: standardized by mean and std of the others in the group; token mean.",
    source=f"{NEMO}, use_leave_one_out_baseline (its default); so too arXiv 2509.04419",
    pitfalls="The only right completion of a group is compared with equal ones: there is no division, and Â is 1.",
    advantage={"name": "leave_one_out", "scale": "others", "eps": 1e-6},
    aggregator="token_mean",
)

grpo_oat = variant(
    ALGORITHMS["grpo"],
    about="GRPO as oat computes it: eps 1e-8.",
    source="sail-sg/oat, commit c1a074c320",
    pitfalls="Its k3 is clamped at a log-ratio of ±40, ours at ±20.",
    advantage={"name": "group_relative", "eps": 1e-8},
)

grpo_roll = variant(
    ALGORITHMS["grpo"],
    about="GRPO as ROLL computes it: eps 1e-6, completions without tokens counted in the mean.",
    source=f"{ROLL}, reward_norm with group mean and group std, loss_agg_mode=seq-mean-token-mean",
    advantage={"name": "group_relative", "eps": 1e-6},
    aggregator={"name": "sequence_mean", "empty_completions": "included"},
)

grpo_population = variant(
    ALGORITHMS["grpo"],
    about="GRPO with the std of the group as a population: n, not n − 1, and no eps.",
    source="arXiv 2402.03300 does not specify the std; 2508.10751 (Pass@k) has this one at k = 1",
    pitfalls="numpy's std has n, torch's n − 1: none of the libraries here uses this for GRPO.",
    advantage={"name": "group_relative", "unbiased": False, "eps": 0.0},
)

grpo_centered = variant(
    ALGORITHMS["grpo"],
    about="GRPO with the group's mean subtracted and no std: half of Dr. GRPO.",
    source="TRL's scale_rewards='none', verl's norm_adv_by_std_in_grpo=false, nothing else changed",
    pitfalls="Scaling the rewards scales the learning rate.",
    advantage={"name": "group_relative", "scale": "none"},
)

dr_grpo_roll = variant(
    ALGORITHMS["dr_grpo"],
    about="Dr. GRPO's aggregation in ROLL (and verl before 0.9): divided by L, but not by the number of completions.",
    source=f"{ROLL}, loss_agg_mode=seq-mean-token-sum-norm",
    pitfalls="Despite its name no mean over sequences: a batch of twice the size takes steps twice as large.",
    aggregator={"name": "fixed_length", "over": "batch"},
)

dapo_skyrl = variant(
    ALGORITHMS["dapo"],
    about="DAPO's loss as SkyRL aggregated it: a token mean per micro-batch.",
    source=f"{SKYRL}, legacy loss reduction",
    pitfalls="Depends on how the batch is split into micro-batches; so does TRL's bnpo. DAPO's eq. 8 averages over the "
    "tokens of one group at a time; its code, like `dapo`, over those of the batch.",
    aggregator="micro_batch_token_mean",
)

reinforce_pp_skyrl = variant(
    ALGORITHMS["reinforce_pp"],
    about="REINFORCE++ as SkyRL computes it: tokens before tool output get no credit for rewards after it.",
    source=SKYRL,
    advantage={"name": "batch_whitened", "masked_tokens": "reset"},
)

reinforce_pp_baseline_nemo = variant(
    ALGORITHMS["reinforce_pp_baseline"],
    about="REINFORCE++ with baseline as NeMo-RL computes it: the variance with n.",
    source=f"{NEMO}, ReinforcePlusPlusAdvantageEstimator(minus_baseline=True)",
    advantage=with_knobs(ALGORITHMS["reinforce_pp_baseline"].advantage, unbiased=False),
)

lite_ppo_roll = variant(
    ALGORITHMS["lite_ppo"],
    about="LitePPO with ROLL's other std: that of centered rewards, independent of the difficulty of the prompts.",
    source=f"{ROLL}, group_reward_norm(div_std_global=True)",
    pitfalls="Its reward_norm (group mean, batch std) takes that of raw rewards, with eps 1e-6, like `lite_ppo`. "
    "Its LitePPO page sets a mean per completion beside a token-level loss.",
    advantage={"name": "group_relative", "scale": "centered_batch", "eps": 1e-6},
)

gppo_klear = variant(
    ALGORITHMS["gppo"],
    about="GPPO as its authors' code computes it: with dual clip at 3.",
    source="suu990901/KlearReasoner, commit 5d2d0b8c5c",
    policy_loss=with_knobs(ALGORITHMS["gppo"].policy_loss, delta=3.0),
)

ce_gppo_klear = variant(
    ALGORITHMS["ce_gppo"],
    about="CE-GPPO as its authors' code computes it: with dual clip at 3.",
    source="Kwai-Klear/CE-GPPO, commit 10558fe017",
    policy_loss=with_knobs(ALGORITHMS["ce_gppo"].policy_loss, delta=3.0),
)


def algorithms() -> dict[str, Algorithm]:
    """Return name → algorithm; the last word of a variable is the name of its library."""
    variants = {name: value for name, value in globals().items() if isinstance(value, Algorithm)}
    return {"@".join(name.rsplit("_", 1)): algorithm for name, algorithm in variants.items()}
