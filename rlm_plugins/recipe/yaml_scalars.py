"""Unquoted scalars of YAML 1.2, and quoting of strings that look like other scalars."""

from __future__ import annotations

import re
from typing import Any

import yaml

_CONSTANTS = dict.fromkeys(("", "~", "null", "Null", "NULL")) | {
    name: name.lower() == "true" for name in ("true", "True", "TRUE", "false", "False", "FALSE")
}
_WHOLE = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def is_text(text: str) -> bool:
    """Return True if an unquoted scalar is a string in YAML 1.2.

    >>> [is_text(x) for x in ("no", "1:30", "1_000", "1e-6", "010", "~")]
    [True, True, True, False, False, False]
    """
    return text not in _CONSTANTS and not _WHOLE.fullmatch(text) and not _NUMBER.fullmatch(text)


def plain(text: str) -> Any:
    """Return the value of an unquoted scalar in YAML 1.2.

    >>> [plain(x) for x in ("1e-6", "010", "0xFF", "no", "true", "~")]
    [1e-06, 10, 255, 'no', True, None]
    """
    if is_text(text) or text in _CONSTANTS:
        return _CONSTANTS.get(text, text)
    if _WHOLE.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    return float(text.replace(".", "") if text[-1] in "fFnN" else text)


def dump(data: Any) -> str:
    """Return `data` as YAML that :mod:`rlm_plugins.recipe.yaml_strict` loads as the same."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper, without anchors, and with quotes around strings that `plain` takes for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = None if is_text(text) else "'"
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)
