"""The families of cases by name, and which one belongs to which reward."""

from __future__ import annotations

from rlm_audit.case import Family
from rlm_plugins.errors import RlmError
from rlm_plugins.registry.import_path import import_object

FAMILIES = {
    "numbers": "rlm_audit.numbers:FAMILY",
    "mathematics": "rlm_audit.mathematics:FAMILY",
    "code": "rlm_code.audit_cases:FAMILY",
    "repairs": "rlm_code.repair_audit:FAMILY",
    "gym": "rlm_gym.audit_cases:FAMILY",
    "worlds": "rlm_worlds.audit_cases:FAMILY",
}
"""Name → address of a `Family`; imported when it is used."""

_OF_REWARD = {
    "accuracy": "numbers",
    "math_accuracy": "mathematics",
    "code_tests": "code",
    "gym_score": "gym",
    "world_score": "worlds",
}


def default_family(reward: str) -> str:
    """Return the name of the family of a reward.

    Raises:
        RlmError: It has none of its own.
    """
    if reward not in _OF_REWARD:
        problem = f"no cases are known for '{reward}'"
        raise RlmError(problem, where="--cases", allowed=", ".join(FAMILIES), hint="or `--cases file.py:FAMILY`")
    return _OF_REWARD[reward]


def family_of(name: str) -> Family:
    """Return a family by its name or address.

    Raises:
        RlmError: It is unknown, or no `Family`.
    """
    if name not in FAMILIES and ":" not in name:
        raise RlmError(f"unknown cases '{name}'", where="--cases", allowed=f"{', '.join(FAMILIES)}, or file.py:FAMILY")
    family = import_object(FAMILIES.get(name, name), where="--cases")
    if not isinstance(family, Family):
        raise RlmError(f"expected an rlm_audit.Family at '{name}', got {type(family).__name__}", where="--cases")
    return family
