"""Freed memory is kept by the process: the next tensors cause no page faults."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from rlm_fast.linear_layers import keep_freed_memory
assert keep_freed_memory()

def fill(size):
    tensors = [torch.ones(size) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

before = fill(2**22)
print(fill(2**22 - 2**12) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's `mallopt`")
@pytest.mark.parametrize(
    ("variables", "least", "most"), [({}, 0, 2000), ({"MALLOC_MMAP_THRESHOLD_": "65536"}, 8000, 10**6)]
)
def test_a_freed_tensor_is_used_again(variables: dict[str, str], least: int, most: int) -> None:
    """A setting in the environment takes precedence: with it four tensors of 16 MiB have 16,000 new pages."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | variables
    run = subprocess.run([sys.executable, "-c", FAULTS], env=outside, capture_output=True, text=True, check=True)
    assert least <= int(run.stdout) <= most
