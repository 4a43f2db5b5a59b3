"""Rows whose Â is that of a step, a node or a turn: data, no code. (Offered by the package.)"""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm

vine_ppo = Algorithm(
    about="PPO without a critic: the value of every state between two steps is the mean of answers written on from it.",
    source="VinePPO, arXiv 2410.01679; settings of its repository",
    pitfalls="Every generation is written once more, states · K times: see `advantage/continuations`, and say "
    "`advantage: {first: …}` or larger steps where that is too much. `trainer: {num_generations: 1}` is enough, "
    "nothing is compared; rows of one group share the value of their prompt. A continuation is drawn like a row, "
    "`temperature` included, and judged by the rewards without the shapers. Whitening gives the steps that changed "
    "nothing the mean's share with the sign turned: `advantage: {whiten: false}` is the formula alone. The paper's "
    "learning rate is 1e-6, with two passes over each generation.",
    names={"advantage": "Â_MC, K auxiliary rollouts per state", "penalties": "KL to the reference, 1e-4"},
    advantage={"name": "vine", "continuations": 9, "whiten": True},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    penalties=({"name": "kl", "beta": 1e-4},),
    aggregator="token_mean",
)

tree = Algorithm(
    about="A group written as a tree: each node is worth the mean of what lies below it, seen from parent and root.",
    source="TreeRL, arXiv 2506.11902 (its value of a node); AttnRL, 2509.26628, has the same",
    pitfalls="The values of shallow nodes are means of few leaves, of a leaf itself one: larger groups, not larger "
    "steps, make them good. Both papers choose where to fork, by entropy or attention; here an end of a step is drawn "
    "by chance (`rollouts: [{name: tree, steps: …}]`). A shared token is in the batch once per row that keeps it, and "
    "weighed by 1/√n for that. Rows of one tree are no independent samples: the mean reward in the log has a larger "
    "error than that of as many rows alone. The clip and the mean over tokens are ours; AttnRL's leave-one-out mean is "
    "computed in its code and not used.",
    names={"rollouts": "EPTree", "advantage": "GA + LA, over √|L(s)|"},
    rollouts=({"name": "tree"},),
    advantage="tree",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="token_mean",
)

gigpo = Algorithm(
    about="GRPO with a second group inside the first: all turns that answer the same observation.",
    source="GiGPO, arXiv 2505.10978 eq. 3–8; settings of its repository",
    pitfalls="Needs a world that speaks in turns; with one turn it is twice the first term. Two observations are the "
    "same when their tokens are: a world that counts its turns aloud never says the same twice. γ is per turn. Its "
    "code takes the mean of the first term over all turns of the group, so that long rows weigh more; here every row "
    "counts once. With `advantage: {scale: group}` both terms are divided by their std, its other mode.",
    names={"advantage": "A^E + ω A^S, anchor state groups"},
    advantage={"name": "turn_relative", "alike": "observation", "gamma": 0.95, "episode": 1.0, "scale": "none"},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="token_mean",
)
