"""Names that changed before the first release, old → new. There are no aliases: an old name is an error with a hint."""

from __future__ import annotations

import re
import tomllib
import traceback
from collections.abc import Iterator
from importlib.resources import files

_TABLES = tomllib.loads(files("rlm_plugins").joinpath("renamed.toml").read_text(encoding="utf-8"))
DATA: dict[str, str] = _TABLES["data"]
"""Data that parts name before the star."""
MEMBERS: dict[str, str] = _TABLES["members"]
"""Optional members of parts; `settings` of a generator."""
KEYS: dict[str, str] = _TABLES["keys"]
"""Keys of a recipe, with the section in front."""
PARTS: dict[str, str] = _TABLES["parts"]
"""Names of parts, with the recipe key in front."""
KNOBS: dict[str, str] = _TABLES["knobs"]
"""Knobs of parts."""
VALUES: dict[str, dict[str, str]] = _TABLES["values"]
"""Knob, under its new name → its values."""
METRICS: dict[str, str] = _TABLES["metrics"]
"""Logged numbers."""
CLASSES: dict[str, str] = _TABLES["classes"]
"""Classes and constants, by their dotted paths in `rlm_plugins`."""
MODULES: dict[str, str] = _TABLES["modules"]
"""Modules that a plugin may import, by their dotted paths in `rlm_plugins`."""


def hint(names: dict[str, str], old: str) -> str:
    """Return the hint for an old name; empty if it is none.

    Args:
        names: One of the tables of this module.
        old: The name that was not found.

    >>> hint(DATA, "problem"), hint(PARTS, "generator/portable"), hint(KNOBS, "epsilon")
    ("'problem' is called 'prompt_index' now", "'portable' is called 'fastgen/fast' now", '')
    """
    if old not in names:
        return ""
    leaf = re.split(r"[./]", old)[-1] if names in (KEYS, PARTS) else old
    return f"'{leaf}' is called '{names[old]}' now"


def import_hint(error: BaseException) -> str:
    """Return the new names of what a failed import was looking for; empty if none of it was renamed.

    The error alone does not hold them: for `rlm_plugins.training.judge` Python reports the missing parent.

    >>> import_hint(ImportError("cannot import name 'Row' from 'rlm_plugins.algorithm' (algorithm.py)"))
    "'rlm_plugins.algorithm.Row' is called 'rlm_plugins.algorithm.Algorithm' now"
    """
    if not isinstance(error, ImportError):
        return ""
    lines = [frame.line or "" for frame in traceback.extract_tb(error.__traceback__)]
    renamed = {**MODULES, **CLASSES}
    for old, new in CLASSES.items():
        old_in_new_module = f"{new.rpartition('.')[0]}.{old.rpartition('.')[2]}"
        if old_in_new_module != new:  # equal if it moved with its name
            renamed[old_in_new_module] = new
    names = dict.fromkeys(_imported("\n".join([str(error), *lines])))
    hints = [f"'rlm_plugins.{name}' is called 'rlm_plugins.{renamed[name]}' now" for name in names if name in renamed]
    return "; ".join(hints)


def _imported(text: str) -> Iterator[str]:
    """Yield every dotted name in `rlm_plugins` that import statements or the messages of their errors hold."""
    yield from re.findall(r"rlm_plugins\.([\w.]*\w)", text)
    for module, names in re.findall(r"from rlm_plugins\.?([\w.]*) import \(?([\w, ]+)", text):
        for name in re.findall(r"(\w+)(?: as \w+)?", names):
            yield f"{module}.{name}".lstrip(".")
    for name, module in re.findall(r"cannot import name '(\w+)' from 'rlm_plugins\.?([\w.]*)'", text):
        yield f"{module}.{name}".lstrip(".")
