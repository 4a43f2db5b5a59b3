"""The manifest of a run: everything that it starts from, by name and by hash, and its check when the run resumes.

::

    id, started, command, folder, git an identity, also in checkpoints; when, how, from which commit
    python, platform, hardware        on what
    processes                         how many of them
    packages, version                 versions of libraries and of plugins
    given                             the addresses that the recipe or the command line sets; others are defaults
    recipe                            the resolved recipe: every knob, seed and default of the parts
    code, data, files                 digests of code, of the examples in their order, of paths of parts
    stages                            per stage that began: digests of base weights and tokenizer, fields of its trainer
    tuning                            values of kernels that were chosen by measurement
    changes                           differences that were allowed when the run was resumed
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from rlm_plugins.durable.files import file_errors, seal_digest, write_file
from rlm_plugins.errors import RlmError, nearest
from rlm_plugins.lazy import psutil, torch
from rlm_plugins.models.fingerprints import digest_of_path, digest_of_rows
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe.compose import compose, resolved
from rlm_plugins.recipe.foreign_code import RECEIVERS, ForeignCode, foreign_code
from rlm_plugins.recipe.paths import PATH_KNOBS, format_path, leaves
from rlm_plugins.registry import Registry
from rlm_plugins.run.folder import DONE, Run
from rlm_plugins.stage import Stage
from rlm_plugins.workers.distributed import gather_lists, num_launched

PACKAGES = (
    *("rlm-plugins", "torch", "trl", "transformers", "peft", "accelerate", "datasets"),
    *("tokenizers", "safetensors", "numpy", "bitsandbytes", "vllm", "flash-attn"),
)


def provenance() -> dict[str, Any]:
    """Return the entries of the manifest that describe this process and machine."""
    repositories = {"working folder": git_state(Path.cwd()), "rlm-plugins": git_state(Path(__file__).parent)}
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
    """Return host, processor, the instructions that torch uses, cores, threads, memory and accelerators."""
    cuda = torch.cuda
    return {
        "host": platform.node(),
        "machine": platform.machine(),
        "processor": processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "accelerators": [cuda.get_device_name(i) for i in range(cuda.device_count())] if cuda.is_available() else [],
    }


def processor() -> str:
    """Return the name of the processor, with family and model if the system reports them."""
    fields: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines():
            key, _, value = line.partition(":")
            fields[key.strip()] = value.strip()
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{key.removeprefix('cpu ')} {fields[key]}" for key in ("cpu family", "model") if key in fields]
    return ", ".join([name, *numbers])


def git_state(folder: Path) -> dict[str, Any]:
    """Return commit of a working tree, and True if it has changes, unless filters would run; empty outside of one."""
    # a configuration in the tree could name programs that git would start
    no_programs = (
        "core.fsmonitor=false",
        f"core.hooksPath={os.devnull}",
        "core.sshCommand=false",
        "protocol.allow=never",
    )
    safe = ("git", "-C", str(folder), *chain.from_iterable(("-c", setting) for setting in no_programs))
    try:
        commit = _output_of_git(*safe, "rev-parse", "HEAD")
        settings = _output_of_git(*safe, "config", "--includes", "--show-scope", "--name-only", "--list").splitlines()
        if any(line.startswith(("local", "worktree")) and "filter." in line for line in settings):
            return {"commit": commit}
        changed = _output_of_git(*safe, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules")
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": commit, "changed": bool(changed)}


def _output_of_git(*command: str) -> str:
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10, stdin=subprocess.DEVNULL)
    return process.stdout.strip()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


FILE_MARK = " sha256:"
"""Between path and digest in the origin of a single-file plugin."""
PLUGINS = "plugins"
"""Folder of the copies of single-file plugins."""
_TRAINER_FILES = ("deepspeed", "fsdp_config", "accelerator_config")


def manifest_of(stages: Sequence[Stage], recipe: Recipe, registry: Registry) -> dict[str, Any]:
    """Return the manifest of a run that starts now."""
    parts = [part for stage in stages for part in stage.parts()]
    origins = {name: registry.plugins[name].origin for name in sorted({part.part.plugin for part in parts})}
    data = {
        stage.name: {
            "train": digest_of_rows(stage.environment_spec.train),
            "held_out": digest_of_rows(stage.environment_spec.test),
        }
        for stage in stages
    }
    entries = {
        "id": uuid.uuid4().hex,
        **provenance(),
        "processes": num_launched(),
        "overrides": list(recipe.overrides),
        "given": [address for address, origin in recipe.origins.items() if "line" in origin],
        "recipe": portable(resolved(stages, recipe)),
        "version": {name: origin for name, origin in origins.items() if FILE_MARK not in origin},
        "code": code_of(foreign_code(recipe, is_run=True)),
        "data": data,
        "files": files_of(resolved(stages, recipe)),
        "stages": {},
    }
    plain: dict[str, Any] = json.loads(json.dumps(entries, default=str))
    return plain


def files_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return address → digest of each file or folder that a part or the trainer reads (a reward model, say).

    >>> files_of({"rewards": [{"name": "reward_model", "path": "org/model"}], "environment": {"path": "/etc/hosts"}})
    {}
    """
    digests = {}
    for path, value in leaves(document):
        is_path = isinstance(value, str) and path[-1] in (*PATH_KNOBS, *_TRAINER_FILES) and os.path.isabs(value)
        if is_path and not {"environment", "model"} & set(path[:-1]) and Path(value).exists():
            digests[format_path(path)] = digest_of_path(Path(value))
    return digests


def portable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe whose single-file plugins are the copies in the run folder.

    >>> Path(portable({"plugins": {"load": ["/home/me/part.py"]}})["plugins"]["load"][0]).parts
    ('plugins', 'part.py')
    """
    plugins = document.get("plugins")
    if not isinstance(plugins, dict) or "load" not in plugins:
        return dict(document)
    return {**document, "plugins": {**plugins, "load": [f"{PLUGINS}/{Path(path).name}" for path in plugins["load"]]}}


def code_of(code: Sequence[ForeignCode]) -> dict[str, str]:
    """Return the name of each piece of foreign code → its hash or version."""
    listed = [item for item in code if item.kind not in RECEIVERS]
    return {Path(item.name).name if item.kind == "file" else item.name: item.version for item in listed}


_ABSENT = object()
_COMPARED = ("processes", "version", "packages", "code", "data", "files", "result")
BACKUP = "recipe.old.yaml"
"""File with the recipe of a run before changes were allowed."""

Change = tuple[str, str, str]
"""Key, value in the run, value now."""


def check_resumable(
    folder: Path, recipe: Recipe, registry: Registry, *, allow_changed: Collection[str] = (), exact: bool = False
) -> None:
    """Compare the inputs of a run with the current ones, and write allowed changes into its folder."""
    run, stages = Run(folder), compose(recipe, registry)
    recorded, current = run.manifest(), manifest_of(stages, recipe, registry)
    entries = {key: recorded.get(key, {}) for key in _COMPARED}
    old = {**recorded["recipe"], **entries, "result": _recorded_results(folder)}
    new = current["recipe"] | {key: current[key] for key in _COMPARED if key in current}
    new["packages"] = {name: version for name, version in new["packages"].items() if name in old["packages"]}
    new["result"] = {name: seal_digest(_output(folder, stages, name)) for name in old["result"]}
    changed = changes(old, new)
    refuse(folder, changed, allow_changed)
    others = changes(_numeric(recorded), _numeric(current))
    if all(any(section.environment for section in stage.sections.values()) for stage in stages):
        others = [change for change in others if change[0] != "hardware.processor"]
    if others:
        listed = "; ".join(f"{key}: {before} in the run, {now} now" for key, before, now in others)
        if exact:
            hint = "resume on such a machine, or leave out --exact; `speed: portable` makes new runs independent of it"
            raise RlmError(f"numbers would be rounded differently: {listed}", where=str(folder), hint=hint)
        run.log_line(f"{folder}: {listed}; sums are rounded differently from here on, so samples may differ too")
    if (count := next((change for change in changed if change[0] == "processes"), None)) is not None:
        run.log_line(
            f"{folder}: processes: {count[1]} before, {count[2]} now; the random numbers start again from the seed"
        )
    if any(not key.startswith("result.") for key, *_ in changed):
        write_file(folder / BACKUP, (folder / "recipe.yaml").read_bytes())
        history = [*recorded.get("changes", ()), *({"key": k, "old": a, "new": b} for k, a, b in changed)]
        unchanged: dict[str, Any] = {key: recorded[key] for key in ("id", "started", "stages") if key in recorded}
        run.open({**current, **unchanged, "changes": history}, recipe.load)


def check_processes(manifest: Mapping[str, Any]) -> None:
    """Check that every process starts from the inputs of the main process; every process must call this."""
    inputs = gather_lists([{key: manifest[key] for key in ("recipe", *_COMPARED) if key in manifest}])
    for number, other in enumerate(inputs):
        if differing := changes(inputs[0], other):
            lines = "".join(f"\n    {key}: {_short(a)} on process 0, {_short(b)} there" for key, a, b in differing)
            hint = "copy recipe, data and packages to every machine"
            raise RlmError(f"would train something else than process 0:{lines}", where=f"process {number}", hint=hint)


_ROUNDING = ("machine", "processor", "capability", "threads", "accelerators")


def _numeric(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a machine that change the rounding of sums."""
    hardware = manifest.get("hardware", {})
    return {f"hardware.{key}": hardware.get(key) for key in _ROUNDING}


def refuse(folder: Path, changed: Sequence[Change], allowed: Collection[str]) -> None:
    """Raise an error that lists the changes, unless all are allowed."""
    refused = [change for change in changed if not any(_covers(key, change[0]) for key in allowed)]
    if not refused:
        return
    lines = "".join(f"\n    {key}: {_short(old)} in the run, {_short(new)} now" for key, old, new in refused)
    changed_keys = [key for key, *_ in changed]
    refused_keys = [key for key, *_ in refused]
    unused = [key for key in allowed if not any(map(partial(_covers, key), changed_keys))]
    hints = filter(None, (nearest(key, refused_keys) for key in unused))
    guess = "".join(f"; {hint}" for hint in hints)
    keys = " ".join(f"--allow-changed '{key}'" for key, *_ in refused[:4])
    raise RlmError(
        f"the run was started with something else:{lines}",
        where=str(folder),
        hint=f"resume with what the run was started with, or allow each change: {keys}{guess}",
    )


def check_code(folder: Path, recipe: Recipe, allowed: Collection[str] = ()) -> None:
    """Compare the code of a run's recipe with that at the start of the run; nothing is executed."""
    check_links(folder)
    if not (folder / "manifest.json").exists():
        return
    recorded = Run(folder).manifest().get("code")
    if isinstance(recorded, dict):
        current = code_of(foreign_code(recipe, is_run=True))
        refuse(folder, changes({"code": recorded}, {"code": current}), allowed)


def check_links(folder: Path) -> None:
    """Check that a run folder has only files and folders, and that links point into it."""
    root = folder.resolve()
    with file_errors(folder, "read"):
        for parent, folders, files in os.walk(folder):
            for name in (*folders, *files):
                _check_path(Path(parent) / name, root)


def _check_path(path: Path, root: Path) -> None:
    if not (path.is_symlink() or path.is_dir() or path.is_file()):
        hint = "remove it: a reader would wait for ever"
        raise RlmError("expected a file or folder, got a pipe, socket or device", where=str(path), hint=hint)
    if path.is_symlink() and not path.resolve().is_relative_to(root):
        hint = "remove this link: a run reads and writes in its own folder only"
        raise RlmError(f"this link leads out of the run folder, to {path.resolve()}", where=str(path), hint=hint)


def changes(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> list[Change]:
    """Return every difference of two documents, except the name of the recipe.

    >>> changes({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": None})
    [('a.c', '2', '3'), ('d', 'nothing', 'null')]
    """
    old, new = dict(leaves(recorded)), dict(leaves(current))
    paths = [path for path in dict.fromkeys([*old, *new]) if path != ("name",)]
    pairs = [(path, old.get(path, _ABSENT), new.get(path, _ABSENT)) for path in paths]
    return [(format_path(path), _text(a), _text(b)) for path, a, b in pairs if a != b]


def _output(folder: Path, stages: Sequence[Stage], name: str) -> Path:
    return next((folder / name / stage.output.name for stage in stages if stage.name == name), folder / name)


def _recorded_results(folder: Path) -> dict[str, str]:
    """Return stage → digest of its result, of the finished stages."""
    digests = {}
    for file in folder.glob(f"*/{DONE}"):
        try:
            digests[file.parent.name] = json.loads(file.read_bytes())["result"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
    return {name: digest for name, digest in digests.items() if isinstance(digest, str) and digest}


def _covers(key: str, changed: str) -> bool:
    return changed == key or changed.startswith((f"{key}.", f"{key}["))


def _text(value: object) -> str:
    return "nothing" if value is _ABSENT else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:24]}…{text[-4:]}"
