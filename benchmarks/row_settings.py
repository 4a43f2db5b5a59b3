"""Settings that single algorithms need in the benchmark, and notes on their results.

All other settings are the quickstart's: model, LoRA, learning rate, batch, rewards, prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Own(NamedTuple):
    """Overrides for one algorithm.

    Args:
        overrides: ``key=value`` of its stage, as after ``rlm train RECIPE``; ``{pool}``: the replay pool of `EARLIER`.
        why: The reason, from its formula.
    """

    overrides: Sequence[str]
    why: str


CAREFUL = "environment.slip=0"
"""Demonstrations without errors; with the errors of the start they would contradict the rewards."""

EARLIER = "grpo"
"""The algorithm whose correct completions are replayed, from the same start, seed and order of prompts."""

SHOWN = "has one correct demonstration in each group of 8: 7 completions are sampled"

ALONE = ["trainer.num_generations=1", "critic.learning_rate=2.5e-3", "critic.warmup_steps=5"]
CRITIC = (
    "uses a critic instead of a group: 64 prompts with one completion each. The critic's learning rate is five times "
    "the policy's (as in Open-Reasoner-Zero's script). The first 5 steps train the critic only, so the policy has 5 "
    "fewer. Both were chosen on seed 0 of this task"
)

OWN: dict[str, Own] = {
    "sft": Own([CAREFUL], "trains on demonstrations only, without errors; 64 per step, like the sampled completions"),
    "dft": Own([CAREFUL], "trains on demonstrations only, like `sft`"),
    "spo": Own(
        [
            "trainer.num_generations=1",
            "environment.train_rows=256",
            "rewards=[{name: accuracy, weight: 0.8}, {name: format, weight: 0.2}]",
        ],
        "has no groups: 64 prompts with one completion each, as many completions per step as the others. There are 256 "
        "prompts, each used about nine times, because its value tracker needs repetitions. It requires rewards between "
        "0 and 1",
    ),
    "pass_at_k": Own(
        ["algorithm.advantage.threshold=1"],
        "counts correct completions, so it needs the reward from which one is correct; the format alone gives 0.2",
    ),
    **dict.fromkeys(
        ("topr", "psr", "nsr", "w_reinforce"),
        Own(["algorithm.advantage.threshold=1"], "needs the reward from which a completion is right, as `pass_at_k`"),
    ),
    "kpop": Own(
        ["algorithm.rollouts=[eight_bits]"], "needs an inference engine that differs from the policy, as `flash_rl`"
    ),
    "flash_reinforce": Own(
        ["algorithm.rollouts=[eight_bits]", "trainer.num_generations=1"],
        "needs an inference engine that differs from the policy, as `flash_rl`, and has no groups: 64 prompts with one "
        "completion each",
    ),
    "chord": Own([CAREFUL], SHOWN),
    "flash_rl": Own(
        ["algorithm.rollouts=[eight_bits]"],
        "needs an inference engine that differs from the policy. `benchmarks/eight_bits.py` samples with weights "
        "rounded to eight bits and returns its own log-probs (at the start 3e-4 nats off per token, 0.05 at "
        "most: no weight reaches the cap)",
    ),
    "rlep": Own(
        ["algorithm.rollouts.replay.path={pool}"],
        f"replays up to 2 of 8 completions from the correct ones of `{EARLIER}`, from the same start and prompts "
        "(equal ones count once, and many prompts have one); the seconds of that earlier run are not counted",
    ),
    "ppo": Own(
        [*ALONE, "algorithm.shapers=[]", "algorithm.advantage.lam=1.0"],
        f"{CRITIC}. λ is 1: otherwise the reward of 33 tokens reaches the first as 0.95³³ = 0.18 of itself, which the "
        "critic, 5 steps old, cannot compensate. No KL: it would preserve the forgotten carries",
    ),
    "orz": Own(ALONE, CRITIC),
    "vc_ppo": Own(ALONE, CRITIC),
    "vapo": Own(
        [*ALONE, "algorithm.advantage.by_length=3.0"],
        f"{CRITIC}. Its α of 0.05 is meant for completions of thousands of tokens: for 33 it gives λ = 0.39. With α = "
        "3, λ = 0.99, as the paper's for 2,000 (with 0.05 seed 0 ended at 0.773)",
    ),
    "luffy": Own([CAREFUL], SHOWN),
    "srft": Own([CAREFUL], SHOWN),
    "hpt": Own([CAREFUL], f"{SHOWN} (the paper: 8 and 1)"),
    "relift": Own([CAREFUL], SHOWN),
    "prefix_rft": Own([CAREFUL], "has one completion in each group of 8 that begins with a part of a demonstration"),
    "prime": Own(
        ["algorithm.shapers.implicit_reward.learning_rate=1e-3"],
        "trains a second adapter as its implicit reward: its learning rate is twice the policy's (as in rlm-process)",
    ),
}

LEFT_OUT: dict[str, str] = {
    "process_reward_model": "trains a process reward model, not a policy",
    "gigpo": "needs an environment of several turns: measured in plugins/rlm-process",
    "arpo": "branches after tool calls, so it needs an environment of several turns: measured in plugins/rlm-process",
    **dict.fromkeys(
        ("opd", "iw_opd", "mopd", "gkd", "gkd_top", "sdft", "opsd", "sdpo", "rlsd", "sdar"),
        "needs a teacher: see the README of rlm-algorithms",
    ),
    **dict.fromkeys(("dpo", "kto"), "needs preferences: see the README of rlm-algorithms"),
    "vine_ppo": "generates seven times as many completions for its values: measured in plugins/rlm-process",
}
"""Algorithms without a result on this task, with the reason."""

READING = (
    "As in the quickstart there is one update per generation. The sampling policy is the current one, so w = 1 (except "
    "for `gepo`, whose denominator is the group's), and no clip, cap or gate on w has an effect. So `bnpo`, `cispo`, "
    "`gppo`, `ce_gppo` and `kl_cov`, whose penalty is the distance to the sampling policy, take the same steps. So do "
    "`gspo`, `gspo_token`, `gmpo` and `sapo`. The algorithms differ here in Â, in 1/Z, in the completions that are "
    "compared, and in their source. No algorithm has a learning rate of its own. AdamW divides each gradient by its "
    "running size and the norm is clipped at 1, so a constant factor of the loss (sequence sum, 1/L) changes almost "
    "nothing.\n\n"
    "The start, decoded greedily, forgets every carry: the 78 of 256 sums it gets right need none before the last "
    "column. Between step 6 and step 12 an algorithm begins to write them all. That point depends on the seed more "
    "than on the algorithm. The remaining errors are forgotten carries, or carries where none is due. The task is "
    "easy: the table shows that an algorithm works, not that it is better than another."
)
"""Introduction to the table; printed above it."""

NOTES: dict[str, str] = {
    "pass_at_k": "falls back to 0.94–0.98 after it has learned the task, and keeps the highest entropy. That follows "
    "from its formula. With k = 4 of 8 completions, a group with five correct ones has a correct one in every subset "
    "and zero advantage, so the remaining errors get no gradient.",
    "gfpo": "keeps the 4 shortest of 8 completions. Here correct and wrong ones have equal length, so the selection is "
    "random and half of the samples have no gradient.",
}
"""Why an algorithm learned less than the others, from its formula; printed below the table."""
