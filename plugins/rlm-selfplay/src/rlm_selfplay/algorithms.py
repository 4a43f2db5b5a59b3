"""Self-play as data: SPIRAL, Absolute Zero, and R-Zero, of which SeRL and SQLM are settings (recipes/)."""

from __future__ import annotations

from rlm_plugins.specs import Algorithm

spiral = Algorithm(
    about="REINFORCE on both players of zero-sum games that the policy plays against itself, a baseline per role.",
    source="SPIRAL, arXiv 2506.24119 §3",
    pitfalls="It requires the environment `duel`, and the reward `role` with weight 0. A model that does not know the "
    "rules forfeits most games: imitate legal moves first (`duel` with `show: moves`). The payoff against itself stays "
    "near 0 while it improves: measure it against a fixed opponent. Draws and lost starts have a gradient, too. The "
    "paper discards games without a legal move and divides by the length of a turn's history; here a forfeit pays −1.",
    names={"advantage": "RAE, b_{G,p} with α", "rollouts": "self-play of a shared policy"},
    rollouts=("both_seats",),
    advantage={"name": "role_baseline", "decay": 0.95},
    policy_loss="reinforce",
    aggregator="sequence_mean",
)

absolute_zero = Algorithm(
    about="REINFORCE++ on tasks of code that the policy proposes and solves, standardized per task and role.",
    source="Absolute Zero, arXiv 2505.03335 §3; script of LeapLabTHU/Absolute-Zero-Reasoner",
    pitfalls="It requires the environment `proposed_tasks`, the reward `self_play`, and `role` with weight 0. Each "
    "valid proposal costs `attempts` more completions. A start that cannot write programs in the format proposes "
    "nothing valid: −1 for all, no gradient. The reward 1 − p̂ is largest for tasks that are nearly never solved, "
    "which may be noise; p̂ of 8 attempts is coarse. A step solves tasks of earlier steps, not its own. The paper's "
    "rewards for complexity and diversity are not included, as in its script. Its later code clips at 1.28.",
    names={"advantage": "TRR++, A^norm per task and role", "rollouts": "r_propose, r_solve, task buffer D"},
    rollouts=({"name": "propose_and_solve"},),
    advantage="role_whitened",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="token_mean",
)

r_zero = Algorithm(
    about="GRPO on questions that the policy proposes and answers; uncertain ones are rewarded, votes are the labels.",
    source="R-Zero, arXiv 2508.05004 §3; numbers of Chengsong-Huang/R-Zero",
    pitfalls="Challenger and solver are two models in the paper, trained in turn; here they are two roles of one, or "
    "with `proposer` two adapters that take their steps side by side. "
    "Nothing checks the label: where the majority is wrong, it is trained on. |p̂ − ½| ≤ 0.25 selects the questions. "
    "The repetition penalty compares trigrams, not BLEU. Its code differs from the paper. A question scores "
    "min(p̂, 1 − p̂) − |C| / B without a bound, and −1 − |C| / B if it cannot be read. Those with 0.3 ≤ p̂ ≤ 0.8 of 9 "
    "answers are kept. The clip is 0.2 / 0.3, 1/Z a token mean, and the KL penalty has β 0.01. The recipes "
    "`serl` and `sqlm` have the settings of two related papers.",
    names={"rollouts": "r_uncertainty, r_rep, δ", "advantage": "Â of GRPO"},
    rollouts=(
        {
            "name": "propose_and_solve",
            "language": "questions",
            "labels": "majority",
            "reward": "uncertainty",
            "attempts": 10,
            "keep": (0.25, 0.75),
            "repetition": 1.0,
            "wrong": 0.0,
            "unreadable": 0.0,
        },
    ),
    advantage="group_relative",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="sequence_mean",
)
