"""``rlm lesson``: an exercise for each symbol of the equation, graded by the laws of its hook and a reference part.

The experiments that belong to the exercises are on the page docs/lessons.md of the repository.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlm_lab import oracle as lab
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.errors import PluginError, RlmError
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.report.text_layout import columns

Entry = dict[str, Any]


def last_word(completions: list[str], answer: list[str]) -> list[float]:
    """r = 1 if the last word of the completion is the answer, else 0."""
    return [float(text.split()[-1:] == [right]) for text, right in zip(completions, answer, strict=True)]


@dataclass(frozen=True)
class Exercise:
    """A part to write.

    Args:
        title: Symbol and question.
        hook: Of the part.
        data: Arguments of the starter; others of the hook are allowed.
        task: What the part computes.
        reference: The part with the right values: a name of the registry, or a function.
        knobs: Of the reference.
        columns: Of a reward: column of the data set → its values.
    """

    title: str
    hook: str
    data: str
    task: str
    reference: str | Callable[..., Any]
    knobs: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)


EXERCISES = (
    Exercise(
        "r: what is paid",
        "rlm_rewards",
        "completions, answer",
        "Pay 1 if the last word of a completion (between spaces) is its answer, else 0. A completion may be empty.",
        last_word,
        columns={"answer": ["4", "12"], "completions": ["4", "12", "4 12", "is it 12 or 4", "the answer: 4"]},
    ),
    Exercise(
        "Â: better than what",
        "rlm_advantages",
        "rewards, group",
        "Return for each completion its reward less the mean reward of the other completions of its group; 0 in a "
        "group of one. Equal rewards give exactly 0, also where a mean is rounded. `rewards` and `group` are (B,), and "
        "`group` has the number of each completion's group.",
        "leave_one_out",
    ),
    Exercise(
        "w: samples of another policy",
        "rlm_importance",
        "logp, old_logp, mask",
        "Return log w of the completion as one action, (B, 1): w is the probability of all its trained tokens, divided "
        "by that under the policy that sampled it.",
        "sequence_sum",
    ),
    Exercise(
        "ℓ: how far one batch may lead",
        "rlm_policy_losses",
        "ratio, advantages",
        "Return PPO's loss per token, to be minimized, with ε = 0.2: the gradient of a token ends once its ratio has "
        "moved by more than ε in the direction that its advantage asks for.",
        "clip",
    ),
    Exercise(
        "c: which tokens count",
        "rlm_token_weights",
        "logp, rollout_logp, advantages, mask",
        "Return 0 for the tokens with a negative advantage of completions whose mean of log π_rollout − log π over the "
        "trained tokens exceeds 0.1, else 1. No gradient may pass through the weight.",
        "off_policy_mask",
        {"threshold": 0.1},
    ),
    Exercise(
        "1/Z: what a token weighs",
        "rlm_aggregators",
        "loss, mask, num_sequences",
        "Return the mean over completions of their token means, GRPO's 1/Z. `num_sequences` counts the completions of "
        "the whole optimizer step, of which this call sees a part.",
        "sequence_mean",
    ),
    Exercise(
        "Ω: what a penalty holds",
        "rlm_penalties",
        "logp, ref_logp",
        "Return per token an estimate whose gradient is in the mean that of the divergence KL(π ‖ π_ref): k2.",
        "kl",
        {"estimator": "k2"},
    ),
    Exercise(
        "E: which prompts",
        "rlm_filters",
        "rewards, group",
        "Return True for the completions of groups whose rewards differ, (B,); the others have no gradient.",
        "nonzero_std",
    ),
)


def exercise(number: int) -> Exercise:
    """Return an exercise.

    Raises:
        RlmError: There is none of this number.
    """
    if not 1 <= number <= len(EXERCISES):
        raise RlmError(f"there is no lesson {number}", allowed=f"1 to {len(EXERCISES)}", hint="`rlm lesson` lists them")
    return EXERCISES[number - 1]


def starter(found: Exercise) -> str:
    """Return the file to begin with."""
    task = textwrap.fill(found.task, 100, subsequent_indent="    ")
    return f'''import torch

from rlm_plugins import hookimpl


def mine({found.data}):
    """{task}"""
    raise NotImplementedError


@hookimpl
def {found.hook}():
    return {{"mine": mine}}
'''


def described(number: int) -> Entry:
    """Return an exercise as data."""
    found, key = exercise(number), HOOKS[exercise(number).hook].key
    return {"lesson": number, "title": found.title, "key": key, "hook": found.hook, "task": found.task}


def render(entry: Entry) -> str:
    """Return an exercise as text."""
    number = entry["lesson"]
    steps = [
        (f"rlm lesson {number} --write my.py", "a file to begin with"),
        (f"rlm lesson {number} --check my.py", "grades it"),
        (f"rlm explain {entry['key']}", "the data that such a part may take"),
    ]
    return f"{number}. {entry['title']}\n\n{textwrap.fill(entry['task'], 100)}\n\n{columns(steps)}"


def grade(number: int, file: Path) -> Entry:
    """Grade the part of a file: the laws of its hook, its values beside the reference's, and its exact gradient.

    Returns:
        ``laws``: Law → the report of its violation on the smallest batch, or null. ``oracle``: for a part that differs
        from the reference and obeys the other laws, what :func:`rlm_lab.oracle.oracle` finds of it and the reference.

    Raises:
        RlmError: The file has not exactly one part of the hook, or rlm-testing is not installed.
    """
    found = exercise(number)
    registry = Registry([file])
    parts = [part for part in registry.parts_of(found.hook) if part.plugin == file.stem]
    if len(parts) != 1:
        raise PluginError(
            f"expected one part of the hook {found.hook}, got {len(parts)}",
            where=str(file),
            hint=f"`rlm lesson {number} --write FILE` writes a file to begin with",
        )
    try:
        from rlm_testing.conformance_kit import equality, find_violation, report
        from rlm_testing.law import Subject, battery
    except ImportError as error:
        raise RlmError(f"grading requires {error.name}", hint="pip install ./plugins/rlm-testing") from None
    part, right = parts[0], reference_of(found, registry)
    subject = Subject(part, columns=found.columns)
    laws: dict[str, str | None] = {}
    for law in [*battery(subject), equality(Subject(right, found.knobs, found.columns))]:
        broken = find_violation(law, subject)
        laws[law.name] = report(law, subject, broken) if broken else None
    broken_laws = [name for name, text in laws.items() if text]
    measured = exact_gradients(found, part, registry) if broken_laws == ["equal"] else []
    return {"lesson": number, "part": part.name, "laws": laws, "oracle": measured}


def reference_of(found: Exercise, registry: Registry) -> Part:
    """Return the part with the right values."""
    if isinstance(found.reference, str):
        return registry.find(found.hook, found.reference)
    return Part(found.hook, "reference", "lab", found.reference)


def exact_gradients(found: Exercise, part: Part, registry: Registry) -> list[Entry]:
    """Return what the oracle finds of the gradients of the reference and of a part; nothing where none is defined."""
    info = HOOKS[found.hook]
    if not isinstance(found.reference, str):
        return []
    expected = lab.equation_of(found.reference, registry, found.knobs)
    slot: dict[str, Any] = {info.key: (part.bind({}),) if info.many else part.bind({})}
    with suppress(RlmError):  # a filter that keeps nothing has no gradient
        rows = [lab.oracle(equation) for equation in (expected, replace(expected, **slot))]
        return [(row["penalties"] or row["gradients"])[-1] for row in rows]
    return []


def render_grade(entry: Entry) -> str:
    """Return the first violation with its batch, the names of the others, and the oracle's numbers."""
    broken = [name for name, text in entry["laws"].items() if text]
    holds = ", ".join(name for name, text in entry["laws"].items() if not text)
    if not broken:
        return f"right: lesson {entry['lesson']}, '{entry['part']}'\n  holds    {holds}"
    lines = [f"not yet: lesson {entry['lesson']}", entry["laws"][broken[0]]]
    lines += [f"  also     {', '.join(broken[1:])}"] if broken[1:] else []
    lines += [f"  holds    {holds}"] if holds else []
    for name, row in zip(("reference", "yours"), entry["oracle"], strict=False):
        scale = round(row["scale"], 4) + 0.0  # no -0.0
        lines.append(f"  oracle   {name}: scale {scale} of the exact gradient, bias {row['bias']:.2%}")
    return "\n".join(lines)
