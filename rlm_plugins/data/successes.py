"""Training examples from the successes of an earlier stage: rejection sampling within one recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlm_plugins.durable.files import JsonLines
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec, Successes

FILE = "successes.jsonl"
"""Where the callback `keep_successes` writes, in the folder of the run."""
WHERE = "environment.stage"


def described(spec: EnvironmentSpec, earlier: Mapping[str, EnvironmentSpec]) -> EnvironmentSpec:
    """Return a specification with the examples of the earlier stage in place of those that it will keep."""
    assert spec.successes is not None
    name = spec.successes.stage
    if name not in earlier:
        allowed = ", ".join(title for title in earlier if not title[:2].isdigit()) or "(none)"
        raise RecipeError(f"no stage '{name}' before this one", where=WHERE, allowed=allowed)
    source = earlier[name]
    return replace(spec, train=[{"demonstration": "…", **row} for row in source.train], test=source.test)


def collected(folder: Path, spec: EnvironmentSpec) -> EnvironmentSpec:
    """Return a specification whose training examples are the successes in the folder of a run."""
    assert spec.successes is not None
    completions = _kept(folder / FILE, spec.successes)
    train = []
    seen: set[str] = set()
    for row in spec.train:
        prompt = _key(row["prompt"])
        texts = () if prompt in seen else completions.get(prompt, ())
        train += [{**row, "demonstration": text} for text in texts]
        seen.add(prompt)
    if not train:
        problem = f"the stage '{spec.successes.stage}' kept no completion with a reward of {spec.successes.at_least:g}"
        hint = "`callbacks: [keep_successes]` in that stage keeps them; or a lower `at_least`"
        raise RecipeError(problem, where=WHERE, hint=hint)
    return replace(spec, train=train)


def _kept(file: Path, selection: Successes) -> dict[str, Sequence[str]]:
    """Return prompt → the latest different completions of the stage."""
    completions: dict[str, dict[str, None]] = {}
    for entry in reversed(JsonLines(file).records()):
        if selection.stage in (entry["stage"], entry["stage"][3:]) and entry["reward"] >= selection.at_least:
            completions.setdefault(_key(entry["prompt"]), {})[entry["completion"]] = None
    return {prompt: list(texts)[: selection.per_prompt] for prompt, texts in completions.items()}


def _key(prompt: Any) -> str:
    return json.dumps(prompt, sort_keys=True, ensure_ascii=False)
