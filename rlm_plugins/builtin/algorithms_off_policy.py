"""Supervised and off-policy algorithms: demonstrations, preference pairs, replay; registered by `algorithms`."""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm

OFF_POLICY = "off-policy and supervised"

sft = Algorithm(
    about="Supervised fine-tuning on the column `demonstration`: −log π of every demonstrated token.",
    source="TRL's SFTTrainer",
    trainer="sft",
    family=OFF_POLICY,
)

dft = Algorithm(
    about="SFT with each token weighted by its probability under the policy, −sg(π) log π.",
    source="arXiv 2508.05629; TRL's SFTTrainer with loss_type dft",
    pitfalls="The weight carries no gradient. Tokens that are improbable under the policy have almost none, so it "
    "refines existing abilities and does not learn a new format. Its learning rate is larger than SFT's (5e-5 in the "
    "paper).",
    trainer="dft",
    family=OFF_POLICY,
)

reward_model = Algorithm(
    about="A reward model, trained on pairs of a preferred and a rejected completion (`chosen`, `rejected`).",
    source="Christiano et al., arXiv 1706.03741 eq. 1; for language models 1909.08593; TRL's RewardTrainer",
    pitfalls="Only differences are learned: the zero of the score is arbitrary. It is valid near its pairs; a policy "
    "that maximizes it leaves them (see the reward `reward_model`). Pairs in which the longer completion wins lead to "
    "a length bias.",
    trainer="reward_model",
    family=OFF_POLICY,
)

rlep = Algorithm(
    about="DAPO's loss on groups that include successes of an earlier run, sampled at every step (experience replay).",
    source="arXiv 2507.07451",
    pitfalls="Requires a pool: train once with `callbacks: [keep_successes]`, then give `replay` its `path`. M is "
    "`num_completions`, and `num_generations` includes them. Replayed completions are treated as on policy: their old "
    "log-probs are not stored, so the ratio corrects nothing, and stale ones count with their full advantage.",
    family=OFF_POLICY,
    names={"rollouts": "experience pool; num_completions is M, G′ = G + M"},
    rollouts=({"name": "replay", "num_completions": 2},),
    advantage="group_relative",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2, "epsilon_high": 0.28},
    aggregator="token_mean",
)

luffy = Algorithm(
    about="GRPO without a clip on groups with a demonstration, for which f(π) replaces the unknown ratio.",
    source="arXiv 2504.14945; recipe of its repository",
    pitfalls="`num_generations` counts the demonstration: 8 is the paper's 7 + 1. It gets a reward like every "
    "completion: look at sources/demonstrations/reward, which is 1 if your reward can parse it. The code sums over the "
    "batch and divides by the padded width only; here the sum is a mean over completions, so its learning rate is not "
    "comparable. Its function `compute_grpo_outcome_advantage_split` takes mean and std of the policy's completions "
    "only; paper and recipe, of all.",
    family=OFF_POLICY,
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
    about="Supervised and reinforcement learning in one loss: imitation and policy gradient on demonstrations, "
    "weighted likelihood on samples.",
    source="arXiv 2506.19767 (a survey dates it 2022)",
    pitfalls="Entropy sets the weight of each term, per completion. Samples are not compared with each other: right "
    "ones weigh 0.1 · e^H, wrong ones always 1. One token mean spans all completions here; the code of "
    "Unify-Post-Training takes the mean of the supervised term over demonstrated tokens only, where its weight grows "
    "with the length of the samples.",
    family=OFF_POLICY,
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
    about="Per prompt either Dr. GRPO on the samples or, if none of them is right, imitation of the demonstration.",
    source="arXiv 2509.04419",
    pitfalls="`num_generations` counts the demonstration: 9 is the paper's 8 + 1. The supervised coefficient is 1 "
    "(0.3 for 1.5B), the gate 0 (7B). All terms share 1/Z: a demonstrated token weighs as much as a sampled one, while "
    "the paper takes the mean over the demonstration's tokens. If all samples of a batch fail, only demonstrations are "
    "trained on.",
    family=OFF_POLICY,
    names={"filters": "performance feedback; at_most is the gate γ", "penalties": "L_SFT with coefficient β"},
    rollouts=({"name": "demonstrations", "num_completions": 1},),
    filters=({"name": "gate", "at_most": 0},),
    advantage={"name": "group_relative", "scale": "none"},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2, "source": "policy"},
    penalties=({"name": "nll", "beta": 1.0, "source": "demonstrations"},),
    aggregator="fixed_length",
)
