"""Algorithms on a table with missing carries: ``python benchmarks/algorithm_rows.py``.

`small_experiment.py` has the gate.
The task is that of lesson 1 in small: three columns of a sum, and a start without three of four carries. Teachers
are tables too: one that adds without errors, or the policy's own with the digits of a right answer made likelier.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from small_experiment import Arm, Experiment, areas, main
from small_policy import NEVER, Fields, Tokens, World, in_order, train, without_baseline

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.equation import Equation
from rlm_plugins.registry import BUILTIN, Registry
from rlm_plugins.report.objective_text import slots_of

RESULTS = Path(__file__).parent / "results"
REGISTRY = Registry()
COLUMNS, STEPS, PROMPTS, GROUP, RATE = 3, 60, 2, 8, 0.3
SHOWN = 4.0
"""What a digit that the prompt of a self-teacher shows gains in logits: an assumption, since a table cannot read."""
CARRY = 19
"""State of a column without, and from here on with a carry due."""


def right_digit(state: int) -> int:
    """Return the digit that is due in a state."""
    return (state % CARRY + state // CARRY) % 10


def table(right: float, remembered: float) -> torch.Tensor:
    """Return logits (2 x 19, 11): of the right digit, and how much of that a due carry keeps."""
    logits = torch.zeros(2 * CARRY, 11, dtype=torch.float64)
    logits[:, 10] = NEVER
    for state in range(2 * CARRY):
        logits[state, right_digit(state)] = right
        if state >= CARRY and remembered < 1:
            logits[state, state % CARRY % 10] = right + math.log(1 / remembered - 1)
    return logits


def sums() -> tuple[World, Callable[[torch.Tensor], float], list[list[int]]]:
    """Return the task, its exact accuracy, and the states of each prompt."""
    rng, places = random.Random(0), []
    for _ in range(64):
        digits = [rng.randrange(19) for _ in range(COLUMNS)]
        carries = list(accumulate(digits, lambda carry, digit: int(digit + carry > 9), initial=0))
        places.append([digit + CARRY * carry for digit, carry in zip([*digits, 0], carries, strict=True)])

    def accuracy(logits: torch.Tensor) -> float:
        chosen = logits.softmax(1)[range(2 * CARRY), [right_digit(state) for state in range(2 * CARRY)]]
        return chosen[torch.tensor(places)].prod(1).mean().item()

    def reward(prompt: int, completion: Tokens) -> float:
        return float(completion == [right_digit(state) for state in places[prompt]])

    width = COLUMNS + 1
    rows = torch.tensor(places).flatten()
    first, following = range(0, len(rows), width), in_order(len(rows), 11)
    return World(table(6.0, 0.25), width, 10, first, following, reward, rows=rows), accuracy, places


def fields_of(kind: str, start: torch.Tensor) -> Callable[[], Fields]:
    """Return a function that makes the fields of a run: a teacher of some kind, and Σπ².

    `kind`: "able" adds without errors; "answer" is the start with the right digits shown; "group" the running average
    of the policy with those of another completion of the group.
    """

    def fields(average: torch.Tensor, logits: torch.Tensor, states: torch.Tensor, batch: Batch) -> dict[str, Any]:
        if not logits.requires_grad:
            average.lerp_(logits, 0.05)
        rows = torch.arange(len(states))
        shown = torch.zeros(*states.shape, 11, dtype=torch.float64)
        has_teacher = torch.ones(len(states), dtype=torch.bool)
        digits = torch.tensor([[right_digit(int(s)) for s in row] for row in states])
        if kind == "group":
            wins = (batch.rewards >= 1).view(-1, GROUP)
            has_teacher = ((wins.sum(1, keepdim=True) - wins.long()) > 0).flatten()
        if kind != "able":
            shown[rows.unsqueeze(1), torch.arange(states.shape[1]), digits] = SHOWN * has_teacher[:, None].double()
        source = {"able": table(8.0, 1.0), "answer": start, "group": average}[kind]
        teacher = (source[states] + shown).log_softmax(-1)
        tokens = torch.tensor(batch.completion_ids).unsqueeze(2)
        policy = logits.log_softmax(1)[states]
        return {
            "teacher_logp": teacher.gather(2, tokens).squeeze(2),
            "has_teacher": has_teacher,
            "teacher_top_logp": teacher[..., :10],
            "top_logp": policy[..., :10],
            "sum_pi_squared": policy.detach().exp().square().sum(-1),
            "prompts": batch.prompt_index.tolist(),
            "inputs": [{} for _ in rows],
        }

    return lambda: partial(fields, start.clone())


def row(name: str, **changes: Any) -> Equation:
    """Return the equation of an algorithm, with other slots."""
    return Equation.from_slots(slots_of(replace(REGISTRY.find("rlm_algorithms", name).target, **changes), REGISTRY))


DAPO = partial(row, "dapo", filters=[], shapers=[])
TEACHERS = {
    **dict.fromkeys(("opd", "iw_opd", "mopd", "gkd_top"), "able"),
    **dict.fromkeys(("sdft", "rlsd", "sdar"), "answer"),
    "sdpo": "group",
}
LEFT_OUT = {
    "demonstrations or replay": ("sft", "dft", "luffy", "srft", "hpt", "prefix_rft", "relift", "chord", "rlep"),
    "further samples": ("remax", "spo", "a2po", "flash_rl"),
    "roles, turns or pairs": ("hierarchical", "echo", "dpo", "kto"),
    "`gkd_top` over the whole vocabulary": ("gkd", "opsd"),
}
"""What a table lacks → rows that need it."""
MEASURED = [
    part.name
    for part in REGISTRY
    if part.hook == "rlm_algorithms" and part.plugin in (BUILTIN, "algorithms") and "@" not in part.name
    if part.name not in {name for names in LEFT_OUT.values() for name in names}
]
CRITIC = ("ppo", "orz", "vc_ppo", "vapo")


def run(
    parts: Equation,
    kind: str,
    seed: int,
    *,
    steps: int = STEPS,
    world: World | None = None,
    **options: Any,
) -> dict[str, list[float]]:
    """Train, and return accuracy and the samples until it is 0.9 (all of them if it is not reached)."""
    task, accuracy, _ = sums()
    curves = train(
        world or task,
        parts,
        {"accuracy": accuracy},
        seed=seed,
        steps=steps,
        prompts=PROMPTS,
        group_size=GROUP,
        fields=fields_of(kind, task.start)(),
        **{"rate": RATE, **options},
    )
    reached = min((step for step, value in enumerate(curves["accuracy"]) if value >= 0.9), default=steps)
    samples = [float(min(step, reached) * PROMPTS * GROUP) for step in range(steps + 1)]
    return areas({**curves, "samples": samples}, "accuracy")


def one_bit() -> Experiment:
    """Compare one bit per episode, a stronger teacher's log-probs, and those of a self-teacher, by samples to 90 %."""
    arms = [
        Arm("`dapo`: a reward per completion", partial(run, DAPO(), "able")),
        Arm("`opd`: a teacher that adds", partial(run, row("opd"), "able")),
        Arm("`sdpo`: its own average, shown a right answer", partial(run, row("sdpo"), "group")),
    ]
    names = {"samples": "samples to 90 %", "accuracy": "accuracy at the end"}
    title = "One bit per episode or one per token"
    return Experiment(title, arms, names, "samples", -1, [], task="accuracy")


def rows(scale: float = 1.0, steps: int = 12) -> Experiment:
    """Train every row that a table can be trained by, with four updates per batch; REINFORCE is the floor.

    Args:
        scale: Factor of the rate.
        steps: Batches.
    """
    task, _, _ = sums()
    size = {"steps": steps, "updates": 4, "rate": 0.25 * scale}

    def noise(prompt: int, completion: Tokens) -> float:
        return float(random.Random(str((prompt, completion))).random() < 0.3)

    unpaid = replace(task, reward=noise)
    arms = [
        Arm("REINFORCE without a baseline", partial(run, without_baseline(), "able", **size)),
        Arm("`grpo`, random rewards", partial(run, row("grpo"), "able", world=unpaid, **size)),
    ]
    for name in MEASURED:
        critic = {"critic_rate": 0.3} if name in CRITIC else {}
        parts = DAPO() if name == "dapo" else row(name)
        arms.append(Arm(f"`{name}`", partial(run, parts, TEACHERS.get(name, "able"), **size, **critic)))
    names = {"area": "mean accuracy over steps", "accuracy": "accuracy at the end"}
    return Experiment("The rows", arms, names, "area", 1, [], task="accuracy", drawn="accuracy")


EXPERIMENTS: dict[str, Callable[[], Experiment]] = {"one_bit": one_bit, "rows": rows}

if __name__ == "__main__":
    sys.exit(main(EXPERIMENTS, RESULTS / "algorithm_rows.md"))
