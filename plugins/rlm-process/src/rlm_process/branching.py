"""Who writes a group as a tree: rows forked from rows where a step ends. (The advantage `tree` reads it.)"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from pydantic import PositiveInt

from rlm_plugins.builtin.tree_rollouts import Generate, grow_trees
from rlm_process.knobs import Steps
from rlm_process.steps import cutter


class Tree:
    """The group as a tree: its first rows from nothing, the others forked from those that are there, at ends of steps.

    The first `trunks` rows are written by the policy from the start. Then, in rounds, each row that is there is forked
    `forks` times, until the group is full: with 1 and 1 a group of 8 grows 1, 2, 4, 8. A fork keeps a row up to the end
    of one of the steps that the row wrote itself, drawn by chance (a function of seed, step and prompt), never the
    whole row; a row without such an end is forked where it began itself. EPTree, arXiv 2506.11902, forks where the
    policy was least certain, AttnRL, 2509.26628, where the attention says so; `steps` says what a step is.

    Every token is trained on in every row that keeps it: the advantage `tree` weighs that.
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
        cut = cutter(self.steps, tokenizer, where="rollouts: tree.steps")
        forked = [0] * len(prompts)  # how often each row was: no two forks of one row draw the same number

        def choose(row: int, tokens: Sequence[int], start: int) -> int:
            forked[row] += 1
            places = [end for end in cut(tokens)[:-1] if end > start]
            dice = random.Random(f"{seed} {step} {prompts[row]} {source_index[row]} {forked[row]}")
            return dice.choice(places) if places else start

        rows, _ = grow_trees(generate, prompts, source_index, trunks=self.trunks, forks=self.forks, fork_point=choose)
        return {"completion_ids": rows}
