"""``rlm new KIND NAME``: a package with a working part, its tests and its recipe."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template

from rlm_plugins import __version__
from rlm_plugins.algorithm import SLOTS
from rlm_plugins.cli import docstring_examples as examples
from rlm_plugins.errors import RlmError, nearest
from rlm_plugins.hooks import HOOKS, Hook
from rlm_plugins.registry import BUILTIN, Registry

KINDS = {
    "environment": "rlm_environments",
    "sampler": "rlm_samplers",
    "generator": "rlm_generators",
    "reward": "rlm_rewards",
    "shaper": "rlm_shapers",
    "filter": "rlm_filters",
    "advantage": "rlm_advantages",
    "importance": "rlm_importance",
    "policy_loss": "rlm_policy_losses",
    "token_weight": "rlm_token_weights",
    "penalty": "rlm_penalties",
    "aggregator": "rlm_aggregators",
    "algorithm": "rlm_algorithms",
    "callback": "rlm_callbacks",
}
"""Kind of a part → its hook, in batch order."""

_SKELETON = Path(__file__).parent / "skeleton"
_SPECS = {"rewards": "{{name: {}, weight: 0.1}}", "penalties": "{{name: {}, beta: 0.01}}"}
"""Recipe key → the entry of a part, if it is more than the bare name."""
_SECTIONS = {
    "model": "scratch",
    "environment": "addition",
    "rewards": "[accuracy]",
    "algorithm": "grpo",
}


def create(kind: str, name: str, folder: Path) -> list[Path]:
    """Write the package ``rlm-NAME`` into `folder`.

    Args:
        kind: One of :data:`KINDS`.
        name: Name of the part, of the plugin and, after ``rlm_``, of the module.
        folder: Parent folder; created if it does not exist.

    Returns:
        The files.

    Raises:
        RlmError: The kind is unknown, the name is invalid or taken, or the package exists.
    """
    if kind not in KINDS:
        raise RlmError(f"unknown plugin kind '{kind}'", allowed=", ".join(KINDS), hint=nearest(kind, KINDS))
    _check_name(name, KINDS[kind])
    package = folder / f"rlm-{name.replace('_', '-')}"
    if package.exists():
        raise RlmError(f"{package} exists already", hint="no file was written: choose another name or --folder")
    files = {package / path: text for path, text in _files(KINDS[kind], name, package.name).items()}
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RlmError(f"{package} cannot be written: {error}") from error
    return list(files)


def _check_name(name: str, hook: str) -> None:
    allowed = "lower-case letters, digits and '_', beginning with a letter"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        proposal = re.sub(r"\W+", "_", name).strip("_").lower()
        is_valid = re.fullmatch(r"[a-z][a-z0-9_]*", proposal) and not keyword.iskeyword(proposal)
        raise RlmError(f"'{name}' is not a valid name", allowed=allowed, hint=f"{proposal}?" if is_valid else "")
    if name in examples.names(hook):
        raise RlmError(f"'{name}' is a name that the example itself uses", hint=f"my_{name}")
    registry = Registry()
    if any(part.plugin == BUILTIN for part in registry.parts.get((hook, name), ())):
        raise RlmError(f"'{name}' is the reserved name of a built-in part", hint=f"my_{name}")
    if name in registry.plugins:
        origin = registry.plugins[name].origin
        raise RlmError(f"the plugin '{name}' is installed already: {origin}", hint="choose another name")


def _files(hook: str, name: str, distribution: str) -> dict[str, str]:
    """Return the text of each file by its path in the package."""
    module, (section, value) = f"rlm_{name}", _section(HOOKS[hook], name)
    fields = {
        "distribution": distribution,
        "name": name,
        "module": module,
        "hook": hook,
        "key": HOOKS[hook].key,
        "version": __version__,
        "about": examples.about(hook),
        "line": f"{section}: {value}",
        "lines": "\n".join(f"{key}: {text}" for key, text in {**_SECTIONS, section: value}.items()),
    }
    return {
        "pyproject.toml": _filled("pyproject.toml", fields),
        "README.md": _filled("README.md", fields),
        "recipe.yaml": _filled("recipe.yaml", fields),
        f"src/{module}/__init__.py": examples.module(hook, name),
        f"tests/test_{name}.py": _filled("test.py", fields),
    }


def _filled(file: str, fields: Mapping[str, str]) -> str:
    return Template((_SKELETON / f"{file}.txt").read_text(encoding="utf-8")).substitute(fields)


def _section(hook: Hook, name: str) -> tuple[str, str]:
    """Return the recipe section that names the part, and its value."""
    spec = _SPECS.get(hook.key, "{}").format(name)
    value = f"[{spec}]" if hook.many else spec
    if hook.key in SLOTS:
        return "algorithm", f"{{name: grpo, {hook.key}: {value}}}"
    return hook.key, f"[accuracy, {spec}]" if hook.key == "rewards" else value
