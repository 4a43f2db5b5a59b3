"""Tracebacks for the author of a plugin: they begin at the first frame of the plugin's code."""

from __future__ import annotations

import os
import traceback

from rlm_plugins.errors import RlmError

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_PARTS = os.path.join(_PACKAGE, "builtin") + os.sep
_TRAINERS = os.path.join(_PARTS, "trainers.py")


def traceback_of_cause(error: BaseException) -> str:
    """Return the traceback of the third-party error behind an `RlmError`; empty if there is none."""
    cause = error.__cause__
    if cause is None:
        return ""
    return traceback_of_cause(cause) if isinstance(cause, RlmError) else third_party_traceback(cause)


def third_party_traceback(error: BaseException) -> str:
    """Return the traceback of an error from its first third-party frame on; empty if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((n for n, frame in enumerate(frames) if not _is_internal(frame.filename)), None)
    if first is None and not isinstance(error, SyntaxError):
        return ""
    listed = [] if first is None else ["Traceback:\n", *traceback.format_list(frames[first:])]
    return "".join([*listed, *traceback.format_exception_only(error)]).rstrip()


def _is_internal(file: str) -> bool:
    """Return True for this package's code except its parts, for Python's imports and for pluggy's calls."""
    of_package = file.startswith(_PACKAGE) and (not file.startswith(_PARTS) or file == _TRAINERS)
    of_imports = any(f"{os.sep}{package}{os.sep}" in file for package in ("importlib", "pluggy"))
    return of_package or of_imports or file.startswith("<frozen importlib")
