"""Rollout source of groups that form a tree: completions forked from completions at the ends of steps."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from pydantic import PositiveInt
from rlm_algorithms.tree_rollouts import Generate, grow_trees

from rlm_process.knobs import Steps
from rlm_process.step_boundaries import step_cutter


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
        """Return the completions of each group."""
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
