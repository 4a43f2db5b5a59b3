"""``rlm reward audit``: the reward with its knobs, the family of cases, and the audit's report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlm_audit.audit import Audit
from rlm_audit.case import Case, Scorer
from rlm_audit.families import default_family, family_of
from rlm_audit.report import render
from rlm_audit.reward_call import call_reward
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.overrides import parse_override
from rlm_plugins.registry import Registry
from rlm_plugins.stage_settings import Reward

TIMEOUT = 120.0
"""Seconds of one call of a reward, for a batch of cases."""

__all__ = ["audit", "render"]


def audit(
    name: str,
    settings: Sequence[str] = (),
    *,
    cases: str = "",
    number: int = 2000,
    seed: int = 0,
    form: str = "",
    accepted: float = 0.5,
    beside: Sequence[str] = (),
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
        accepted: A score above this number pays the answer.
        beside: Other libraries to compare with; ``all``: all of the family.
        classes: Classes of cases; empty: all.
        load: Single files to load as plugins.
        log: Called with a line of progress.

    Raises:
        RlmError: The reward, the family, a class or a library is unknown, or a form lacks ``{answer}``.
    """
    part = Registry(load).find("rlm_rewards", name, where="the audit")
    reward = Reward(name, part.bind(dict(map(parse_override, settings)), where=name), timeout=TIMEOUT, on_error="skip")
    chosen = cases or default_family(part.name)
    family = family_of(chosen)
    others = [*family.others] if [*beside] == ["all"] else [*beside]
    _require_known(others, [*family.others], "library", "--beside")
    _require_known(classes, [*family.generators], "class", "--class")
    if form and "{answer}" not in form:
        raise RlmError(f"expected a form with {{answer}}, got '{form}'", where="--form")
    audited = Audit(scorer(reward), family, form=form, seed=seed, accepted=accepted, others=others, log=log)
    return {"reward": name, "full_name": part.full_name, "family": chosen, **audited.report(number, classes)}


def scorer(reward: Reward) -> Scorer:
    """Return a function that scores cases with a reward; a case on which it fails has no score."""

    def score(cases: Sequence[Case], completions: Sequence[str]) -> list[float | None]:
        examples = [{"prompt": case.prompt, **case.columns} for case in cases]
        call = call_reward(reward, examples, completions)
        if call.error:
            raise RlmError(call.error, where=f"the audit of '{reward.label}'")
        return call.scores

    return score


def _require_known(names: Sequence[str], known: Sequence[str], kind: str, where: str) -> None:
    for name in names:
        if name not in known:
            raise RlmError(f"unknown {kind} '{name}'", where=where, allowed=", ".join(known) or "none")
