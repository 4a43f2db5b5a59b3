"""Rollout sources whose groups are trees: completions forked at ends of steps, by entropy, or by attention."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveInt
from rlm_algorithms.tree_rollouts import Generate, fork, grow_trees

from rlm_plugins.lazy import torch
from rlm_process.step_boundaries import Steps, match_ends, step_cutter, token_texts


class ForkPoint(NamedTuple):
    """A position at which a completion may be forked.

    Args:
        score: Points with the highest scores are forked first.
        kept: Tokens of the completion that the fork keeps.
    """

    score: float
    kept: int


FindPoints = Callable[[Sequence[int], Sequence[Sequence[int]], Sequence[int]], list[list[ForkPoint]]]
"""Indices of new completions, their token ids, the lengths of the prefixes they share → the points of each."""


@dataclass
class _Tree:
    """The completions that are forked from one trunk.

    Args:
        trunk: Index of the completion that is generated from the prompt.
        points: Index of a completion → its points that are not forked yet, best first.
    """

    trunk: int
    points: dict[int, list[ForkPoint]] = field(default_factory=dict)

    def take(self, number: int, branches: int) -> list[tuple[int, int]]:
        """Remove the best points; return index and kept tokens of `number` forks, `branches` at each point.

        If there are too few points, forks start at the beginning of the trunk.
        """
        candidates = [(-point.score, index, point.kept, point) for index in self.points for point in self.points[index]]
        best = sorted(candidates)[: -(-number // branches)]
        for _, index, _, point in best:
            self.points[index].remove(point)
        forks = [(index, kept) for _, index, kept, _ in best for _ in range(branches)]
        return [*forks, *[(self.trunk, 0)] * (number - len(forks))][:number]


def grow_at_points(
    generate: Generate,
    prompts: Sequence[Any],
    source_index: Sequence[int],
    *,
    trunks: int,
    forks: int,
    find: FindPoints,
    branches: int = 1,
) -> list[list[int]]:
    """Generate complete groups as trees: each is forked at its `forks` best points per round, until the group is full.

    Args:
        generate: The function of that name that a rollout source receives.
        prompts: One per completion.
        source_index: Per completion, its index in its group.
        trunks: Completions of a group that are generated from the prompt.
        forks: Forks of each tree per round.
        find: Returns the points of new completions; called once per round.
        branches: Forks at each point.

    Returns:
        Token ids of each completion.
    """
    group_size = max(source_index, default=-1) + 1
    group_starts = [index for index, number in enumerate(source_index) if number == 0]
    trees = {start: [_Tree(start + n) for n in range(min(trunks, group_size))] for start in group_starts}
    new = [tree.trunk for group in trees.values() for tree in group]
    completions = dict(zip(new, generate([prompts[i] for i in new]), strict=True))
    tree_of, prefix_lengths = {tree.trunk: tree for group in trees.values() for tree in group}, dict.fromkeys(new, 0)
    num_generated = min(trunks, group_size)
    while num_generated < group_size:
        points_of_new = find(new, [completions[i] for i in new], [prefix_lengths[i] for i in new])
        for index, points in zip(new, points_of_new, strict=True):
            tree_of[index].points[index] = points
        new, parents = [], list[list[int]]()
        for start, group in trees.items():
            group_forks = [(tree, *position) for tree in group for position in tree.take(forks, branches)]
            for number, (tree, parent, kept) in enumerate(group_forks[: group_size - num_generated]):
                index = start + num_generated + number
                tree_of[index], prefix_lengths[index] = tree, kept
                new.append(index)
                parents.append(completions[parent])
        forked = fork(generate, [prompts[i] for i in new], parents, [prefix_lengths[i] for i in new])
        completions |= dict(zip(new, forked, strict=True))
        num_generated += len(new) // max(len(trees), 1)
    return [completions[i] for i in range(len(prompts))]


class Tree:
    """The group as a tree: its first completions from the prompt, the others forked at ends of steps.

    The first `trunks` completions are generated from the prompt. Then, in rounds, each existing completion is forked
    `forks` times until the group is full: with 1 and 1 a group of 8 grows 1, 2, 4, 8. A fork keeps a completion up to
    the end of one of the steps generated in it, never all of it. The end is drawn at random, as a function of seed,
    step and prompt. A completion without such an end is forked where its own tokens begin. EPTree, arXiv 2506.11902,
    forks where the entropy is highest; AttnRL, 2509.26628, by attention. `steps` defines a step.

    A shared token is trained on in every completion that contains it; the advantage `tree` weights it accordingly.
    """

    whole_groups = True

    def __init__(self, *, steps: Steps = "lines", trunks: PositiveInt = 1, forks: PositiveInt = 1) -> None:
        self.steps, self.trunks, self.forks = steps, trunks, forks

    def __call__(
        self,
        prompts: Sequence[Any],
        source_index: Sequence[int],
        generate: Generate,
        tokenizer: Any,
        seed: int,
        step: int,
    ) -> dict[str, Any]:
        cut_steps = step_cutter(self.steps, tokenizer, where="rollouts: tree.steps")
        num_forks = [0] * len(prompts)  # per completion, so that each of its forks draws another number

        def choose(index: int, tokens: Sequence[int], start: int) -> int:
            num_forks[index] += 1
            ends = [end for end in cut_steps(tokens)[:-1] if end > start]
            rng = random.Random(f"{seed} {step} {prompts[index]} {source_index[index]} {num_forks[index]}")
            return rng.choice(ends) if ends else start

        completions, _ = grow_trees(
            generate, prompts, source_index, trunks=self.trunks, forks=self.forks, fork_point=choose
        )
        return {"completion_ids": completions}


class EntropyTree:
    """The group as trees that are forked at the tokens of which the policy was least certain (EPTree).

    The first `trunks` completions are generated from the prompt. Then, in rounds, each tree is forked before its
    `forks` tokens with the largest h, until the group is full: h = −log π(yₜ | x, y_<t), or with `by` "entropy" the
    entropy of the distribution. Only tokens that were generated in a completion count, without the first one. A point
    is forked in one round only, `branches` times. TreeRL, arXiv 2506.11902 §3.1, whose M is `trunks`, T is `branches`,
    and N · T is `forks`; its text has the entropy. Its code computes −log π, and may fork a point again. ETTRL's
    rollout, 2508.11356, has one round by entropy, with M, B and N · B in these places.

    `until` is a regular expression: tokens after its first match are never forked. The authors' code has
    "(?i)conclusion|answer". A shared token is trained on in every completion that contains it; the advantage `tree`
    weights it accordingly. For equal h, the earlier completion comes first, then the earlier token. A completion of one
    token has no fork point; a tree without fork points is forked at its beginning.
    """

    whole_groups = True

    def __init__(
        self,
        *,
        trunks: PositiveInt = 1,
        forks: PositiveInt = 2,
        branches: PositiveInt = 1,
        by: Literal["surprisal", "entropy"] = "surprisal",
        until: str | None = None,
    ) -> None:
        self.trunks, self.forks, self.branches, self.by = trunks, forks, branches, by
        self.until = None if until is None else re.compile(until)

    def __call__(
        self, prompts: Sequence[Any], source_index: Sequence[int], generate: Generate, tokenizer: Any, trainer: Any
    ) -> dict[str, Any]:
        prompt_ids = trainer.prompt_ids(prompts)

        def find(
            new: Sequence[int], completion_ids: Sequence[Sequence[int]], starts: Sequence[int]
        ) -> list[list[ForkPoint]]:
            logp, entropy = trainer.token_statistics([prompt_ids[i] for i in new], completion_ids)
            token_scores = (entropy if self.by == "entropy" else -logp).tolist()
            return [
                self._points(ids, start, scores, tokenizer)
                for ids, start, scores in zip(completion_ids, starts, token_scores, strict=True)
            ]

        shape = {"trunks": self.trunks, "forks": self.forks, "branches": self.branches}
        return {"completion_ids": grow_at_points(generate, prompts, source_index, **shape, find=find)}

    def _points(self, ids: Sequence[int], start: int, scores: Sequence[float], tokenizer: Any) -> list[ForkPoint]:
        """Return a fork point before each token after the shared prefix, except the first token of the completion."""
        end = len(ids)
        if self.until is not None:
            end = min([end, *match_ends(self.until, token_texts(ids, tokenizer))])
        return [ForkPoint(scores[t], t) for t in range(max(start, 1), end)]


def forward_influence(
    attention: Float[torch.Tensor, "H S S"], spans: Sequence[tuple[int, int]], *, gap: int = 4
) -> Float[torch.Tensor, "H K"]:
    """Compute the forward context influence of each step in each head of a layer.

    FCIₖ = Σⱼ mean of attention[q, t] over q in step j and t in step k, over the steps j ≥ k + gap. arXiv 2509.26628.

    Args:
        attention: Attention from each position (second axis) to each earlier one (third axis).
        spans: Start and end of each step in the sequence, none empty.
        gap: Distance of the nearest step that counts.

    Returns:
        Per head and step; 0 for steps that no later one is far enough from.

    >>> forward_influence(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]), [(0, 1), (1, 2)], gap=1).tolist()
    [[0.25, 0.0]]
    """
    weights = attention.new_zeros(len(spans), attention.shape[-1])
    for step, (start, end) in enumerate(spans):
        weights[step, start:end] = 1.0 / (end - start)
    between = torch.einsum("jq,hqt,kt->hjk", weights, attention, weights)
    return torch.tril(between, diagonal=-gap).sum(1)


def influences(
    policy: Any, prompt_ids: Sequence[int], completion_ids: Sequence[int], ends: Sequence[int], *, gap: int
) -> list[float]:
    """Return the influence of each step of a completion: the largest over all layers and heads.

    Args:
        policy: The model; its attention weights are computed by the plain implementation.
        prompt_ids: Token ids; the prompt is no step.
        completion_ids: Token ids.
        ends: Number of tokens after which each step ends.
        gap: See :func:`forward_influence`.
    """
    offset, device = len(prompt_ids), next(policy.parameters()).device
    spans = [(offset + start, offset + end) for start, end in pairwise((0, *ends))]
    if len(spans) <= gap:
        return [0.0] * len(spans)
    ids = torch.tensor([[*prompt_ids, *completion_ids]], device=device)
    with plain_attention(policy), torch.no_grad():
        layers = policy(input_ids=ids, output_attentions=True, use_cache=False).attentions
    largest = torch.stack([forward_influence(layer[0].float(), spans, gap=gap).amax(0) for layer in layers])
    result: list[float] = largest.amax(0).tolist()
    return result


@contextmanager
def plain_attention(policy: Any) -> Iterator[None]:
    """Use the implementation of attention that returns its weights, in evaluation mode, inside a ``with`` block."""
    base = policy.get_base_model() if hasattr(policy, "get_base_model") else policy
    before, training = base.config._attn_implementation, policy.training
    base.set_attn_implementation("eager")
    policy.eval()
    try:
        yield
    finally:
        base.set_attn_implementation(before)
        policy.train(training)


class AttentionTree:
    """The group as trees that are forked at the steps to which later steps attend most (AttnRL).

    The first `trunks` completions are generated from the prompt. Then, in rounds, each tree is forked before its
    `forks` steps with the largest influence, until the group is full. FCIₖ = maxₗₕ Σⱼ aˡʰⱼₖ over the steps j ≥ k + Δ:
    aˡʰⱼₖ is the mean attention of the tokens of step j to those of step k in head h of layer l. AttnRL, arXiv
    2509.26628, with Δ called `gap`, 4 in its code.

    Fork points are the starts of steps in the top `share` of a completion by influence. They are at least `distance`
    tokens apart and from its start; the code has 512, for completions of thousands of tokens. The first step is no fork
    point. The code takes the points in the order of the text, here those with the largest influence come first. `steps`
    defines a step. The forward pass keeps all attention weights of a layer, (heads, T, T): long completions need
    memory. With `until`, steps after a match of this regular expression are not forked.

    A shared token is trained on in every completion that contains it; the advantage `tree` weights it accordingly. A
    completion of one step has no fork point; a tree without fork points is forked at its beginning.
    """

    whole_groups = True

    def __init__(
        self,
        *,
        steps: Steps = "lines",
        trunks: PositiveInt = 1,
        forks: PositiveInt = 2,
        share: Annotated[float, Field(gt=0, le=1)] = 0.2,
        gap: PositiveInt = 4,
        distance: NonNegativeInt = 0,
        until: str | None = None,
    ) -> None:
        self.steps, self.trunks, self.forks = steps, trunks, forks
        self.share, self.gap, self.distance = share, gap, distance
        self.until = None if until is None else re.compile(until)

    def __call__(
        self, prompts: Sequence[Any], source_index: Sequence[int], generate: Generate, tokenizer: Any, trainer: Any
    ) -> dict[str, Any]:
        prompt_ids = trainer.prompt_ids(prompts)
        cut = step_cutter(self.steps, tokenizer, where="rollouts: attention_tree.steps")
        policy = trainer.accelerator.unwrap_model(trainer.model)

        def find(
            new: Sequence[int], completion_ids: Sequence[Sequence[int]], starts: Sequence[int]
        ) -> list[list[ForkPoint]]:
            points = []
            for i, ids, start in zip(new, completion_ids, starts, strict=True):
                ends = cut(ids)
                scores = influences(policy, prompt_ids[i], ids, ends, gap=self.gap)
                points.append(self._points(ids, start, ends, scores, tokenizer))
            return points

        completion_ids = grow_at_points(
            generate, prompts, source_index, trunks=self.trunks, forks=self.forks, find=find
        )
        return {"completion_ids": completion_ids}

    def _points(
        self, ids: Sequence[int], start: int, ends: Sequence[int], scores: Sequence[float], tokenizer: Any
    ) -> list[ForkPoint]:
        """Return fork points before the steps of the largest influence, at least `distance` tokens apart."""
        limit = len(ids)
        if self.until is not None:
            limit = min([limit, *match_ends(self.until, token_texts(ids, tokenizer))])
        num_steps = max(1, round(self.share * len(scores)))
        ranked_steps = sorted(range(1, len(scores)), key=lambda k: (-scores[k], k))[:num_steps]
        points: list[ForkPoint] = []
        for k in ranked_steps:
            position = ends[k - 1]
            is_distant = all(abs(position - point.kept) >= self.distance for point in points)
            if is_distant and max(start, self.distance) <= position < limit and position > start - (start == 0):
                points.append(ForkPoint(scores[k], position))
        return points
