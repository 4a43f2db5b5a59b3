"""``rlm reward audit``: the reward with its knobs, the family of its cases, and the counts of the audit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlm_audit.audit import Audit
from rlm_audit.case import Case, Family, Scorer
from rlm_audit.reward_call import call_reward
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.document import parse_override
from rlm_plugins.registry import Registry
from rlm_plugins.registry.loading import import_object
from rlm_plugins.stage import Reward

TIMEOUT = 120.0
"""Seconds of one call of a reward, for a batch of cases."""
FAMILIES = {
    "numbers": "rlm_audit.numbers:FAMILY",
    "mathematics": "rlm_audit.mathematics:FAMILY",
    "code": "rlm_coding.audit_cases:FAMILY",
    "gym": "rlm_gym.audit_cases:FAMILY",
}
"""Name → address of a `Family`; imported when it is used."""

_OF_REWARD = {
    "accuracy": "numbers",
    "math_accuracy": "mathematics",
    "code_tests": "code",
    "gym_score": "gym",
}


def audit(
    name: str,
    settings: Sequence[str] = (),
    *,
    cases: str = "",
    number: int = 2000,
    seed: int = 0,
    form: str = "",
    accepted: float = 0.5,
    classes: Sequence[str] = (),
    load: Sequence[Path] = (),
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Audit a reward with generated cases.

    Args:
        name: Its name: ``math_accuracy``, or ``plugin/name``.
        settings: Its knobs as ``key=value``.
        cases: Name of a family, or the address of one (``file.py:FAMILY``); empty: the reward's own.
        number: Number of cases, over all classes.
        seed: Seed of the cases.
        form: Text around an answer, with ``{answer}``; empty: the family's own.
        accepted: Score above which an answer counts as accepted.
        classes: Classes of cases, by the start of their names; empty: all.
        load: Single files to load as plugins.
        log: Called with a line of progress.

    Raises:
        RlmError: The reward, the family, or a class is unknown, or a form lacks ``{answer}``.
    """
    part = Registry(load).find("rlm_rewards", name, where="the audit")
    reward = Reward(name, part.bind(dict(map(parse_override, settings)), where=name), timeout=TIMEOUT, on_error="skip")
    chosen = cases or default_family(part.name)
    family = family_of(chosen)
    chosen_classes = [key for key in family.generators if key.startswith(tuple(classes))] if classes else []
    for start in classes:
        if not any(key.startswith(start) for key in family.generators):
            kinds = dict.fromkeys(re.split("[:,]", key)[0] for key in family.generators)
            raise RlmError(f"no class of cases starts with '{start}'", where="--class", allowed=", ".join(kinds))
    if form and "{answer}" not in form:
        raise RlmError(f"expected a form with {{answer}}, got '{form}'", where="--form")
    audited = Audit(scorer(reward), family, form=form, seed=seed, accepted=accepted, log=log)
    return {"reward": name, "full_name": part.full_name, "family": chosen, **audited.report(number, chosen_classes)}


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


def scorer(reward: Reward) -> Scorer:
    """Return a function that scores cases with a reward; a case on which it fails has no score."""

    def score(cases: Sequence[Case], completions: Sequence[str]) -> list[float | None]:
        examples = [{"prompt": case.prompt, **case.columns} for case in cases]
        call = call_reward(reward, examples, completions)
        if call.error:
            raise RlmError(call.error, where=f"the audit of '{reward.label}'")
        return call.scores

    return score
