"""Rollout source whose groups are trees, forked at the steps that later steps attend to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt

from rlm_plugins.builtin.tree_rollouts import Generate
from rlm_process.attention_influence import influences
from rlm_process.fork_points import ForkPoint, grow_at_points
from rlm_process.knobs import Steps
from rlm_process.step_boundaries import step_cutter
from rlm_process.token_texts import match_ends, token_texts


class AttentionTree:
    """The group as trees that are forked at the steps to which later steps attend most (AttnRL).

    The first `trunks` completions are generated from the prompt. Then, in rounds, each tree is forked before its
    `forks` steps with the largest influence, until the group is full. FCIₖ = maxₗₕ Σⱼ aˡʰⱼₖ over the steps j ≥ k + Δ:
    aˡʰⱼₖ is the mean attention of the tokens of step j to those of step k in head h of layer l. AttnRL, arXiv
    2509.26628, with Δ called `gap`, 4 in its code.

    Points are the steps within the top `share` of a completion, at least `distance` tokens apart and from its
    start. The code has 512, for completions of thousands of tokens. The first step is no point. The code takes the
    points in the order of the text, here those with the largest influence come first. `steps` defines a step. The pass
    that computes attention keeps all weights of a layer, (heads, T, T): long completions need memory. With `until`
    steps after a match of this regular expression are no points.

    Every token is trained on in every completion that keeps it; the advantage `tree` weights for that. A completion
    of one step has no point; a tree without points is forked at its beginning.
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

        def find(new: Sequence[int], rows: Sequence[Sequence[int]], starts: Sequence[int]) -> list[list[ForkPoint]]:
            points = []
            for i, row, start in zip(new, rows, starts, strict=True):
                ends = cut(row)
                scores = influences(policy, prompt_ids[i], row, ends, gap=self.gap)
                points.append(self._points(row, start, ends, scores, tokenizer))
            return points

        rows = grow_at_points(generate, prompts, source_index, trunks=self.trunks, forks=self.forks, find=find)
        return {"completion_ids": rows}

    def _points(
        self, row: Sequence[int], start: int, ends: Sequence[int], scores: Sequence[float], tokenizer: Any
    ) -> list[ForkPoint]:
        """Return points before the steps of the largest influence, at a distance from each other."""
        last = len(row)
        if self.until is not None:
            last = min([last, *match_ends(self.until, token_texts(row, tokenizer))])
        number = max(1, round(self.share * len(scores)))
        ranked = sorted(range(1, len(scores)), key=lambda k: (-scores[k], k))[:number]
        kept: list[ForkPoint] = []
        for k in ranked:
            position = ends[k - 1]
            apart = all(abs(position - point.kept) >= self.distance for point in kept)
            if apart and max(start, self.distance) <= position < last and position > start - (start == 0):
                kept.append(ForkPoint(scores[k], position))
        return kept
