"""``rlm new KIND NAME``: a package with a working part, its tests and its recipe.

The part is the example at the end of its hook's docstring.
"""

from __future__ import annotations

import ast
import inspect
import keyword
import re
import textwrap
from itertools import chain
from pathlib import Path
from string import Template
from typing import Any

from rlm_plugins import __version__, hookspecs
from rlm_plugins.durable.files import whole
from rlm_plugins.equation.hooks import HOOKS, Hook
from rlm_plugins.errors import RlmError, nearest
from rlm_plugins.registry import BUILTIN, Registry
from rlm_plugins.specs import SLOTS

_PLURALS = {"importance": "importance", "policy_loss": "policy_losses", "penalty": "penalties"}
_KINDS = "environment sampler generator reward shaper filter advantage importance policy_loss token_weight penalty"
KINDS = {kind: f"rlm_{_PLURALS.get(kind, kind + 's')}" for kind in f"{_KINDS} aggregator algorithm callback".split()}
"""Kind of a part → its hook, in batch order."""

_SKELETON = Path(__file__).parent / "skeleton"
_SPECS = {"rewards": "{{name: {}, weight: 0.1}}", "penalties": "{{name: {}, beta: 0.01}}"}
"""Recipe key → the entry of a part, if it is more than the bare name."""
_SECTIONS = {"model": "scratch", "environment": "addition", "rewards": "[accuracy]", "algorithm": "grpo"}

_MODULES = {
    "Algorithm": "rlm_plugins.specs",
    "Annotated": "typing",
    "EngineCompletions": "rlm_plugins.rollout.engine_call",
    "EnvironmentSpec": "rlm_plugins.specs",
    "Field": "pydantic",
    "Path": "pathlib",
    "RecipeError": "rlm_plugins.errors",
    "Section": "rlm_plugins.registry.setting",
    "Setting": "rlm_plugins.registry.setting",
    "StepObserver": "rlm_plugins.trainer.observer",
    "TrainerCallback": "transformers",
    "hookimpl": "rlm_plugins",
    "json": "",
    "torch": "rlm_plugins.lazy",
    "typer": "",
}
"""Name in an example → the module it is imported from; empty if it is one itself."""


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
    with whole(package) as staged:
        for path, text in files.items():
            file = staged / path.relative_to(package)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    return list(files)


def _check_name(name: str, hook: str) -> None:
    if not _is_valid(name):
        allowed = "lower-case letters, digits and '_', beginning with a letter"
        proposal = re.sub(r"\W+", "_", name).strip("_").lower()
        proposal, reason = (f"my_{name}", ": a keyword of Python") if keyword.iskeyword(name) else (proposal, "")
        hint = f"{proposal}?" if _is_valid(proposal) else ""
        raise RlmError(f"'{name}' is not a valid name{reason}", allowed=allowed, hint=hint)
    if name in names(hook):
        raise RlmError(f"'{name}' is a name that the example itself uses", hint=f"my_{name}")
    registry = Registry()
    if any(part.plugin == BUILTIN for part in registry.parts.get((hook, name), ())):
        raise RlmError(f"'{name}' is the reserved name of a built-in part", hint=f"my_{name}")
    if name in registry.plugins:
        origin = registry.plugins[name].origin
        raise RlmError(f"the plugin '{name}' is installed already: {origin}", hint="choose another name")


def _is_valid(name: str) -> bool:
    return re.fullmatch(r"[a-z][a-z0-9_]*", name) is not None and not keyword.iskeyword(name)


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
        "about": about(hook),
        "line": f"{section}: {value}",
        "lines": "\n".join(f"{key}: {text}" for key, text in {**_SECTIONS, section: value}.items()),
    }
    skeleton = {path.stem: Template(path.read_text(encoding="utf-8")) for path in _SKELETON.glob("*.txt")}
    files = {file: template.substitute(fields) for file, template in skeleton.items()}
    return {
        **{file: files[file] for file in ("pyproject.toml", "README.md", "recipe.yaml")},
        f"src/{module}/__init__.py": module_text(hook, name),
        f"tests/test_{name}.py": files["test.py"],
    }


def _section(hook: Hook, name: str) -> tuple[str, str]:
    """Return the recipe section that names the part, and its value."""
    spec = _SPECS.get(hook.key, "{}").format(name)
    value = f"[{spec}]" if hook.many else spec
    if hook.key in SLOTS:
        return "algorithm", f"{{name: grpo, {hook.key}: {value}}}"
    return hook.key, f"[accuracy, {spec}]" if hook.key == "rewards" else value


def source(hook: str) -> str:
    """Return the source of the example in the docstring of `hook`."""
    text = inspect.getdoc(getattr(hookspecs, hook)) or ""
    return textwrap.dedent(text.partition("::\n")[2]).strip("\n") + "\n"


def part_name(hook: str) -> str:
    """Return the name of the example of `hook`.

    >>> part_name("rlm_rewards")
    'brevity'
    """
    body: Any = ast.parse(source(hook)).body
    (key,) = body[-1].body[-1].value.keys
    return str(key.value)


def names(hook: str) -> set[str]:
    """Return all other names in the example of `hook`: a new part cannot have them."""
    nodes = list(ast.walk(ast.parse(source(hook))))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return (used | arguments) - {part_name(hook)}


def about(hook: str) -> str:
    """Return the first line of the docstring of the example of `hook`."""
    part: Any = ast.parse(source(hook)).body[0]
    if hook == "rlm_settings":
        return "A setting of the trainer."
    if hook == "rlm_algorithms":
        return str(next(keyword.value.value for keyword in part.value.keywords if keyword.arg == "about"))
    return (ast.get_docstring(part) or "").splitlines()[0]


def module_text(hook: str, name: str) -> str:
    """Return the example of `hook` as a module with its imports, under another name."""
    renamed = re.sub(rf"\b{part_name(hook)}\b", name, source(hook))
    spaced = re.sub(r"\n\n(?=@hookimpl)", "\n\n\n", renamed)
    nodes = [node for node in ast.walk(ast.parse(source(hook))) if isinstance(node, ast.ImportFrom)]
    own = {alias.name for alias in chain.from_iterable(node.names for node in nodes)}
    used = (names(hook) & _MODULES.keys()) - own
    imports = sorted(f"from {_MODULES[x]} import {x}" if _MODULES[x] else f"import {x}" for x in used)
    gap = ["", ""] if spaced.startswith(("def", "class")) else [""]
    return "\n".join([f'"""{about(hook)}"""', "", *imports, *gap, spaced])
