"""Laws of the conformance kit, the part under test, and the violation of a law."""

from __future__ import annotations

import io
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from rlm_plugins.equation.batch import SCORING as SCORING_DATA
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.registry.part import Bound, Part
from rlm_testing.toy_policy import setup_part

SCORING = ("rlm_shapers", "rlm_filters", "rlm_advantages")
LOSS = ("rlm_importance", "rlm_policy_losses", "rlm_token_weights", "rlm_penalties", "rlm_aggregators")
STEP = SCORING + LOSS


class LawBroken(Exception):
    """Violation of a law.

    Args:
        finding: One sentence.
        example: Data that show it: name → value.
    """

    def __init__(self, finding: str, example: Mapping[str, object] | None = None) -> None:
        self.finding, self.example = finding, dict(example or {})
        super().__init__(finding)


@dataclass(frozen=True)
class Subject:
    """Part with its knobs and examples of its data.

    Args:
        part: The part.
        knobs: Knob → value.
        columns: Column of the data set → strategy or list of values.
    """

    part: Part
    knobs: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)

    def fresh(self) -> Bound:
        """Return the part, bound anew: a class starts in its initial state, after its `setup`."""
        bound = self.part.bind(self.knobs)
        for target in bound.setup_targets if HOOKS[self.part.hook].data == SCORING_DATA else ():
            setup_part(target)
        return bound

    def names(self, *data: str) -> bool:
        """Return True if the part takes any of `data`."""
        return any(name in self.part.data for name in data)


Draw = Callable[[Any], Any]
"""Draws an example from a hypothesis strategy."""
Check = Callable[[Subject, Draw], None]
"""Check of one example, which raises LawBroken."""


@dataclass(frozen=True)
class Law:
    """One law of the battery.

    Args:
        name: As in test ids and `exceptions`.
        statement: One sentence.
        hooks: The hooks it holds for.
        check: Checks one example.
        applies: Returns True for the subjects that it is about.
        share: Share of the examples that it is checked on; some violations show on any batch.
    """

    name: str
    statement: str
    hooks: tuple[str, ...]
    check: Check
    applies: Callable[[Subject], bool]
    share: float


LAWS: list[Law] = []
"""All laws, in the order of their tests."""


def law(
    *hooks: str, applies: Callable[[Subject], bool] = lambda _: True, share: float = 1.0
) -> Callable[[Check], Check]:
    """Register a function as a law of `hooks`; its docstring, "Check that …", is the statement."""

    def register(check: Check) -> Check:
        statement = (check.__doc__ or "").split("\n")[0].removeprefix("Check that ").rstrip(".")
        LAWS.append(Law(check.__name__, statement, hooks, check, applies, share))
        return check

    return register


def battery(subject: Subject) -> list[Law]:
    """Return the laws that apply to a subject."""
    return [law for law in LAWS if subject.part.hook in law.hooks and law.applies(subject)]


@law(*(hook for hook in HOOKS if hook != "rlm_algorithms"))
def contract(subject: Subject, draw: Draw) -> None:
    """Check that its data have names of the hook, its knobs are annotated, and these knobs fit."""
    subject.part.check()
    subject.fresh()


def failure(error: BaseException) -> str:
    """Return the message of an exception and where it was raised, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f", at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"it raised {f'{type(error).__name__}: {error}'.removesuffix(': ')}{place}"


def load_checkpoint(new: Bound, old: Bound) -> None:
    """Give a part the state of another, after saving and loading it.

    Raises:
        LawBroken: A method is missing, or the state contains what `torch.load(weights_only=True)` rejects.
    """
    source: Any = old.target
    target: Any = new.target
    for method in ("state_dict", "load_state_dict"):
        if not callable(getattr(source, method, None)):
            raise LawBroken(f"a stateful part requires the method {method}")
    file = io.BytesIO()
    try:
        torch.save(source.state_dict(), file)
        file.seek(0)
        loaded = torch.load(file, weights_only=True)
    except Exception as error:
        raise LawBroken(f"its state_dict cannot be saved in a checkpoint: {error}") from error
    target.load_state_dict(loaded)
