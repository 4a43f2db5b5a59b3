"""`plugins/rlm-interop/tests/test_third_party.py` in an environment where all these libraries are installed.

    python tests/run_third_party.py    (make test-third-party)

They go into a fresh environment on top of the one that calls, so that nothing of ours is replaced: verl and OpenRLHF
without their requirements (torch, transformers, CUDA kernels of their own), and beside them what their rewards import.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from run_plugin_packages import environment, install, python

GUESTS = ("verl", "openrlhf")
"""Installed alone."""
NEEDED = ("verifiers<0.4", "ray", "tensordict<=0.10", "codetiming", "pylatexenc", "hydra-core", "torchdata")
"""With what they ask for; the last version of verifiers that has environments and rubrics."""


def main() -> int:
    """Install the libraries and run the tests; return the exit status of pytest or pip."""
    with tempfile.TemporaryDirectory() as place:
        home = environment(Path(place), Path(sys.prefix))
        if failed := install(home, "--no-deps", *GUESTS) or install(home, *NEEDED):
            return failed
        there = "import verl, openrlhf, verifiers, torch; print(torch.__version__)"
        if failed := python(home, "-c", there):
            return failed
        return python(home, "-m", "pytest", "-n", "0", "-q", "-rs", "plugins/rlm-interop/tests/test_third_party.py")


if __name__ == "__main__":
    sys.exit(main())
