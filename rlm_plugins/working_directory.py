"""Removal of the working directory from ``sys.path`` in ``python -m rlm_plugins``, before any other import.

Python puts it first, and the folder of a foreign recipe may hold modules and entry points. ``os`` and ``sys`` are
loaded before any program starts.
"""

import os
import sys


def is_first_import() -> bool:
    """Return True while ``python -m rlm_plugins`` imports this package: `sys.argv` has the module's path only later."""
    return sys.argv[:1] == ["-m"] and "rlm_plugins" in sys.orig_argv


def remove_working_directory() -> None:
    """Remove the first entry of ``sys.path`` if it is the working directory, unless this package is there."""
    try:
        working_directory = os.getcwd()
    except FileNotFoundError:  # it was removed: the command line reports that
        return
    package_parent = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    if sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(working_directory) != package_parent:
        del sys.path[0]


if is_first_import():
    remove_working_directory()
