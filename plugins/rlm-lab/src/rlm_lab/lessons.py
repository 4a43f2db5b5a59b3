"""``rlm lesson``: an exercise for each symbol of the equation, graded by the laws of its hook and a reference part."""

from __future__ import annotations

import textwrap
import tomllib
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from rlm_lab import oracle as lab
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.errors import PluginError, RlmError
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part

Entry = dict[str, Any]

LESSONS: list[Entry] = tomllib.loads(files("rlm_lab").joinpath("lessons.toml").read_text(encoding="utf-8"))["lesson"]
"""The exercises of `lessons.toml`, in the order of the equation."""


def lesson(number: int) -> Entry:
    """Return an exercise.

    Raises:
        RlmError: There is none of this number.
    """
    if not 1 <= number <= len(LESSONS):
        raise RlmError(f"there is no lesson {number}", allowed=f"1 to {len(LESSONS)}", hint="`rlm lesson` lists them")
    return LESSONS[number - 1]


def starter(number: int) -> str:
    """Return the file to begin with."""
    found = lesson(number)
    task = textwrap.indent(found["task"], "    ").lstrip()
    return (
        f'import torch\n\nfrom rlm_plugins import hookimpl\n\n\ndef mine({found["data"]}):\n    """{task}"""\n'
        f'    raise NotImplementedError\n\n\n@hookimpl\ndef {found["hook"]}():\n    return {{"mine": mine}}\n'
    )


def render(number: int) -> str:
    """Return an exercise as text."""
    found = lesson(number)
    key = HOOKS[found["hook"]].key
    return f"""{number}. {found["title"]}

{found["task"]}

  rlm lesson {number} --write my.py   a file to begin with; `rlm explain {key}` has the data that such a part may take
  rlm lesson {number} --check my.py   grades it"""


def grade(number: int, file: Path) -> Entry:
    """Grade the part of a file: the laws of its hook, its values beside the reference's, and its exact gradient.

    Returns:
        ``laws``: Law → the report of its violation on the smallest batch, or null. ``oracle``: if a part only differs
        from the reference, what :func:`rlm_lab.oracle.oracle` finds of the reference and of the part.

    Raises:
        RlmError: The file has not exactly one part of the hook, or rlm-testing is not installed.
    """
    found, registry = lesson(number), Registry([file])
    hook, knobs, columns = found["hook"], found.get("knobs", {}), found.get("columns", {})
    parts = [part for part in registry.parts_of(hook) if part.plugin == file.stem]
    if len(parts) != 1:
        raise PluginError(
            f"expected one part of the hook {hook}, got {len(parts)}",
            where=str(file),
            hint=f"`rlm lesson {number} --write FILE` writes a file to begin with",
        )
    try:
        from rlm_testing.conformance_kit import equality, find_violation, report
        from rlm_testing.law import Subject, battery
    except ImportError as error:
        raise RlmError(f"grading requires {error.name}", hint="pip install ./plugins/rlm-testing") from None
    subject, laws = Subject(parts[0], columns=columns), {}
    reference = Subject(registry.find(hook, found["reference"]), knobs, columns)
    for law in [*battery(subject), equality(reference)]:
        broken = find_violation(law, subject)
        laws[law.name] = report(law, subject, broken) if broken else None
    only_differs = [name for name, text in laws.items() if text] == ["equal"]
    measured = exact_gradients(reference.part, knobs, parts[0], registry) if only_differs else []
    return {"lesson": number, "part": parts[0].name, "laws": laws, "oracle": measured}


def exact_gradients(reference: Part, knobs: Entry, part: Part, registry: Registry) -> list[Entry]:
    """Return what the oracle finds of the gradients of two parts; nothing of a reward or where there is no gradient."""
    info = HOOKS[part.hook]
    if part.hook == "rlm_rewards":
        return []
    expected = lab.equation_of(reference.name, registry, knobs)
    slot: dict[str, Any] = {info.key: (part.bind({}),) if info.many else part.bind({})}
    with suppress(RlmError):  # a filter that keeps nothing has no gradient
        results = [lab.oracle(equation) for equation in (expected, replace(expected, **slot))]
        return [(result["penalties"] or result["gradients"])[-1] for result in results]
    return []


def render_grade(entry: Entry) -> str:
    """Return the first violation with its batch, the names of the others, and the oracle's numbers."""
    broken = [name for name, text in entry["laws"].items() if text]
    holds = ", ".join(name for name, text in entry["laws"].items() if not text)
    lines = ["right", f"  holds    {holds}"]
    if broken:
        lines = ["not yet", entry["laws"][broken[0]], f"  also     {', '.join(broken[1:])}", f"  holds    {holds}"]
    for name, row in zip(("reference", "yours"), entry["oracle"], strict=False):
        scale = round(row["scale"], 4) + 0.0  # no -0.0
        lines.append(f"  oracle   {name}: scale {scale} of the exact gradient, bias {row['bias']:.2%}")
    return "\n".join(line for line in lines if not line.endswith(" "))
