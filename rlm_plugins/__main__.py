"""Entry point of ``python -m rlm_plugins`` (= ``rlm``), for `accelerate launch -m rlm_plugins train …`."""

import contextlib
import sys
from pathlib import Path

# Python puts the working directory first, where the folder of a stranger's recipe may hold modules and entry points.
with contextlib.suppress(FileNotFoundError):  # it was removed: the command line reports that
    if sys.path and Path(sys.path[0]).resolve() == Path.cwd() != Path(__file__).resolve().parents[1]:
        del sys.path[0]

from rlm_plugins.cli import main

main()
