"""The conformance kit: three lines, and a part goes through the battery of its hook.

::

    from rlm_example import brevity
    from rlm_plugins.testing import conformance

    test_brevity = conformance("rlm_rewards", brevity)

Every law of the hook becomes a test, ``test_brevity[order]``; hypothesis looks for the smallest batch that breaks
it. What a part does on purpose against a law is declared, and the declaration is tested in turn::

    test_batch_scale = conformance(
        "rlm_advantages", group_relative, knobs={"scale": "batch"},
        exceptions={"isolation": "the std is that of the whole batch"},
    )

The laws, by the words that ``exceptions`` uses:

- every part: contract;
- parts of the equation: shape, optional, finite, precision, device, repeat, purity, padding, width, order, empty;
  where rewards are compared also isolation (of groups), labels (of groups) and ties; where the policy learns also
  split (into micro-batches) and gradient; of classes also memory, and learning where they have an ``update``;
- rewards: numbers, order, isolation, repeat, purity, and memory of classes;
- environments: world, held_out, repeat, episode; rollouts: rows; generators: continues; samplers: indices, or choice of
  those that are asked before every generation; models: source; algorithms: row.

This module is also a pytest plugin, loaded in every pytest run; so importing it imports neither torch nor
hypothesis.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from rlm_plugins.testing.conformance_kit import conformance
    from rlm_plugins.testing.strategies import batches

__all__ = ["batches", "conformance"]

_HOMES = {"batches": "rlm_plugins.testing.strategies", "conformance": "rlm_plugins.testing.conformance_kit"}
_examples = 20


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"the conformance kit needs {error.name}: pip install 'rlm-plugins[test]'") from error


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("rlm-plugins").addoption(
        "--rlm-examples", type=int, default=_examples, help="examples per law of the conformance kit (default: 20)"
    )


def pytest_configure(config: pytest.Config) -> None:
    global _examples
    _examples = config.getoption("--rlm-examples")


def examples() -> int:
    """How many examples a law is tried on: ``--rlm-examples``."""
    return _examples
