"""Algorithms whose Â is that of a step, a node or a turn, as data."""

from __future__ import annotations

from rlm_plugins.specs import Algorithm

vine_ppo = Algorithm(
    about="PPO without a critic: the value of every state between two steps is the mean return of its continuations.",
    source="VinePPO, arXiv 2410.01679; settings of its repository",
    pitfalls="Each generation batch requires states · K continuations: see `advantage/continuations`; to reduce it, "
    "set `advantage: {first: …}` or larger steps. `trainer: {num_generations: 1}` is sufficient, since nothing is "
    "compared within groups; completions of one group share the value of their prompt. Continuations are sampled like "
    "completions, `temperature` included, and scored by the rewards without the shapers. Whitening shifts steps "
    "without effect by minus the mean: `advantage: {whiten: false}` is the formula alone. The paper's learning rate "
    "is 1e-6, with two passes over each generation.",
    names={"advantage": "Â_MC, K auxiliary rollouts per state", "penalties": "KL to the reference, 1e-4"},
    advantage={"name": "vine", "continuations": 9, "whiten": True},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    penalties=({"name": "kl", "beta": 1e-4},),
    aggregator="token_mean",
)

tree = Algorithm(
    about="A group that forms a tree: each node's value is the mean of its leaves, relative to parent and root.",
    source="TreeRL, arXiv 2506.11902 (its value of a node); AttnRL, 2509.26628, has the same",
    pitfalls="Node values are means of few leaves: larger groups, not larger steps, make them accurate. Both papers "
    "choose where to fork, by entropy (`tree_rl`) or attention (`attn_rl`); here the end of a step is drawn at random "
    "(`rollouts: [{name: tree, steps: …}]`). A shared token is in the batch once per completion that keeps it, and "
    "weighted by 1/√n for that. Completions of one tree are not independent: the logged mean reward has a larger "
    "error than that of as many independent ones. The clip and the mean over tokens are our choice; AttnRL's code "
    "computes a leave-one-out mean and does not use it.",
    names={"rollouts": "EPTree", "advantage": "GA + LA, over √|L(s)|"},
    rollouts=({"name": "tree"},),
    advantage="tree",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="token_mean",
)

tree_rl = Algorithm(
    about="A group that forms trees, forked at the tokens of highest surprisal.",
    source="TreeRL, arXiv 2506.11902 §3",
    pitfalls="Uncertain tokens of one completion are often neighbors, and forks of neighbors are alike. The most "
    "uncertain token may be the first of a wrong step or of a synonym. Tokens after the answer should not be forked: "
    "`rollouts: [{name: entropy_tree, until: '(?i)answer'}]`. A group has M (1 + N L T) completions in the paper; "
    "here the rounds end when the group is full. Its code subtracts the mean of the other leaves from each reward, "
    "which is the root's value up to n / (n − 1). The clip and the mean over tokens are our choice.",
    names={"rollouts": "EPTree with (M, N, L, T)", "advantage": "GA + LA, over √|L(s)|"},
    rollouts=({"name": "entropy_tree"},),
    advantage="tree",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="token_mean",
)

attn_rl = Algorithm(
    about="A group that forms trees, forked at the steps to which later steps attend most; mixed groups only.",
    source="AttnRL, arXiv 2509.26628; settings of its repository",
    pitfalls="It requires a model whose attention weights can be computed, and memory for them: (heads, T, T) per "
    "layer. `distance` is 512 in its code, too much for short completions. Its filter of easy prompts by attention and "
    "its one-step off-policy pipeline are not included: see `trainer: {stale: 1}`. Its code computes a leave-one-out "
    "mean and does not use it.",
    names={"rollouts": "FCI, attention-based tree branching", "advantage": "GA + LA, over √|L(s)|"},
    rollouts=({"name": "attention_tree"},),
    filters=({"name": "nonzero_std"},),
    advantage="tree",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="token_mean",
)

arpo = Algorithm(
    about="GRPO on episodes that branch after tool calls, where the next turn begins with high entropy.",
    source="ARPO, arXiv 2507.19849 §3",
    pitfalls="It requires a multi-turn environment whose episodes depend on example and actions alone, since a branch "
    "replays turns. A policy that is equally certain everywhere never branches beyond α. Shared turns are in the batch "
    "once per episode: its soft advantage estimation, which this is, lets the ratio average over them; the advantage "
    "`tree` weights them by 1/√n.",
    names={"rollouts": "entropy-based adaptive rollout with α, β, τ, Z", "advantage": "soft advantage estimation"},
    rollouts=({"name": "turn_branches"},),
    advantage="group_relative",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="sequence_mean",
)

gigpo = Algorithm(
    about="GRPO with a second group inside the first: all turns after the same observation.",
    source="GiGPO, arXiv 2505.10978 eq. 3–8; settings of its repository",
    pitfalls="It requires a multi-turn environment; with one turn it is twice the first term. Two observations are the "
    "same if their tokens are: an environment that numbers its turns never repeats one. γ is per turn. Its code "
    "averages the first term over all turns of the group, so that long episodes weigh more; here every completion "
    "counts once. With `advantage: {scale: group}` both terms are divided by their std, its other mode.",
    names={"advantage": "A^E + ω A^S, anchor state groups"},
    advantage={"name": "turn_relative", "alike": "observation", "gamma": 0.95, "episode": 1.0, "scale": "none"},
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator="token_mean",
)
