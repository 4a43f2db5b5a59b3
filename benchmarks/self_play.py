"""Tasks that the policy proposes, with a depth: ``python benchmarks/self_play.py``; `small_experiment.py` has the gate.

A task is a program of one to five functions in a row. A proposal is its depth, then its functions. The solver goes on
and applies a function at each step; to go on is a skill of its own at each depth. One program in four is held out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import torch
from rlm_selfplay import ProposeAndSolve
from rlm_selfplay.languages import JOBS, Language, Task
from small_experiment import Arm, Experiment, main, on_grid
from small_policy import NEVER, Measure, Policy, Tokens, World, algorithm, train

RESULTS = Path(__file__).parent / "results"
FUNCTIONS, DEEPEST, WAYS = 4, 5, 4
"""Functions, the largest depth, and ways to go on at each step, of which one is right."""
SKILLS = (0.9, 0.6, 0.2, 0.2, 0.2)
"""At the start, the chance of going on in the right way at each step."""
APPLIES = 0.95
"""At the start, the chance of the right function."""
GOES_ON = 0.1
"""At the start, the chance that a proposal goes on after each function; so nine in ten have depth 1."""
PROGRAMS = [program for depth in range(1, DEEPEST + 1) for program in product(range(FUNCTIONS), repeat=depth)]
DIGITS = "0123456789abcdef"
"""Token → text: a function, a way to go on (of a proposal 1, 0 for its end), or half of an input."""
END = len(DIGITS)
"""The token that ends a completion."""
HEAD = 2 * DEEPEST + 2
"""Rows of a proposal: a function, go on or not, a function, …, an input of two tokens, the end. Those of skills follow."""
SKILL, FUNCTION = HEAD, HEAD + DEEPEST
GO = range(1, 2 * DEEPEST - 2, 2)
"""Rows in which a proposal goes on or not."""
PROPOSE = 0
BUDGET, POINTS, RATE = 60_000, 30, 0.1
BONUS = 0.02
SETTINGS = {"capacity": 64, "wrong": 0.0, "unreadable": 0.0}


def is_held_out(program: Sequence[int]) -> bool:
    """Return True for a quarter of the programs of each depth."""
    return sum(program) % FUNCTIONS == FUNCTIONS - 1


def start_rows(goes_on: Sequence[float]) -> torch.Tensor:
    """Return the initial logits.

    Args:
        goes_on: The chance that a proposal goes on after each function but the last.
    """
    rows = torch.full((FUNCTION + FUNCTIONS, END + 1), NEVER, dtype=torch.float64)
    rows[: 2 * DEEPEST : 2, :FUNCTIONS] = 0.0
    chances = torch.tensor(goes_on, dtype=torch.float64)
    rows[GO, :2] = torch.stack([1 - chances, chances], 1).log()
    rows[HEAD - 3 : HEAD - 1, :END] = 0.0
    rows[HEAD - 1, END] = 0.0
    for place, chance, others in [
        *((SKILL + step, SKILLS[step], WAYS) for step in range(DEEPEST)),
        *((FUNCTION + n, APPLIES, FUNCTIONS) for n in range(FUNCTIONS)),
    ]:
        rows[place, :others] = torch.tensor((1 - chance) / (others - 1), dtype=torch.float64).log()
        rows[place, 0 if place < FUNCTION else place - FUNCTION] = torch.tensor(chance, dtype=torch.float64).log()
    return rows


def world(goes_on: Sequence[float]) -> World:
    """Return the task: prompt 0 proposes, prompt 1 + n solves program n."""
    rows = list(range(HEAD))
    following = [[min(state + 1, HEAD - 1)] * (END + 1) for state in range(HEAD)]
    for state in GO:
        following[state][0] = HEAD - 3
    first = [PROPOSE]
    for program in PROGRAMS:
        first.append(len(rows))
        for step, function in enumerate(program):
            following += [[len(rows) + 1] * (END + 1), [len(rows) + 2] * (END + 1)]
            rows += [SKILL + step, FUNCTION + function]
        following.append([len(rows)] * (END + 1))
        rows.append(HEAD - 1)
    return World(
        start_rows(goes_on), 2 * DEEPEST + 2, END, first, torch.tensor(following), lambda *_: 0.0, rows=torch.tensor(rows), asked=1
    )


class Programs(Language):
    """Language of the tasks: a program is its functions as digits, and so is the message of its prompt."""

    kinds = ("deduction",)

    def proposal_prompt(self, kind: str, reference: Task) -> str:
        """Return the same prompt for every reference."""
        return ""

    def read_proposal(self, kind: str, text: str, reference: Task) -> Task | None:
        """Return the task of a depth and its functions; None if it is held out."""
        program, value = text[:-2][::2], text[-2:]
        return None if is_held_out([int(digit) for digit in program]) else Task(kind, program, (value,))

    def complete(self, task: Task) -> Task:
        """Return the task with its only right solution."""
        return replace(task, outputs=("".join(f"0{digit}" for digit in task.program),))

    def task_prompt(self, task: Task) -> str:
        """Return the functions."""
        return task.program

    def read_answer(self, task: Task, text: str) -> str:
        """Return the completion."""
        return text

    def is_right(self, task: Task, answer: str) -> bool:
        """Return True for the right way and the right function at each step."""
        return answer == task.outputs[0]


NUMBER_OF = {"".join(map(str, program)): 1 + number for number, program in enumerate(PROGRAMS)}
FIRST = Programs().complete(Task("deduction", "0", ("00",)))
"""The initial task of the buffer, of depth 1."""


def number_of(messages: Sequence[dict[str, str]]) -> int:
    """Return the prompt of a message."""
    return NUMBER_OF.get(messages[0]["content"], PROPOSE)


class Digits:
    """Tokenizer of completions: a digit per token, nothing for the end."""

    def batch_decode(self, rows: Sequence[Tokens], skip_special_tokens: bool) -> list[str]:
        """Return the digits of each row."""
        return ["".join(DIGITS[token] for token in row if token != END) for row in rows]


class Source:
    """Rollout source `propose_and_solve` on the small policy.

    Args:
        before: Called with the policy before each batch.
        settings: Knobs of the source.
    """

    def __init__(self, before: Callable[[Policy], None] | None = None, **settings: Any) -> None:
        self.before, self.part = before, ProposeAndSolve(**settings)
        self.part.language = Programs()
        self.part.scoring = replace(self.part.scoring, language=self.part.language)

    def __call__(
        self, prompts: Sequence[int], source_index: Sequence[int], seed: int, step: int, trainer: Policy
    ) -> dict[str, Any]:
        """Return proposals, and solutions of tasks of the buffer."""
        if self.before:
            self.before(trainer)
        context = SimpleNamespace(context=SimpleNamespace(log=lambda name, x: None))
        runner = SimpleNamespace(components=context, prompt_ids=lambda asked: [[number_of(m)] for m in asked])
        groups = [sum(not number for number in source_index[: n + 1]) for n in range(len(prompts))]
        inputs = [{"job": JOBS[group % 2], "kind": "deduction", "task": FIRST.text()} for group in groups]
        asks = lambda messages: trainer.generate([number_of(m) for m in messages])
        columns = self.part(prompts, inputs, source_index, asks, Digits(), step, seed, runner)
        self.part.update(lambda name, x: None)
        return columns


def skills(logits: torch.Tensor) -> torch.Tensor:
    """Return the accuracy at each depth: the mean over its held-out programs."""
    table = logits.softmax(1)
    applies = table[FUNCTION + torch.arange(FUNCTIONS), torch.arange(FUNCTIONS)].tolist()
    goes, values = table[SKILL : SKILL + DEEPEST, 0].cumprod(0), []
    for depth in range(1, DEEPEST + 1):
        counts = [program for program in PROGRAMS if len(program) == depth and is_held_out(program)]
        values.append(fmean(torch.tensor([applies[f] for f in program]).prod().item() for program in counts[::max(1, len(counts) // 16)]))
    return goes * torch.tensor(values, dtype=torch.float64)


def mean_depth(logits: torch.Tensor) -> float:
    """Return the mean depth of a proposal."""
    return 1 + logits[GO, :2].softmax(1)[:, 1].cumprod(0).sum().item()


MEASURES: dict[str, Measure] = {
    "mean": lambda logits: skills(logits).mean().item(),
    "three": lambda logits: skills(logits)[2].item(),
    "deepest": lambda logits: skills(logits)[-1].item(),
    "depth": mean_depth,
}
SHALLOW = [GOES_ON] * (DEEPEST - 1)
EVEN = [left / (left + 1) for left in range(DEEPEST - 1, 0, -1)]


def experiment(scale: float = 1.0, budget: int = BUDGET) -> Experiment:
    """Compare proposers.

    Args:
        scale: Factor of the rate.
        budget: Generated tokens: of proposals, of attempts at them, and of solutions.
    """

    def run(goes_on: Sequence[float], before: Any, settings: dict[str, Any], seed: int, **slots: Any) -> dict[str, list[float]]:
        size = {"prompts": 4, "group_size": 8, "rate": RATE * scale, "budget": budget}
        source = Source(before, **{**SETTINGS, **settings})
        parts = algorithm("absolute_zero", rollouts=[], **slots)
        curves = train(world(goes_on), parts, MEASURES, seed=seed, source=source.__call__, **size)
        return on_grid(curves, budget, POINTS)

    frozen = {"train_proposer": False}
    arms = [
        Arm("proposer frozen", partial(run, SHALLOW, None, frozen)),
        Arm("proposer paid 1 − p̂ (Absolute Zero)", partial(run, SHALLOW, None, {})),
        Arm("the same, entropy bonus", partial(run, SHALLOW, None, {}, penalties=[{"name": "entropy", "beta": BONUS}])),
        Arm("all depths alike, frozen", partial(run, EVEN, None, frozen)),
        Arm("the first depth below 80 %, an oracle", partial(run, SHALLOW, frontier, frozen)),
    ]
    names = {"mean": "accuracy, all depths", "three": "depth 3", "deepest": "depth 5", "depth": "mean depth proposed"}
    return Experiment("Proposals with a depth", arms, names, "mean", 1, [], "mean", by_tokens=True)


def frontier(policy: Policy) -> None:
    """Let the policy propose the first depth that it solves in less than 80 % of cases."""
    below = (skills(policy.logits) < 0.8).nonzero().flatten().tolist()
    depth = below[0] if below else DEEPEST - 1
    policy.logits[GO, 0] = NEVER * (torch.arange(DEEPEST - 1) < depth).double()
    policy.logits[GO, 1] = NEVER * (torch.arange(DEEPEST - 1) >= depth).double()


EXPERIMENTS = {"self_play": experiment}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, RESULTS / "effects.md", keep=RESULTS / "effects"))
