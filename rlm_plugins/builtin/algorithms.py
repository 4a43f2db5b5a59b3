"""The algorithms (hook ``rlm_algorithms``): each one choice per symbol, with its source and its pitfalls.

One file per family: `algorithms_critic`, `algorithms_reinforce`, `algorithms_grpo`, `algorithms_ratio` and
`algorithms_off_policy`.
"""

from __future__ import annotations

from rlm_plugins import hookimpl
from rlm_plugins.algorithm import Algorithm
from rlm_plugins.builtin import algorithms_critic as critic
from rlm_plugins.builtin import algorithms_grpo as groups
from rlm_plugins.builtin import algorithms_off_policy as off_policy
from rlm_plugins.builtin import algorithms_ratio as ratio
from rlm_plugins.builtin import algorithms_reinforce as policy_gradient

ALGORITHMS: dict[str, Algorithm] = {
    "ppo": critic.ppo,
    "orz": critic.orz,
    "vc_ppo": critic.vc_ppo,
    "vapo": critic.vapo,
    "reinforce": policy_gradient.reinforce,
    "remax": policy_gradient.remax,
    "rloo": policy_gradient.rloo,
    "reinforce_pp": policy_gradient.reinforce_pp,
    "reinforce_pp_baseline": policy_gradient.reinforce_pp_baseline,
    "grpo": groups.grpo,
    "dr_grpo": groups.dr_grpo,
    "dapo": groups.dapo,
    "clip_cov": ratio.clip_cov,
    "kl_cov": ratio.kl_cov,
    "cispo": ratio.cispo,
    "gspo": ratio.gspo,
    "gspo_token": ratio.gspo_token,
    "gmpo": ratio.gmpo,
    "gfpo": groups.gfpo,
    "lite_ppo": groups.lite_ppo,
    "flash_rl": ratio.flash_rl,
    "gppo": ratio.gppo,
    "ce_gppo": ratio.ce_gppo,
    "gepo": ratio.gepo,
    "spo": groups.spo,
    "bnpo": groups.bnpo,
    "opo": policy_gradient.opo,
    "gpg": policy_gradient.gpg,
    "sapo": ratio.sapo,
    "pass_at_k": groups.pass_at_k,
    "sft": off_policy.sft,
    "dft": off_policy.dft,
    "reward_model": off_policy.reward_model,
    "rlep": off_policy.rlep,
    "luffy": off_policy.luffy,
    "srft": off_policy.srft,
    "hpt": off_policy.hpt,
}
"""Name → algorithm, in the order of the survey (arXiv 2509.08827)."""


@hookimpl
def rlm_algorithms() -> dict[str, Algorithm]:
    return ALGORITHMS
