"""bubblewrap around a zygote, where it works: no network, no other process, and a file tree with Python alone."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from rlm_sandbox.zygote_handle import NOBODY, PACKAGE, interpreter

LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64")


def command(modules: tuple[str, ...]) -> list[str]:
    """Return the prefix of a zygote's command; empty without bubblewrap. The first start shows if it works.

    Nothing in the tree is writable, or a sample could leave data for the next. There is no /proc and no /tmp.
    """
    executable = shutil.which("bwrap")
    if executable is None:
        return []
    arguments = [executable, "--unshare-all", "--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox"]
    arguments += ["--cap-drop", "ALL", "--new-session"]
    for path in LIBRARIES:
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            arguments += ["--ro-bind", path, path]
    mounts = {sys.base_prefix, str(PACKAGE), interpreter()} - {"/usr"}
    if modules:
        mounts |= {str(Path(path).resolve()) for path in sys.path if path and os.path.isdir(path)}
    for path in sorted(mounts):
        if not any(path.startswith(f"{library}/") for library in LIBRARIES):
            arguments += ["--ro-bind", path, path]
    return [
        *arguments,
        "--dir",
        "/dev",
        "--dev-bind",
        "/dev/null",
        "/dev/null",
        "--remount-ro",
        "/",
        "--chdir",
        "/",
        "--",
    ]
