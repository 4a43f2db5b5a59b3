"""Tasks of the experiments: functions of digit strings, mixtures, wrong labels."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

from rlm_plugins import hookimpl
from rlm_plugins.builtin.environments import addition
from rlm_plugins.specs import EnvironmentSpec

FUNCTIONS = {
    "a": lambda text: text[::-1],
    "b": lambda text: text[1:] + text[0],
    "c": lambda text: "".join(str(9 - int(digit)) for digit in text),
    "d": lambda text: "".join(str((int(digit) + 1) % 10) for digit in text),
}
"""Letter → function of a string of digits: reverse, rotate, complement to 9, add 1 to each digit."""


def functions(
    *,
    depths: Sequence[int] = (1,),
    only: Sequence[str] = (),
    without: Sequence[str] = (),
    digits: int = 3,
    slip: float = 0.0,
    thinking: bool = True,
    train_rows: int = 8192,
    test_rows: int = 64,
    seed: int = 0,
) -> EnvironmentSpec:
    """Return tasks that apply functions to a string of digits: ``ac:172=?`` is the complement reversed, 728.

    The thoughts of a demonstration are the strings after each function: ``a271;c728``.

    Args:
        depths: Numbers of functions in a row, each equally likely.
        only: Rows of functions, as ``["ab", "ba"]``, in place of all of those depths.
        without: Rows that do not occur.
        digits: Length of the string. One string in eight is held out.
        slip: Probability that a step of a training demonstration after the first applies a random function.
        thinking: False: the answer alone.
        train_rows: Training examples.
        test_rows: Held-out examples.
        seed: Of the training examples.
    """
    rows = list(only) or ["".join(row) for depth in depths for row in product(FUNCTIONS, repeat=depth)]
    by_depth = {depth: [row for row in rows if len(row) == depth and row not in without] for depth in map(len, rows)}

    def example(rng: random.Random, *, held_out: bool) -> dict[str, Any]:
        text = ""
        while not text or (int(text) % 8 == 3) != held_out:
            text = "".join(rng.choice("0123456789") for _ in range(digits))
        names = rng.choice(by_depth[rng.choice(sorted(by_depth))])
        slips = [not held_out and rng.random() < slip for _ in names[1:]]
        applied = [
            rng.choice(list(FUNCTIONS)) if slipped else name for slipped, name in zip(slips, names[1:], strict=True)
        ]
        return _row(names, names[0] + "".join(applied), text, thinking)

    train, test = random.Random(f"train {seed}"), random.Random("tests")
    return EnvironmentSpec(
        train=[example(train, held_out=False) for _ in range(train_rows)],
        test=[example(test, held_out=True) for _ in range(test_rows)],
    )


def _row(names: str, applied: str, text: str, thinking: bool) -> dict[str, Any]:
    """Return an example for the functions `names`, with the demonstration of those `applied`."""
    states, right = [text], text
    for name, other in zip(names, applied, strict=True):
        right = FUNCTIONS[name](right)
        states.append(FUNCTIONS[other](states[-1]))
    work = ";".join(f"{name}{state}" for name, state in zip(applied, states[1:], strict=True))
    thought = f"<think>{work}</think>" if thinking else ""
    return {
        "prompt": [{"role": "user", "content": f"{names}:{text}=?"}],
        "answer": right,
        "demonstration": f"{thought}<answer>{states[-1]}</answer>",
    }


def mixed(*, parts: Sequence[dict[str, Any]], seed: int = 0) -> EnvironmentSpec:
    """Return several tasks, shuffled: each part is ``{task: addition, …knobs}`` or ``{task: functions, …}``."""
    built = [TASKS[part["task"]](**{key: x for key, x in part.items() if key != "task"}) for part in parts]
    train = [row for spec in built for row in spec.train]
    random.Random(seed).shuffle(train)
    return EnvironmentSpec(train=train, test=[row for spec in built for row in spec.test])


TASKS: dict[str, Any] = {"addition": addition, "functions": functions}


def wrong_label(completions: Sequence[str], prompts: Sequence[Any]) -> list[float]:
    """Return 1 for the sum without its carries, the mistake of the demonstrations, if it is wrong; else 0."""
    found = []
    for text, prompt in zip(completions, prompts, strict=True):
        numbers = (prompt if isinstance(prompt, str) else prompt[-1]["content"]).partition("=")[0].split("+")
        digits = [str((int(x) + int(y)) % 10) for x, y in zip(*numbers, strict=True)]
        top = (int(numbers[0][0]) + int(numbers[1][0])) // 10
        label = f"{top or ''}{''.join(digits)}"
        found.append(float(int(label) != sum(map(int, numbers)) and text.endswith(f"<answer>{label}</answer>")))
    return found


@hookimpl
def rlm_environments() -> dict[str, object]:
    """Return the environments of this file."""
    return {"functions": functions, "mixed": mixed}


@hookimpl
def rlm_rewards() -> dict[str, object]:
    """Return the rewards of this file."""
    return {"wrong_label": wrong_label}
