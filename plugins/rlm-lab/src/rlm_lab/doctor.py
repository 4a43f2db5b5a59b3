"""``rlm doctor``: machine, versions, plugins, sandbox and disk, as a page for a report of a problem."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

import rlm_plugins
from rlm_plugins.errors import RlmError, nearest
from rlm_plugins.registry import Registry
from rlm_plugins.registry.index import disabled, set_disabled
from rlm_plugins.registry.loading import installed, required_version
from rlm_plugins.report.text_layout import columns, titled
from rlm_plugins.run.manifest import git_state, hardware

VARIABLES = (
    *("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "CUDA_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_OFFLINE"),
    *("TOKENIZERS_PARALLELISM", "RLM_TRUST", "RLM_DEBUG", "RLM_TRACE", "RLM_CACHE"),
)
"""Variables of the environment that are printed; others may be secrets."""
LEAST_DISK = 5.0
"""GiB below which a disk is reported."""
Rows = list[dict[str, Any]]


def doctor() -> dict[str, Any]:
    """Return what a report of a problem needs: system, versions, plugins, sandbox, disk, and the problems found."""
    system, versions, plugins, sandbox, disk = _system(), _versions(), _plugins(), _sandbox(), _disk()
    problems = [f"{row['name']} {row['installed']}: tested with {row['tested']}" for row in versions if row["problem"]]
    if any(row["problem"] and row["installed"] != "missing" for row in versions if row["name"] == "trl"):
        problems += _changed_seams()
    problems += [f"plugin {row['name']} ({row['origin']}): {row['state']}" for row in plugins if row["problem"]]
    problems += [f"{row['path']}: {row['problem']}" for row in disk if row["problem"]]
    report = {"system": system, "versions": versions, "plugins": plugins, "sandbox": sandbox, "disk": disk}
    return {**report, "problems": problems}


def render(data: dict[str, Any]) -> str:
    """Return the page."""
    versions = [(row["name"], row["installed"], row["tested"]) for row in data["versions"]]
    plugins = [(row["name"], row["origin"], row["state"]) for row in data["plugins"]]
    disk = [(row["path"], f"{row['free_gib']:.1f} GiB free", row["problem"]) for row in data["disk"]]
    sections = {
        "system": columns(data["system"].items()),
        "versions (installed, tested)": columns(versions),
        "plugins": columns(plugins),
        "sandbox": f"  {data['sandbox']}",
        "disk": columns(disk),
        "problems": "\n".join(f"  {problem}" for problem in data["problems"]) or "  none",
    }
    return "".join(titled(title, text) for title, text in sections.items()).lstrip()


def switch(off: str | None, on: str | None) -> list[str]:
    """Disable and enable a plugin, each by its name or that of its package (``rlm-math``); return those disabled."""
    names = sorted({plugin.name for plugin, _ in installed()} | disabled())
    for name in filter(None, (off, on)):
        plugin = name.removeprefix("rlm-")
        if plugin not in names:
            problem, hint = f"no plugin '{name}' is installed", nearest(plugin, names)
            raise RlmError(problem, allowed=", ".join(names), hint=hint)
        set_disabled(plugin, disable=name == off)
    return sorted(disabled())


def _system() -> dict[str, str]:
    machine = hardware()
    settings = [f"{name}={os.environ[name]}" for name in sorted(VARIABLES) if name in os.environ]
    state = git_state(Path(rlm_plugins.__file__).parent)
    commit = f", commit {state['commit'][:12]}" + " (changed)" * state.get("changed", False) if state else ""
    return {
        "rlm": rlm_plugins.__version__ + commit,
        "python": f"{platform.python_version()}, {sys.executable}",
        "platform": platform.platform(),
        "processor": f"{machine['machine']}, {machine['cores']} cores, {machine['threads']} threads of torch",
        "memory": f"{machine['memory_gib']} GiB",
        "accelerators": ", ".join(machine["accelerators"]) or "none",
        "environment": " ".join(settings) or "none set",
    }


def _versions() -> Rows:
    """Return a row per dependency: the installed version beside the range that this package is tested with."""
    rows = []
    for requirement in map(Requirement, importlib.metadata.requires("rlm-plugins") or ()):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = importlib.metadata.version(requirement.name)
            is_sound = requirement.specifier.contains(installed, prereleases=True)
        except importlib.metadata.PackageNotFoundError:
            installed, is_sound = "missing", False
        tested = str(requirement.specifier) or "any"
        rows.append({"name": requirement.name, "installed": installed, "tested": tested, "problem": not is_sound})
    return rows


def _changed_seams() -> list[str]:
    """Return a line for each internal of TRL that another release has changed; importing TRL takes seconds."""
    try:
        from rlm_lab import trl_seams
    except ImportError as error:
        return [f"trl: {error}"]
    return trl_seams.changed()


def _plugins() -> Rows:
    rows = []
    registry = Registry()
    registry.load_all()
    for plugin in registry.plugins.values():
        error = f"{type(plugin.error).__name__}: {plugin.error}".partition("\n")[0] if plugin.error else ""
        state = error or required_version(plugin.origin) or "ok"
        rows.append({"name": plugin.name, "origin": plugin.origin, "state": state, "problem": state != "ok"})
    off = [{"name": name, "origin": "", "state": "disabled", "problem": False} for name in sorted(disabled())]
    return rows + off


def _sandbox() -> str:
    """Return the active locks of the sandbox for code, or why there is none."""
    try:
        from rlm_sandbox.local import Local
    except ImportError:
        return "rlm-sandbox is not installed: programs of completions cannot be run"
    sandbox = Local(size=1)
    try:
        sandbox.start()
    except Exception as error:
        return f"cannot isolate programs: {error}"
    return str(sandbox.status_line)


def _disk() -> Rows:
    cache = Path(os.environ.get("HF_HOME") or Path.home() / ".cache")
    rows = []
    for path in dict.fromkeys((Path.cwd(), cache, Path(tempfile.gettempdir()))):
        existing = next(p for p in (path, *path.parents) if p.exists())
        free = shutil.disk_usage(existing).free / 2**30
        problem = f"only {free:.1f} GiB are free" if free < LEAST_DISK else ""
        if kind := local_locks(existing):
            problem = problem or f"the locks of {kind} hold on one host: train into a folder from one host at a time"
        problem = problem if os.access(existing, os.W_OK) else "is not writable"
        rows.append({"path": str(path), "free_gib": free, "problem": problem})
    return rows


_LOCAL_LOCKS = re.compile(r"^fuse\.|^lustre .*\blocalflock\b|^nfs\S* .*\b(nolock|local_lock=(all|flock))\b")
"""Type and options of file systems of several hosts on which a lock holds on one of them."""


def local_locks(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the type of the file system of a folder if its locks hold on this host only; otherwise an empty string.

    Args:
        folder: An existing folder.
        mounts: List of the mounted file systems.
    """
    best, kind = -1, ""
    with contextlib.suppress(OSError):
        for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
            fields, _, system = line.partition(" - ")
            mount = fields.split()[4].replace("\\040", " ")
            if len(mount) > best and folder.resolve().is_relative_to(mount):
                best, kind = len(mount), system
    return kind.split()[0] if _LOCAL_LOCKS.search(kind) else ""
