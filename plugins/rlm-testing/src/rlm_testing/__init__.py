"""Conformance kit: property-based tests of all laws of a part's hook, in three lines.

::

    from rlm_example import brevity
    from rlm_testing import conformance

    test_brevity = conformance("rlm_rewards", brevity)

Every law of the hook becomes a test, ``test_brevity[order]``; hypothesis searches the smallest batch that violates
it. A part may violate a law on purpose: the exception is declared, and tested in turn::

    test_batch_scale = conformance(
        "rlm_advantages", group_relative, knobs={"scale": "batch"},
        exceptions={"isolation": "the std is that of the whole batch"},
    )

The laws, by the names that ``exceptions`` takes:

- every part: contract;
- parts of the equation: shape, optional, finite, precision, device, repeat, purity, padding, width, order, empty;
  in the scoring phase also isolation (of groups), labels (of groups) and ties; in the loss phase also split (into
  micro-batches) and gradient; of classes also state, and update where they have an ``update``; of advantages,
  ratios and policy losses with ``is_unbiased = True`` also bias (of the expected gradient; requires rlm-lab);
- rewards: numbers, order, isolation, repeat, purity, and state of classes;
- environments: environment_spec, held_out, repeat, episode; rollouts: completions; generators: continues; samplers:
  indices, or choice if called before every generation; models: source; algorithms: algorithm.

This module is also a pytest plugin, loaded in every pytest run; so importing it imports neither torch nor
hypothesis. Recipes that tests run are trusted: it sets ``RLM_TRUST=1``.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from rlm_testing.conformance_kit import conformance
    from rlm_testing.strategies import batches

__all__ = ["batches", "conformance"]

_MODULES = {"batches": "rlm_testing.strategies", "conformance": "rlm_testing.conformance_kit"}
_examples = 20
_bias = False


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    try:
        return getattr(importlib.import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"the conformance kit requires {error.name}: pip install {error.name}") from error


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options ``--rlm-examples`` and ``--rlm-bias``."""
    group = parser.getgroup("rlm-plugins")
    group.addoption("--rlm-bias", action="store_true", help="print the bias of advantages, ratios and policy losses")
    group.addoption(
        "--rlm-examples", type=int, default=_examples, help="examples per law of the conformance kit (default: 20)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read the options, register the marker ``conformance``, and trust the tests' recipes."""
    global _bias, _examples
    os.environ.setdefault("RLM_TRUST", "1")
    _examples, _bias = config.getoption("--rlm-examples"), config.getoption("--rlm-bias")
    config.addinivalue_line("markers", "conformance: one law of one part, on `--rlm-examples` examples")


def pytest_runtest_teardown() -> None:
    """Undo the limit of addresses that a command in this process has set."""
    import_path = sys.modules.get("rlm_plugins.registry.loading")
    if import_path is not None:
        import_path.limit(None)


def examples() -> int:
    """Return the number of examples per law: ``--rlm-examples``."""
    return _examples


def measures_bias() -> bool:
    """Return True with ``--rlm-bias``: the bias of every part is measured."""
    return _bias
