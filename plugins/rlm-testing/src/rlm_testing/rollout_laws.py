"""Laws of rollout sources, with a policy and a tokenizer of letters."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from rlm_plugins.rollout.collector import call_source
from rlm_testing.law import Draw, law
from rlm_testing.part_under_test import LawBroken, Subject

PROMPTS = ("2*2=", "2*3=", "7*8=")
COLUMNS = {"demonstration": ("4", "6", "56", None)}
END = 0


class LetterTrainer:
    """Tokenizer of letters, and the members of a trainer that sources use."""

    eos_token_id = END
    temperature = 1.0

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        """Tokenize a text."""
        return {"input_ids": [ord(letter) for letter in text]}

    def prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of prompts."""
        return [[ord(letter) for letter in prompt] for prompt in prompts]

    def answer_ids(self, prompt: str, text: str) -> list[int]:
        """Return the tokens of a completion."""
        return [*(ord(letter) for letter in text), END]

    def set_temperature(self, temperature: float) -> None:
        """Set the temperature."""
        self.temperature = temperature


def generate(
    prompts: Sequence[str], prefixes: Sequence[Sequence[int]] | None = None, *, greedy: bool = False
) -> list[list[int]]:
    """Return the prompt once more, and the end token."""
    starts = prefixes or [()] * len(prompts)
    return [[*map(ord, prompt), END][len(start) :] for prompt, start in zip(prompts, starts, strict=True)]


@law("rlm_rollouts")
def completions(subject: Subject, draw: Draw) -> None:
    """Check that it returns the requested completions, reproducibly within a step, and leaves its data unchanged."""
    data = _source_data(subject, draw)
    if call_source(subject.fresh(), _select(data, [])).pop("completion_ids"):
        raise LawBroken("it returned completions for no prompts")
    before = copy.deepcopy({name: data[name] for name in ("prompts", "inputs", "source_index")})
    first = call_source(subject.fresh(), data)
    if before != {name: data[name] for name in before}:
        raise LawBroken("it changed its data", before)
    second = call_source(subject.fresh(), data)
    if first != second:
        raise LawBroken(f"{first} the first time, {second} the second", before)


def _source_data(subject: Subject, draw: Draw) -> dict[str, Any]:
    """Return the data of a source: whole groups, each of one example."""
    size, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    columns = {"prompt": PROMPTS, **COLUMNS, **subject.columns}
    examples = [{name: draw(_values(x)) for name, x in columns.items()} for _ in range(groups)]
    inputs = [example for example in examples for _ in range(size)]
    return {
        "prompts": [example["prompt"] for example in inputs],
        "inputs": inputs,
        "source_index": list(range(size)) * groups,
        "generate": generate,
        "tokenizer": LetterTrainer(),
        "step": draw(st.integers(0, 9)),
        "seed": draw(st.integers(0, 9)),
        "trainer": LetterTrainer(),
    }


def _values(values: Any) -> Any:
    return values if isinstance(values, st.SearchStrategy) else st.sampled_from(list(values))


def _select(data: dict[str, Any], indices: list[int]) -> dict[str, Any]:
    """Return the data of some completions."""
    return {k: [v[i] for i in indices] if isinstance(v, list) else v for k, v in data.items()}
