"""`rlm new KIND NAME`: a package with a part that works, its test, its recipe. What is left to write is the idea."""

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
from rlm_plugins.hookspecs import HOOKS, Hook
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
"""What can be made → the hook that offers it, in the order a batch meets them."""

_SKELETON = Path(__file__).parent / "skeleton"
_SPECS = {"rewards": "{{name: {}, weight: 0.1}}", "penalties": "{{name: {}, beta: 0.01}}"}
"""How a recipe names a part of these; elsewhere the bare name will do."""
_SECTIONS = {
    "model": "scratch",
    "environment": "addition",
    "rewards": "[accuracy]",
    "algorithm": "grpo",
}


def create(kind: str, name: str, folder: Path) -> list[Path]:
    """Writes the package ``rlm-NAME`` into `folder`.

    Args:
        kind: One of :data:`KINDS`.
        name: What the part, the plugin and (after ``rlm_``) the module are called.
        folder: Where; made when it does not exist.

    Returns:
        The files.

    Raises:
        RlmError: No such kind, a name that cannot be or is taken, or a package that is there already.
    """
    if kind not in KINDS:
        raise RlmError(f"there is no kind '{kind}'", allowed=", ".join(KINDS), hint=nearest(kind, KINDS))
    _check_name(name, KINDS[kind])
    package = folder / f"rlm-{name.replace('_', '-')}"
    if package.exists():
        raise RlmError(f"{package} exists already", hint="nothing was written: choose another name or --folder")
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
        fits = re.fullmatch(r"[a-z][a-z0-9_]*", proposal) and not keyword.iskeyword(proposal)
        raise RlmError(f"'{name}' cannot be a name", allowed=allowed, hint=f"{proposal}?" if fits else "")
    if name in examples.names(hook):
        raise RlmError(f"'{name}' is a word that the part itself uses", hint=f"my_{name}, perhaps")
    registry = Registry()
    if any(part.plugin == BUILTIN for part in registry.parts.get((hook, name), ())):
        raise RlmError(f"'{name}' is built in, and its bare name stays so", hint=f"my_{name}, perhaps")
    if name in registry.plugins:
        origin = registry.plugins[name].origin
        raise RlmError(f"a plugin is called '{name}' already: {origin}", hint="choose another name")


def _files(hook: str, name: str, distribution: str) -> dict[str, str]:
    """Path in the package → text."""
    module, (section, value) = f"rlm_{name}", _line(HOOKS[hook], name)
    words = {
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
        "pyproject.toml": _filled("pyproject.toml", words),
        "README.md": _filled("README.md", words),
        "recipe.yaml": _filled("recipe.yaml", words),
        f"src/{module}/__init__.py": examples.module(hook, name),
        f"tests/test_{name}.py": _filled("test.py", words),
    }


def _filled(file: str, words: Mapping[str, str]) -> str:
    return Template((_SKELETON / f"{file}.txt").read_text(encoding="utf-8")).substitute(words)


def _line(hook: Hook, name: str) -> tuple[str, str]:
    """The section of a recipe that names the part, and what it says."""
    spec = _SPECS.get(hook.key, "{}").format(name)
    value = f"[{spec}]" if hook.many else spec
    if hook.key in SLOTS:
        return "algorithm", f"{{name: grpo, {hook.key}: {value}}}"
    return hook.key, f"[accuracy, {spec}]" if hook.key == "rewards" else value
