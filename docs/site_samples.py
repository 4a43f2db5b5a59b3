"""Values that parts return, called when the site is built: first examples of environments, and scores of rewards."""

from __future__ import annotations

import contextlib
import inspect
import json
from typing import Any

from rlm_audit.probe_cases import FORMS
from rlm_audit.references import score_references
from site_text import code

from rlm_plugins.registry.part import Part
from rlm_plugins.specs import EnvironmentSpec

LONGEST = 400
"""Characters of a value that a page shows."""
SMALL = {"train_rows": 64, "test_rows": 4}
"""Knobs that keep an example small."""


def first_example(part: Part) -> str:
    """Return the first training example of an environment that needs no file and no network; else an empty text."""
    parameters = inspect.signature(part.target).parameters
    if "path" in parameters or any(x.default is x.empty and x.kind is x.KEYWORD_ONLY for x in parameters.values()):
        return ""
    with contextlib.suppress(Exception):  # it needs a package, a model or another environment
        spec = part.target(**{name: value for name, value in SMALL.items() if name in parameters})
        example = {name: shown(value) for name, value in dict(next(iter(spec.train))).items()}
        text = json.dumps(example, indent=2, ensure_ascii=False)
        return "\n\n".join(["The first training example, generated when this page was built:", code(text, "json")])
    return ""


def shown(value: Any) -> Any:
    """Return a value as JSON has it, its end left out if it is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > LONGEST:
        return f"{text[:LONGEST]}…"
    return value if isinstance(value, str | int | float | list | dict) else text


def scores_of(part: Part) -> str:
    """Return what a reward pays for the answer 42 in several forms; empty if it needs other data or a model."""
    from rlm_plugins.stage import Reward

    with contextlib.suppress(Exception):
        reward = Reward(part.name, part.bind({}))
        spec = EnvironmentSpec([{"prompt": "40+2=?", "answer": "42"}], [])
        line = score_references(reward, spec).line
        return (
            f"For the answer 42 in {len(FORMS)} forms: {line}."
            if line.startswith("given") and "failed" not in line
            else ""
        )
    return ""
