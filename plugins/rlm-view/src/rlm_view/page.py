"""The page: data, style and script in one HTML file that needs no server and no network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from rlm_plugins.durable.files import whole
from rlm_view.capsule import capsules_of
from rlm_view.run_data import run_data

_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
"""Characters that could end a script element."""


def write_page(runs: Sequence[Path], out: Path, log_line: Callable[[str], None]) -> Path:
    """Write the page of one run, or of two beside each other.

    Args:
        runs: Folders of one or two runs.
        out: The HTML file.
        log_line: Called with one line about each damage, and about what is left out.

    Raises:
        RlmError: A folder is not that of a run, or the file cannot be written.
    """
    data = {"runs": [{**run_data(run, log_line), "capsules": _capsules(run, log_line)} for run in runs]}
    with whole(out) as staged:
        staged.write_text(page_of(data), encoding="utf-8")
    return out


def _capsules(run: Path, log_line: Callable[[str], None]) -> list[dict[str, Any]]:
    if not capsules_of(run):
        return []
    from rlm_view.capsule_data import capsules_data  # imports torch

    return capsules_data(run, log_line)


def page_of(data: Any) -> str:
    """Return the page of some data as HTML; whatever the data holds is text, never markup."""
    style, script = (_asset(name) for name in ("view.css", "view.js"))
    title = " and ".join(run["name"] for run in data["runs"])
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'"
    parts = {"TITLE": escape(title), "POLICY": policy, "STYLE": style, "SCRIPT": script, "DATA": as_json(data)}
    pieces = _asset("page.html").split("@@")
    return "".join(parts[piece] if number % 2 else piece for number, piece in enumerate(pieces))


def as_json(data: Any) -> str:
    """Return JSON in ASCII that no HTML parser takes for markup.

    >>> print(as_json("</script>"))
    "\\u003c/script\\u003e"
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=str)
    for character, code in _ESCAPED.items():
        text = text.replace(character, code)
    return text


def _asset(name: str) -> str:
    return (files("rlm_view") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"sha256-{digest}"
