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
"""Rows of a proposal: a function, go on or not, a function, …, an input of two tokens, the end."""
SKILL, FUNCTION = HEAD, HEAD + DEEPEST
GO = range(1, 2 * DEEPEST - 2, 2)
"""Rows in which a proposal goes on or not."""
PROPOSE = 0
BUDGET, POINTS, RATE = 100_000, 30, 0.1
SETTINGS: dict[str, Any] = {"capacity": 64, "wrong": 0.0, "unreadable": 0.0}
"""Knobs of `propose_and_solve`: the latest proposals are solved; wrong solutions and held-out proposals are paid 0."""
BONUS = 0.1
"""Coefficient of the entropy bonus."""
Change = Callable[[torch.Tensor], None]
"""Logits that sample → None: sets the depth of the proposals."""


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
        start_rows(goes_on),
        2 * DEEPEST + 2,
        END,
        first,
        torch.tensor(following),
        lambda *_: 0.0,
        rows=torch.tensor(rows),
        asked=1,
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


HELD_OUT = [
    torch.tensor([program for program in PROGRAMS if len(program) == depth and is_held_out(program)])
    for depth in range(1, DEEPEST + 1)
]
"""For each depth, its held-out programs."""
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
        change: Called before each batch.
        settings: Knobs of the source.
    """

    def __init__(self, change: Change, **settings: Any) -> None:
        self.change, self.part = change, ProposeAndSolve(**settings)
        self.part.language = Programs()
        self.part.scoring = replace(self.part.scoring, language=self.part.language)

    def __call__(
        self, prompts: Sequence[int], source_index: Sequence[int], seed: int, step: int, trainer: Policy
    ) -> dict[str, Any]:
        """Return proposals, and solutions of tasks of the buffer."""
        self.change(trainer.logits)
        context = SimpleNamespace(context=SimpleNamespace(log=lambda name, x: None))
        runner = SimpleNamespace(
            components=context, prompt_ids=lambda asked: [[number_of(message)] for message in asked]
        )
        groups = [sum(not number for number in source_index[: n + 1]) for n in range(len(prompts))]
        example = {"kind": "deduction", "task": FIRST.text()}
        inputs = [{**example, "job": JOBS[group % 2], "number": group} for group in groups]  # each draws its own task

        def generate(messages: Sequence[Any]) -> list[Tokens]:
            return trainer.generate([number_of(message) for message in messages])

        columns = self.part(prompts, inputs, source_index, generate, Digits(), step, seed, runner)
        self.part.update(lambda name, x: None)
        return columns


def skills(logits: torch.Tensor) -> torch.Tensor:
    """Return the accuracy at each depth: the mean over its held-out programs."""
    table = logits.softmax(1)
    applies = table[FUNCTION + torch.arange(FUNCTIONS), torch.arange(FUNCTIONS)]
    held_out = torch.stack([applies[programs].prod(1).mean() for programs in HELD_OUT])
    return table[SKILL : SKILL + DEEPEST, 0].cumprod(0) * held_out


def mean_depth(logits: torch.Tensor) -> float:
    """Return the mean depth of a proposal."""
    return 1 + logits[GO, :2].softmax(1)[:, 1].cumprod(0).sum().item()


def measures(change: Change) -> dict[str, Measure]:
    """Return the measures of a policy whose proposals have the depths of `change`."""

    def depth(logits: torch.Tensor) -> float:
        changed = logits.clone()
        change(changed)
        return mean_depth(changed)

    return {
        "mean": lambda logits: skills(logits).mean().item(),
        "three": lambda logits: skills(logits)[2].item(),
        "deepest": lambda logits: skills(logits)[-1].item(),
        "depth": depth,
    }


SHALLOW = [GOES_ON] * (DEEPEST - 1)
EVEN = [left / (left + 1) for left in range(DEEPEST - 1, 0, -1)]


def experiment(scale: float = 1.0, budget: int = BUDGET) -> Experiment:
    """Compare proposers.

    Args:
        scale: Factor of the rate.
        budget: Generated tokens: of proposals, of attempts at them, and of solutions.
    """

    def run(
        goes_on: Sequence[float], settings: dict[str, Any], penalties: list[Any], seed: int, change: Change = unchanged
    ) -> dict[str, list[float]]:
        size: dict[str, Any] = {"prompts": 4, "group_size": 8, "rate": RATE * scale, "budget": budget}
        source = Source(change, **SETTINGS, **settings)
        parts = algorithm("absolute_zero", rollouts=[], penalties=penalties)
        curves = train(world(goes_on), parts, measures(change), seed=seed, source=source.__call__, **size)
        return on_grid(curves, budget, POINTS)

    frozen, unpaid = {"train_proposer": False}, {"repetition": 1e6}  # the penalty leaves 0 of each score
    bonus = [{"name": "entropy", "beta": BONUS}]
    arms = [
        Arm("proposer frozen", partial(run, SHALLOW, frozen, [])),
        Arm("proposer paid 1 − p̂, as in Absolute Zero", partial(run, SHALLOW, {}, [])),
        Arm("the same, entropy bonus", partial(run, SHALLOW, {}, bonus)),
        Arm("proposer unpaid, entropy bonus", partial(run, SHALLOW, unpaid, bonus)),
        Arm("frozen, all depths alike", partial(run, EVEN, frozen, [])),
        Arm("oracle: the first depth below 80 %", partial(run, SHALLOW, frozen, [], change=frontier)),
    ]
    names = {"mean": "accuracy, all depths", "three": "depth 3", "deepest": "depth 5", "depth": "mean depth proposed"}
    return Experiment("Proposals with a depth", arms, names, "mean", 1, [], "mean", by_tokens=True)


def unchanged(logits: torch.Tensor) -> None:
    """Leave the depths of the proposals to the policy."""


def frontier(logits: torch.Tensor) -> None:
    """Set the first depth that the policy solves in less than 80 % of cases."""
    below = (skills(logits) < 0.8).nonzero().flatten().tolist()
    depth = below[0] if below else DEEPEST - 1
    steps = torch.arange(DEEPEST - 1)
    logits[GO, 0] = NEVER * (steps < depth).double()
    logits[GO, 1] = NEVER * (steps >= depth).double()


EXPERIMENTS = {"self_play": experiment}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, RESULTS / "effects.md", keep=RESULTS / "effects"))
