"""The example part at the end of every hook's docstring, as the source of a package of `rlm new`."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import Any

from rlm_plugins import hookspecs

_IMPORTS = {
    "Field": "from pydantic import Field",
    "RecipeError": "from rlm_plugins.errors import RecipeError",
    "Setting": "from rlm_plugins.registry.setting import Setting",
    "Section": "from rlm_plugins.registry.section import Section",
    "StepObserver": "from rlm_plugins.trainer.observer import StepObserver",
    "TrainerCallback": "from transformers import TrainerCallback",
    "json": "import json",
    "typer": "import typer",
    "Path": "from pathlib import Path",
    "Annotated": "from typing import Annotated",
    "torch": "from rlm_plugins.lazy import torch",
    "hookimpl": "from rlm_plugins import hookimpl",
    "Algorithm": "from rlm_plugins.algorithm import Algorithm",
    "EnvironmentSpec": "from rlm_plugins.specs import EnvironmentSpec",
}
"""Name in an example → its import."""


def source(hook: str) -> str:
    """Return the source of the example in the docstring of `hook`."""
    text = inspect.getdoc(getattr(hookspecs, hook)) or ""
    return textwrap.dedent(text.partition("::\n")[2]).strip("\n") + "\n"


def part_name(hook: str) -> str:
    """Return the name of the example of `hook`.

    >>> part_name("rlm_rewards")
    'brevity'
    """
    body: Any = ast.parse(source(hook)).body
    (key,) = body[-1].body[-1].value.keys
    return str(key.value)


def names(hook: str) -> set[str]:
    """Return all other names in the example of `hook`: a new part cannot have them."""
    nodes = list(ast.walk(ast.parse(source(hook))))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return (used | arguments) - {part_name(hook)}


def about(hook: str) -> str:
    """Return the first line of the docstring of the example of `hook`."""
    part: Any = ast.parse(source(hook)).body[0]
    if hook == "rlm_settings":
        return "A setting of the trainer."
    if hook == "rlm_algorithms":
        return str(next(keyword.value.value for keyword in part.value.keywords if keyword.arg == "about"))
    return (ast.get_docstring(part) or "").splitlines()[0]


def module(hook: str, name: str) -> str:
    """Return the example of `hook` as a module with its imports, under another name."""
    renamed = re.sub(rf"\b{part_name(hook)}\b", name, source(hook))
    spaced = re.sub(r"\n\n(?=@hookimpl)", "\n\n\n", renamed)
    imports = sorted(line for name, line in _IMPORTS.items() if name in names(hook))
    gap = ["", ""] if spaced.startswith(("def", "class")) else [""]
    return "\n".join([f'"""{about(hook)}"""', "", *imports, *gap, spaced])
