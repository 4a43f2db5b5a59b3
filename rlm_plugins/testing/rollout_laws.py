"""The laws of who writes: rollout sources, with a policy and a tokenizer that spell."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from rlm_plugins.rollout.source_output import call_source
from rlm_plugins.testing.law import Draw, law
from rlm_plugins.testing.part_under_test import LawBroken, Subject

PROMPTS = ("2*2=", "2*3=", "7*8=")
COLUMNS = {"demonstration": ("4", "6", "56", None)}
END = 0


class Spelling:
    """A tokenizer of letters, and as much of a trainer as sources use."""

    eos_token_id = END
    temperature = 1.0

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) for letter in text]}

    def prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        """Letters."""
        return [[ord(letter) for letter in prompt] for prompt in prompts]

    def answer_ids(self, prompt: str, text: str) -> list[int]:
        """Letters, and the end."""
        return [*(ord(letter) for letter in text), END]

    def set_temperature(self, temperature: float) -> None:
        """Takes note."""
        self.temperature = temperature


def write(
    prompts: Sequence[str], prefixes: Sequence[Sequence[int]] | None = None, *, greedy: bool = False
) -> list[list[int]]:
    """The policy: it writes the prompt once more, and the end."""
    starts = prefixes or [()] * len(prompts)
    return [[*map(ord, prompt), END][len(start) :] for prompt, start in zip(prompts, starts, strict=True)]


@law("rlm_rollouts")
def rows(subject: Subject, draw: Draw) -> None:
    """It writes the rows it is asked for or leaves them open, in one step always the same; of none it makes none.

    What it is given it leaves as it is.
    """
    given = _given(subject, draw)
    if call_source(subject.fresh(), _of(given, [])).pop("completion_ids"):
        raise LawBroken("it wrote rows that nobody asked for")
    before = copy.deepcopy({name: given[name] for name in ("prompts", "inputs", "source_index")})
    found = call_source(subject.fresh(), given)
    if before != {name: given[name] for name in before}:
        raise LawBroken("it changed what it was given", before)
    if found != (again := call_source(subject.fresh(), given)):
        raise LawBroken(f"{found} the first time, {again} the second", before)


def _given(subject: Subject, draw: Draw) -> dict[str, Any]:
    """Whole groups of rows, each of one problem."""
    size, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    columns = {"prompt": PROMPTS, **COLUMNS, **subject.columns}
    problems = [{name: draw(_values(held)) for name, held in columns.items()} for _ in range(groups)]
    inputs = [problem for problem in problems for _ in range(size)]
    return {
        "prompts": [row["prompt"] for row in inputs],
        "inputs": inputs,
        "source_index": list(range(size)) * groups,
        "generate": write,
        "tokenizer": Spelling(),
        "step": draw(st.integers(0, 9)),
        "seed": draw(st.integers(0, 9)),
        "trainer": Spelling(),
    }


def _values(held: Any) -> Any:
    return held if isinstance(held, st.SearchStrategy) else st.sampled_from(list(held))


def _of(given: dict[str, Any], which: list[int]) -> dict[str, Any]:
    """The same for some of the rows."""
    return {k: [v[i] for i in which] if isinstance(v, list) else v for k, v in given.items()}
