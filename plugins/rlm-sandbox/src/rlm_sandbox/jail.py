"""bubblewrap around a zygote, where it works: no network, no other process, and a file tree with Python alone."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from rlm_sandbox.keeper import NOBODY, PACKAGE, interpreter

LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64")


def command(modules: tuple[str, ...]) -> list[str]:
    """The words before a zygote's command; none where there is no bubblewrap. Whether it works, a first start shows.

    Nothing in the tree can be written: what one sample left, the next would find. There is no /proc and no /tmp.
    """
    found = shutil.which("bwrap")
    if found is None:
        return []
    words = [found, "--unshare-all", "--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox"]
    words += ["--cap-drop", "ALL", "--new-session"]
    for path in LIBRARIES:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            words += ["--ro-bind", path, path]
    bound = {sys.base_prefix, str(PACKAGE), interpreter()} - {"/usr"}
    if modules:
        bound |= {str(Path(path).resolve()) for path in sys.path if path and os.path.isdir(path)}
    for path in sorted(bound):
        if not any(path.startswith(f"{library}/") for library in LIBRARIES):
            words += ["--ro-bind", path, path]
    return [*words, "--dir", "/dev", "--dev-bind", "/dev/null", "/dev/null", "--remount-ro", "/", "--chdir", "/", "--"]
