"""Registers the package for every test, and makes the server beside the tests importable."""

import sys
from pathlib import Path

from rlm_testing.fake_packages import registered

sys.path.insert(0, str(Path(__file__).parent))
_registered = registered("algorithms", autouse=True)
