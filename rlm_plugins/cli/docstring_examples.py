"""The ten-line part at the end of every hook's docstring, as source: what `rlm new` starts a package with."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import Any

from rlm_plugins import hookspecs

_IMPORTS = {
    "torch": "from rlm_plugins.lazy import torch",
    "hookimpl": "from rlm_plugins import hookimpl",
    "Algorithm": "from rlm_plugins.algorithm import Algorithm",
    "EnvironmentSpec": "from rlm_plugins.specs import EnvironmentSpec",
}
"""Name → where the parts of the equation and of its world have it from."""


def source(hook: str) -> str:
    """The part in the docstring of `hook`, and the hook that offers it."""
    text = inspect.getdoc(getattr(hookspecs, hook)) or ""
    return textwrap.dedent(text.partition("::\n")[2]).strip("\n") + "\n"


def part_name(hook: str) -> str:
    """What the example of `hook` is called.

    >>> part_name("rlm_rewards")
    'brevity'
    """
    body: Any = ast.parse(source(hook)).body
    (key,) = body[-1].body[-1].value.keys
    return str(key.value)


def names(hook: str) -> set[str]:
    """Every other name the example of `hook` uses: none of them is free for the part."""
    nodes = list(ast.walk(ast.parse(source(hook))))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return (used | arguments) - {part_name(hook)}


def about(hook: str) -> str:
    """The first sentence of what the example says about itself."""
    part: Any = ast.parse(source(hook)).body[0]
    if hook == "rlm_algorithms":
        return str(next(keyword.value.value for keyword in part.value.keywords if keyword.arg == "about"))
    return (ast.get_docstring(part) or "").splitlines()[0]


def module(hook: str, name: str) -> str:
    """The example as a module of its own, with its imports, and `name` in place of its own name."""
    renamed = re.sub(rf"\b{part_name(hook)}\b", name, source(hook))
    spaced = re.sub(r"\n\n(?=@hookimpl)", "\n\n\n", renamed)
    imports = sorted(line for word, line in _IMPORTS.items() if word in names(hook))
    gap = ["", ""] if spaced.startswith(("def", "class")) else [""]
    return "\n".join([f'"""{about(hook)}"""', "", *imports, *gap, spaced])
