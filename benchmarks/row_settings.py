"""What single rows say differently in the benchmark, and what there is to say about their results.

Everything else is the quickstart's: model, LoRA, learning rate, batch, rewards, problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Own(NamedTuple):
    """What a row needs beside its name.

    Args:
        overrides: ``key=value`` of its stage, as after ``rlm train RECIPE``; ``{pool}`` is what `EARLIER` got right.
        why: The reason, from its formula.
    """

    overrides: Sequence[str]
    why: str


CAREFUL = "environment.slip=0"
"""The start imitates a sloppy hand. Demonstrations that forget carries too would teach what the rewards punish."""

EARLIER = "grpo"
"""The row whose successes are replayed: from the same start and seed, it met the same problems in the same order."""

SHOWN = "shows one careful demonstration in each group of 8, which is counted among them: 7 are sampled"

ALONE = ["trainer.num_generations=1", "critic.learning_rate=2.5e-3", "critic.warmup_steps=5"]
CRITIC = (
    "is compared with a critic and with no other row: 64 problems with one answer each; the critic learns five times "
    "as fast as the policy (as in Open-Reasoner-Zero's script), and the first 5 steps are the critic's alone: the "
    "policy has 5 fewer. Both were chosen on seed 0 of this task"
)

OWN: dict[str, Own] = {
    "sft": Own([CAREFUL], "learns from demonstrations alone: they are careful ones; 64 per step, as others write"),
    "dft": Own([CAREFUL], "learns from demonstrations alone, like `sft`"),
    "spo": Own(
        [
            "trainer.num_generations=1",
            "environment.train_rows=256",
            "rewards=[{name: accuracy, weight: 0.8}, {name: format, weight: 0.2}]",
        ],
        "has no groups: 64 problems with one answer each, so completions per step are those of the others; of 256 "
        "problems, each of which returns about nine times, or its memory would say nothing; its tracker wants rewards "
        "between 0 and 1",
    ),
    "pass_at_k": Own(
        ["algorithm.advantage.threshold=1"],
        "counts right rows, so it must be told from which reward on a row is right; form alone, 0.2, is not",
    ),
    "flash_rl": Own(
        ["algorithm.rollouts=[eight_bits]"],
        "needs an engine that is not quite the policy: `benchmarks/eight_bits.py` writes with weights rounded to "
        "eight bits and reports its own probabilities (at the start 3e-4 nats off per token, 0.05 at most: no weight "
        "reaches the cap)",
    ),
    "rlep": Own(
        ["algorithm.rollouts.replay.path={pool}"],
        f"replays up to 2 of 8 rows from what `{EARLIER}` got right from the same start on the same problems (a "
        "completion counts once, and many a problem has one); the seconds of that earlier run are not counted",
    ),
    "ppo": Own(
        [*ALONE, "algorithm.shapers=[]", "algorithm.advantage.lam=1.0"],
        f"{CRITIC}; λ is 1, or the reward of a row of 33 tokens would reach its beginning as 0.95³³ = 0.18 of itself, "
        "and the critic, which could make up for it, is 5 steps old; no KL: it would hold on to forgetting carries",
    ),
    "orz": Own(ALONE, CRITIC),
    "vc_ppo": Own(ALONE, CRITIC),
    "vapo": Own(
        [*ALONE, "algorithm.advantage.by_length=3.0"],
        f"{CRITIC}; its α of 0.05 is meant for rows of thousands of tokens: to one of 33 it gives λ = 0.39. α is 3, so "
        "that λ = 0.99 is what the paper's gives to 2,000 (with 0.05 seed 0 ended at 0.773)",
    ),
    "luffy": Own([CAREFUL], SHOWN),
    "srft": Own([CAREFUL], SHOWN),
    "hpt": Own([CAREFUL], f"{SHOWN} (the paper: 8 and 1)"),
}

LEFT_OUT: dict[str, str] = {"reward_model": "makes a reward, not a policy"}
"""Rows that cannot say anything on this task, with the reason."""

READING = (
    "As in the quickstart there is one update per generation: the policy that learns is the one that wrote, so w = 1 "
    "(but for `gepo`, whose denominator is the group's) and in no other row a clip, cap or gate on w ever acts. So "
    "`bnpo`, `cispo`, `gppo`, `ce_gppo` and `kl_cov`, which pays for leaving the policy that wrote, take the same "
    "steps, and so do `gspo`, `gspo_token`, `gmpo` and `sapo`. What is left to be told apart is Â, 1/Z, which rows "
    "are compared and who wrote them. No row has a learning rate of its own: AdamW divides each gradient by its "
    "running size and the norm is clipped at 1, so a constant factor of the loss (sums over a sequence, 1/L) changes "
    "next to nothing.\n\n"
    "The start, when it writes greedily, forgets every carry: the 78 of 256 sums it gets right are those that need "
    "none before the last column. Between step 6 and step 12 a row begins to write them all; when that happens depends "
    "on the seed more than on the row. What is missing to 1.000 afterwards is a carry that is still forgotten or, the"
    " other way, one that is added where none is due. The task is easy: the table says that a row works, not that it "
    "is better than another."
)
"""What to know before the rows are compared; printed above the table."""

NOTES: dict[str, str] = {
    "pass_at_k": "falls back to 0.94–0.98 once it has learned the task, and stays the least certain of what it writes. "
    "So its formula wants it: with k = 4 of 8 rows, a group with five right ones has a right row in every team and "
    "teaches nothing, so what is still wrong three times in eight is left alone.",
    "gfpo": "keeps the 4 shortest of 8 rows, and here right and wrong answers are equally long: which rows teach is "
    "chance, and half of what is written teaches nothing.",
}
"""Why a row learned less than the others, from its formula; printed beneath the table."""
