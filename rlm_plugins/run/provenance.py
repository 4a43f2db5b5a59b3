"""Command, commit, versions and machine of a run: recorded, and compared where they matter."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

PACKAGES = (
    *("rlm-plugins", "torch", "trl", "transformers", "peft", "accelerate", "datasets"),
    *("tokenizers", "safetensors", "numpy", "bitsandbytes", "vllm", "flash-attn"),
)


def provenance() -> dict[str, Any]:
    """Return the entries of the manifest that describe this process and machine."""
    repositories = {name: git_state(path) for name, path in _repositories().items()}
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(sys.argv),
        "folder": str(Path.cwd()),
        "git": {name: state for name, state in repositories.items() if state},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hardware": hardware(),
        "packages": packages(),
    }


def packages() -> dict[str, str]:
    """Return the versions of Python and of the libraries whose code a run executes."""
    versions = {name: _version(name) for name in PACKAGES}
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, **{name: version for name, version in versions.items() if version}}


def hardware() -> dict[str, Any]:
    """Return host, processors, threads, memory and accelerators."""
    import psutil
    import torch

    cuda = torch.cuda
    return {
        "host": platform.node(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "accelerators": [cuda.get_device_name(i) for i in range(cuda.device_count())] if cuda.is_available() else [],
    }


def git_state(folder: Path) -> dict[str, Any]:
    """Return the commit of a working tree, and True if tracked files differ from it; empty outside of one.

    Without the second if the tree has filters of its own, which git would run to compare files.
    """
    # a configuration in the tree could name programs that git would start
    no_programs = (
        "core.fsmonitor=false",
        f"core.hooksPath={os.devnull}",
        "core.sshCommand=false",
        "protocol.allow=never",
    )
    safe = ("git", "-C", str(folder), *chain.from_iterable(("-c", setting) for setting in no_programs))
    try:
        commit = _output(*safe, "rev-parse", "HEAD")
        settings = _output(*safe, "config", "--includes", "--show-scope", "--name-only", "--list").splitlines()
        if any(line.startswith(("local", "worktree")) and "filter." in line for line in settings):
            return {"commit": commit}
        changed = _output(*safe, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules")
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": commit, "changed": bool(changed)}


def _output(*command: str) -> str:
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10, stdin=subprocess.DEVNULL)
    return process.stdout.strip()


def _repositories() -> dict[str, Path]:
    return {"working folder": Path.cwd(), "rlm-plugins": Path(__file__).parent}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
