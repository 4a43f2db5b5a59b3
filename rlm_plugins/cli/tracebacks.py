"""Tracebacks for the person who wrote a plugin: they begin where the plugin's code does."""

from __future__ import annotations

import os
import traceback

from rlm_plugins.errors import RlmError

_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_PARTS = os.path.join(_OURS, "builtin") + os.sep
_ENGINES = os.path.join(_PARTS, "trainers.py")


def cause_of(error: BaseException) -> str:
    """The traceback of what is behind an error of ours, when that is somebody else's code; else empty."""
    cause = error.__cause__
    if cause is None:
        return ""
    return cause_of(cause) if isinstance(cause, RlmError) else foreign(cause)


def foreign(error: BaseException) -> str:
    """The traceback of an error from its first frame in somebody else's code on; empty when there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((n for n, frame in enumerate(frames) if not _is_machinery(frame.filename)), None)
    if first is None and not isinstance(error, SyntaxError):
        return ""
    shown = [] if first is None else ["Traceback:\n", *traceback.format_list(frames[first:])]
    return "".join([*shown, *traceback.format_exception_only(error)]).rstrip()


def _is_machinery(file: str) -> bool:
    """Our own files, parts excepted, Python's imports, and pluggy's calls."""
    ours = file.startswith(_OURS) and (not file.startswith(_PARTS) or file == _ENGINES)
    between = any(f"{os.sep}{package}{os.sep}" in file for package in ("importlib", "pluggy"))
    return ours or between or file.startswith("<frozen importlib")
