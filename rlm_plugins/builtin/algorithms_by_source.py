"""Rows that learn from more than the policy's own samples. (Offered by `algorithms`.)"""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm

remax = Algorithm(
    about="REINFORCE whose baseline is what the policy earns on the same prompt when it writes greedily: no critic.",
    source="ReMax, arXiv 2310.10505",
    pitfalls="`num_generations` counts the greedy row: 2 is one sample and its baseline. The greedy row trains "
    "nothing, but `reward` and the lengths in the log count it (see sources/policy/reward). With a KL in the reward "
    "verl sums it over what is to come, like this row; the authors' code takes each token's own, and discounts the "
    "last reward once per token.",
    names={"rollouts": "greedy response", "advantage": "r(x, a) − r(x, ā), the greedy response as baseline"},
    rollouts=({"name": "greedy", "num_completions": 1},),
    advantage="greedy_baseline",
    policy_loss="reinforce",
    aggregator="sequence_sum",
)

rlep = Algorithm(
    about="DAPO's loss on groups in which some rows are successes of an earlier run, drawn again at every step.",
    source="arXiv 2507.07451",
    pitfalls="Needs a pool: train once with `callbacks: [keep_successes]`, then give `replay` its `path`. M is "
    "`rows`, and `num_generations` counts them. Replayed rows are treated as if on policy: nobody stores the old "
    "probabilities, so the ratio corrects nothing, and rows far from the policy pull with their full advantage.",
    family="off-policy and supervised",
    names={"rollouts": "experience pool; rows is M, G′ = G + M"},
    rollouts=({"name": "replay", "num_completions": 2},),
    advantage="group_relative",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2, "epsilon_high": 0.28},
    aggregator="token_mean",
)

luffy = Algorithm(
    about="GRPO without a clip in groups with a demonstration; on that f(π) stands for the ratio nobody can know.",
    source="arXiv 2504.14945; recipe of its repository",
    pitfalls="`num_generations` counts the demonstration: 8 is the paper's 7 + 1. It is rewarded like every row: look "
    "at sources/demonstrations/reward, which is 1 if your reward can read it. The code sums over the batch and "
    "divides by the padded width only; here the sum is a mean over rows, so its learning rate means another step. Its "
    "function `compute_grpo_outcome_advantage_split` takes mean and std of the policy's rows alone; paper and recipe, "
    "of all.",
    family="off-policy and supervised",
    names={"rollouts": "off-policy guidance", "policy_shaping": "policy shaping, f(x) = x / (x + γ)"},
    rollouts=({"name": "demonstrations", "num_completions": 1},),
    advantage={"name": "group_relative", "scale": "none"},
    importance="token",
    policy_loss={"name": "unclipped", "source": "policy"},
    penalties=(
        {"name": "policy_shaping", "gamma": 0.1, "beta": 1.0, "source": "demonstrations"},
        {"name": "entropy", "beta": 0.001},
    ),
    aggregator="fixed_length",
)

srft = Algorithm(
    about="Supervised and reinforcement learning in one loss: demonstrations are imitated and compared, samples "
    "judged.",
    source="arXiv 2506.19767 (a survey dates it 2022)",
    pitfalls="Entropy decides how much each term counts, row by row. Samples are not compared with each other: praise "
    "is 0.1 · e^H, blame always 1. One token mean spans all rows here; the code of Unify-Post-Training takes the mean "
    "of the supervised term over demonstrated tokens alone, so there it weighs more, the longer the samples.",
    family="off-policy and supervised",
    names={
        "policy_loss": "self-rollout term",
        "nll": "L_SFT, w_SFT = 0.5 · e^−H",
        "policy_shaping": "L_RL on demonstrations, π_β = 1",
    },
    rollouts=({"name": "demonstrations", "num_completions": 1},),
    advantage="group_relative",
    policy_loss={"name": "correctness", "positive_weight": 0.1, "source": "policy"},
    penalties=(
        {"name": "nll", "weighted_by": "certainty", "beta": 0.5, "source": "demonstrations"},
        {"name": "policy_shaping", "gamma": None, "beta": 1.0, "source": "demonstrations"},
    ),
    aggregator="token_mean",
)

hpt = Algorithm(
    about="Per prompt either Dr. GRPO on the samples or, where none of them is right, imitation of the demonstration.",
    source="arXiv 2509.04419",
    pitfalls="`num_generations` counts the demonstration: 9 is the paper's 8 + 1. The supervised coefficient is 1 "
    "(0.3 for 1.5B), the gate 0 (7B). All terms share 1/Z: a demonstrated token weighs as much as a sampled one, "
    "where the paper takes the mean over the demonstration's tokens. In a hopeless batch only demonstrations train.",
    family="off-policy and supervised",
    names={"filters": "performance feedback; at_most is the gate γ", "penalties": "L_SFT with coefficient β"},
    rollouts=({"name": "demonstrations", "num_completions": 1},),
    filters=({"name": "gate", "at_most": 0},),
    advantage={"name": "group_relative", "scale": "none"},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2, "source": "policy"},
    penalties=({"name": "nll", "beta": 1.0, "source": "demonstrations"},),
    aggregator="fixed_length",
)
