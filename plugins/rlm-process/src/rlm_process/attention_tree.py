"""Rollout source whose groups are trees, forked at the steps that later steps attend to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Annotated, Any

from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveInt
from rlm_algorithms.tree_rollouts import Generate

from rlm_plugins.lazy import torch
from rlm_process.fork_points import ForkPoint, grow_at_points
from rlm_process.knobs import Steps
from rlm_process.step_boundaries import step_cutter
from rlm_process.token_texts import match_ends, token_texts


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
        """Return the completions of each group."""
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
