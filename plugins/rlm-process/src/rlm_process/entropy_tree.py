"""Rollout source whose groups are trees, forked where the policy was uncertain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import PositiveInt
from rlm_algorithms.tree_rollouts import Generate

from rlm_process.fork_points import ForkPoint, grow_at_points
from rlm_process.token_texts import match_ends, token_texts


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
        """Return the completions of each group."""
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
