"""Outputs of the libraries, their inputs, and the functions that express them with our parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rlm_plugins.equation.batch import Batch
from rlm_plugins.registry.part import Bound, Part

DATA = Path(__file__).parent.parent / "data"
FILES = ("adv_trl", "adv_verl", "adv_openrlhf", "loss_trl", "loss_verl", "loss_openrlhf")
RECORDS = [record for name in FILES for record in json.loads((DATA / f"{name}.json").read_text())]
Args = dict[str, Any]
Out = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """One set of inputs, in float64."""

    name: str
    data: dict[str, Any]

    def __getattr__(self, name: str) -> torch.Tensor:
        value = self.data[name]
        return torch.tensor(value, dtype=torch.int64 if name == "groups" else torch.float64)

    @property
    def mask(self) -> torch.Tensor:
        return torch.tensor(self.data["mask"]).bool()

    @property
    def outcome(self) -> torch.Tensor:
        """Return verl's score of a completion: the sum of its token rewards. (An empty one has none.)"""
        return self.rewards.sum(1)

    def batch(self, **more: Any) -> Batch:
        """Return the case as a batch."""
        names = ("old_logp", "ref_logp", "rollout_logp", "values", "entropy")
        given = {name: getattr(self, name) for name in names}
        return Batch(group=self.groups, mask=self.mask, max_completion_length=32, **given | more)


CASES = {name: Case(name, data) for name, data in json.loads((DATA / "cases.json").read_text()).items()}


def part(hook: str, function: Any, **knobs: Any) -> Bound:
    return Part(hook, function.__name__, "builtin", function).bind(knobs)


# ---------------------------------------------------------------- the function of each record

Say = Callable[[Case, Args], Out]
SAID: list[tuple[str, Args, Say]] = []


def says(function: str, **args: Any) -> Callable[[Say], Say]:
    """Register the expression of the library's `function` here; `args` limits it to calls with these."""

    def enter(say: Say) -> Say:
        SAID.append((function, args, say))
        return say

    return enter


def speakers(record: Args) -> list[Say]:
    return [say for name, args, say in SAID if matches(record, name, args)]


def matches(record: Args, name: str, args: Args) -> bool:
    return record["fn"].endswith(name) and all(record["args"].get(k) == v for k, v in args.items())
