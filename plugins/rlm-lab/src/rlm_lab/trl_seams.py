"""TRL's internals that the core depends on: the table of them, and what an installed release changed.

`rlm_plugins/trainer/trl_seams.toml` lists every method that is overridden and every function that is not exported by
``trl``, with the file that uses it. It has a digest per release, of the source code without comments and docstrings.
``rlm doctor`` and the tests name what the installed release has changed. `add_release` adds its digests.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import inspect
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path

import trl

import rlm_plugins
from rlm_plugins.durable.files import write_file

TABLE = Path(rlm_plugins.__file__).with_name("trainer") / "trl_seams.toml"


@dataclass(frozen=True)
class Seam:
    """A method or function of TRL.

    Args:
        name: Module and qualified name, with a colon between them.
        used_by: The file of the core that overrides or calls it.
        digests: Release of TRL → digest of the source code there.
    """

    name: str
    used_by: str
    digests: dict[str, str]


def seams() -> list[Seam]:
    """Return the table."""
    return [Seam(**entry) for entry in tomllib.loads(TABLE.read_text(encoding="utf-8"))["seam"]]


def release() -> str:
    """Return the installed release of TRL, without the patch number."""
    return ".".join(trl.__version__.split(".")[:2])


def digest(name: str) -> str | None:
    """Return a digest of the source code of a function without comments and docstrings; None if it does not exist."""
    module, _, qualified = name.partition(":")
    try:
        target = functools.reduce(getattr, qualified.split("."), importlib.import_module(module))
    except (ImportError, AttributeError):
        return None
    tree = ast.parse(textwrap.dedent(inspect.getsource(target)))
    (definition,) = tree.body
    if isinstance(definition, ast.FunctionDef) and ast.get_docstring(definition) is not None:
        definition.body = definition.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:12]


def changed() -> list[str]:
    """Return a line for each seam whose code in the installed release is not that of a release in the table."""
    lines = []
    for seam in seams():
        installed = digest(seam.name)
        if installed is None:
            lines.append(f"{seam.name} does not exist in TRL {trl.__version__}; {seam.used_by} uses it")
        elif installed not in seam.digests.values():
            lines.append(f"{seam.name} is another in TRL {trl.__version__}; {seam.used_by} uses it")
    return lines


def add_release() -> None:
    """Write the table with the digests of the installed release."""
    lines = ["# `digests` are written by `rlm_lab.trl_seams.add_release()`."]
    for seam in seams():
        digests = {**seam.digests, release(): digest(seam.name) or "absent"}
        shown = ", ".join(f'"{version}" = "{value}"' for version, value in sorted(digests.items()))
        lines += ["", "[[seam]]", f'name = "{seam.name}"', f'used_by = "{seam.used_by}"', f"digests = {{ {shown} }}"]
    write_file(TABLE, "\n".join(lines) + "\n")
