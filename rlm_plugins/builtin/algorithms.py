"""The algorithm table (hook ``rlm_algorithms``): each row one choice per symbol, with its source and its traps."""

from __future__ import annotations

from rlm_plugins import hookimpl
from rlm_plugins.algorithm import Algorithm
from rlm_plugins.builtin import algorithms_by_advantage as by_advantage
from rlm_plugins.builtin import algorithms_by_loss as by_loss
from rlm_plugins.builtin import algorithms_by_source as by_source
from rlm_plugins.builtin import algorithms_with_critic as with_critic

sft = Algorithm(
    about="Supervised fine-tuning on the column `demonstration`: −log π of every demonstrated token.",
    source="TRL's SFTTrainer",
    trainer="sft",
    family="off-policy and supervised",
)

dft = Algorithm(
    about="SFT in which every token is weighed by the probability the policy gives it, −sg(π) log π.",
    source="arXiv 2508.05629; TRL's SFTTrainer with loss_type dft",
    pitfalls="The weight carries no gradient. Tokens the policy holds for impossible teach next to nothing, so it "
    "refines what a model knows and teaches no new format; its learning rate is larger than SFT's (5e-5 in the paper).",
    trainer="dft",
    family="off-policy and supervised",
)

reward_model = Algorithm(
    about="A reward model: which of two answers is preferred, learned from the columns `chosen` and `rejected`.",
    source="Christiano et al., arXiv 1706.03741 eq. 1; for language models 1909.08593; TRL's RewardTrainer",
    pitfalls="Only differences are learned: the zero of the score means nothing. It is right where its pairs are; what "
    "optimises it leaves them (see the reward `reward_model`). Pairs in which the longer answer wins teach length.",
    trainer="reward_model",
    family="off-policy and supervised",
)

reinforce = Algorithm(
    about="The policy gradient with the group's mean as baseline: no ratio, no clip, no division by a std.",
    source="Williams 1992; grouped as in arXiv 2402.14740 §4",
    pitfalls="On policy only: with several updates per batch nothing keeps the policy near its samples.",
    advantage={"name": "group_relative", "scale": "none"},
    policy_loss="reinforce",
    aggregator="sequence_sum",
)

grpo = Algorithm(
    about="PPO's clip with the critic replaced by the mean and std of a group of answers.",
    source="DeepSeekMath, arXiv 2402.03300 eq. 3–4",
    pitfalls="Dividing by the group's std favours prompts that are almost solved or almost hopeless, 1/n favours "
    "short right and long wrong answers (see dr_grpo). TRL's default is not this row but `dapo` with β = 0.",
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
    about="GRPO done right: without the two divisions that bias it (std of the group, length of the row).",
    source="arXiv 2503.20783",
    pitfalls="L is a constant of the recipe; divide by the padded width instead and padding changes the gradient.",
    advantage={"name": "group_relative", "scale": "none"},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="fixed_length",
    names={"advantage": "Â without the division by std", "aggregator": "1/|oᵢ| replaced by a constant"},
)

bnpo = Algorithm(
    about="GRPO with a token mean per micro-batch, the name TRL gives it.",
    source="trl.GRPOConfig(loss_type='bnpo')",
    pitfalls="Depends on how the batch is split into micro-batches; prefer `dapo`.",
    advantage="group_relative",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="micro_batch_token_mean",
)

dapo = Algorithm(
    about="GRPO without KL, with a higher upper clip, token mean, only groups that differ, soft length limit.",
    source="arXiv 2503.14476 eq. 8–13",
    pitfalls="The filter looks at the reward `accuracy`, before the length is punished: by the shaped sum, groups that "
    "are all wrong at different lengths would stay. Another name: `filters: {nonzero_std: {reward: …}}`. At most 10 "
    "generation batches are drawn to fill one; verl's script draws 10 of three times the size and then stops with an "
    "error, the paper sets no bound.",
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

rloo = Algorithm(
    about="REINFORCE on whole completions; each row's baseline is the mean of the others.",
    source="arXiv 2402.14740 eq. 5",
    pitfalls="The completion is one action: its log-probability is a sum over tokens. TRL's RLOOTrainer clips a "
    "sequence ratio instead; verl and OpenRLHF use a token ratio and a token mean.",
    shapers=({"name": "kl_in_reward", "beta": 0.03},),
    advantage="leave_one_out",
    policy_loss="reinforce",
    aggregator="sequence_sum",
    names={"advantage": "REINFORCE Leave-One-Out"},
)

gspo = Algorithm(
    about="GRPO whose ratio and clip belong to the whole sequence, like its reward.",
    source="arXiv 2507.18071 eq. 5–7",
    pitfalls="The clip range is a hundred times smaller than a token's. Only the sequence mean gives its gradient.",
    advantage="group_relative",
    importance="sequence",
    policy_loss={"name": "clip", "epsilon": 3e-4, "epsilon_high": 4e-4},
    aggregator="sequence_mean",
    names={"importance": "sᵢ(θ), the sequence likelihood ratio", "policy_loss": "sequence-level clipping"},
)

cispo = Algorithm(
    about="Clips the weight of a token, never its gradient: rare tokens that start a new thought keep teaching.",
    source="MiniMax-M1, arXiv 2506.13585 eq. 4–5",
    pitfalls="Libraries disagree on the cap: see the part `cispo`.",
    advantage="group_relative",
    importance="token",
    policy_loss="cispo",
    aggregator="token_mean",
    names={"policy_loss": "clipped importance sampling weight, ε_low^IS and ε_high^IS"},
)


@hookimpl
def rlm_algorithms() -> dict[str, Algorithm]:
    return {
        "ppo": with_critic.ppo,
        "orz": with_critic.orz,
        "vc_ppo": with_critic.vc_ppo,
        "vapo": with_critic.vapo,
        "reinforce": reinforce,
        "remax": by_source.remax,
        "rloo": rloo,
        "reinforce_pp": by_advantage.reinforce_pp,
        "reinforce_pp_baseline": by_advantage.reinforce_pp_baseline,
        "grpo": grpo,
        "dr_grpo": dr_grpo,
        "dapo": dapo,
        "clip_cov": by_loss.clip_cov,
        "kl_cov": by_loss.kl_cov,
        "cispo": cispo,
        "gspo": gspo,
        "gspo_token": by_loss.gspo_token,
        "gmpo": by_loss.gmpo,
        "gfpo": by_advantage.gfpo,
        "lite_ppo": by_advantage.lite_ppo,
        "flash_rl": by_loss.flash_rl,
        "gppo": by_loss.gppo,
        "ce_gppo": by_loss.ce_gppo,
        "gepo": by_loss.gepo,
        "spo": by_advantage.spo,
        "bnpo": bnpo,
        "opo": by_advantage.opo,
        "gpg": by_advantage.gpg,
        "sapo": by_loss.sapo,
        "pass_at_k": by_advantage.pass_at_k,
        "sft": sft,
        "dft": dft,
        "reward_model": reward_model,
        "rlep": by_source.rlep,
        "luffy": by_source.luffy,
        "srft": by_source.srft,
        "hpt": by_source.hpt,
    }
