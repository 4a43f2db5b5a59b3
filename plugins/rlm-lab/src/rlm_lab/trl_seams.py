"""TRL's internals that this package depends on: the table of them, what an installed release changed, the fused head.

`trl_seams.toml` lists every method that is overridden and every function that is not exported by ``trl``, with the
file that uses it. It has a digest per release, of the source code without comments and docstrings. ``rlm doctor`` and
the tests name what the installed release has changed. `add_release` adds its digests.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import inspect
import textwrap
import tomllib
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import Any

import trl
from trl.trainer.utils import add_fused_lm_head

from rlm_plugins.models.adapters import causal_model

TABLE = Path(__file__).with_name("trl_seams.toml")


@dataclass(frozen=True)
class Seam:
    """A method or function of TRL.

    Args:
        name: Module and qualified name, with a colon between them.
        used_by: The file of this package that overrides or calls it.
        digests: Release of TRL → digest of the source code there.
    """

    name: str
    used_by: str
    digests: dict[str, str]


def seams() -> list[Seam]:
    """Return the table."""
    return [Seam(**entry) for entry in tomllib.loads(TABLE.read_text(encoding="utf-8"))["seam"]]


def release() -> str:
    """Return the installed release of TRL, without the patch number."""
    return ".".join(trl.__version__.split(".")[:2])


def digest(name: str) -> str | None:
    """Return a digest of the source code of a function without comments and docstrings; None if it does not exist."""
    module, _, qualified = name.partition(":")
    try:
        target = functools.reduce(getattr, qualified.split("."), importlib.import_module(module))
    except (ImportError, AttributeError):
        return None
    tree = ast.parse(textwrap.dedent(inspect.getsource(target)))
    (definition,) = tree.body
    if isinstance(definition, ast.FunctionDef) and ast.get_docstring(definition) is not None:
        definition.body = definition.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:12]


def changed() -> list[str]:
    """Return a line for each seam whose code in the installed release is not that of a release in the table."""
    lines = []
    for seam in seams():
        installed = digest(seam.name)
        if installed is None:
            lines.append(f"{seam.name} does not exist in TRL {trl.__version__}; {seam.used_by} uses it")
        elif installed not in seam.digests.values():
            lines.append(f"{seam.name} is another in TRL {trl.__version__}; {seam.used_by} uses it")
    return lines


class FusedHead:
    """TRL's fused LM head of a model, whose temperature can change during training.

    TRL fixes the temperature when it adds the head. A new head is added on top of TRL's, which then only calls the
    forward pass of the model. Wrappers that accelerate adds later stay in place.
    """

    def __init__(self, model: Any, accelerator: Any, cast_to_fp32: bool) -> None:
        self._model = base = causal_model(accelerator.unwrap_model(model))
        self._trl, self._cast_to_fp32 = base.forward, cast_to_fp32
        self._current = base.forward.__func__
        autocast = accelerator.autocast if hasattr(base, "_original_forward") else nullcontext

        @functools.wraps(type(base).forward)
        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            with autocast():
                return self._current(module, *args, **kwargs)

        base.forward = MethodType(forward, base)

    def set_temperature(self, temperature: float) -> None:
        """Divide the logits by `temperature` from now on."""
        wrapped, self._model.forward = self._model.forward, self._trl
        outputs = ("log_probs", "entropy")
        add_fused_lm_head(self._model, temperature, cast_lm_head_to_fp32=self._cast_to_fp32, outputs=outputs)
        self._current, self._model.forward = self._model.forward.__func__, wrapped


def add_release() -> None:
    """Write the table with the digests of the installed release."""
    lines = ["# `digests` are written by `rlm_plugins.trainer.trl_seams.add_release()`."]
    for seam in seams():
        digests = {**seam.digests, release(): digest(seam.name) or "absent"}
        shown = ", ".join(f'"{version}" = "{value}"' for version, value in sorted(digests.items()))
        lines += ["", "[[seam]]", f'name = "{seam.name}"', f'used_by = "{seam.used_by}"', f"digests = {{ {shown} }}"]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
