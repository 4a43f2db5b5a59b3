"""``rlm reward audit``: the reward with its knobs, the family of its cases, and the counts of the audit, as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlm_audit.audit import Audit
from rlm_audit.kinds import Case, Family, Scorer
from rlm_audit.reward_call import call_reward
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.document import parse_override
from rlm_plugins.registry import Registry
from rlm_plugins.registry.loading import import_object
from rlm_plugins.report.text_layout import columns, titled
from rlm_plugins.stage import Reward

TIMEOUT = 120.0
"""Seconds of one call of a reward, for a batch of cases."""
_CUT = 160
"""Characters of an example in the report."""
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


def render(report: Mapping[str, Any]) -> str:
    """Return the report as text."""
    cases = f"{report['cases']} generated cases of '{report['family']}', seed {report['seed']}"
    text = f"reward {report['reward']}: {cases}"
    text += titled("counts", columns(_counts(report)))
    listed = [each for each in report["classes"] if each["mistakes"]]
    mistakes = columns(_classes(report, listed)) if listed else f"  none in {len(report['classes'])} classes"
    text += titled("mistakes by class", mistakes)
    if lines := [line for each in listed for line in _examples(each)]:
        text += titled("mistakes, the shortest of each class", "\n".join(lines))
    return text + f"\n\nslowest batch: {1000 * report['slowest']:.1f} ms per case"


def _counts(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("", "wrong answers paid", "right answers rejected", "unscored")]
    total = report["totals"]
    counts = [f"{total[kind]['mistakes']} of {total[kind]['cases']}" for kind in ("false_accepts", "false_rejects")]
    rows.append((report["reward"], *counts, str(total["unscored"])))
    return rows


def _classes(report: Mapping[str, Any], listed: list[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("class", "must be", "cases", report["reward"])]
    rows += [(each["class"], each["expected"], str(each["cases"]), str(each["mistakes"])) for each in listed]
    return rows


def _examples(each: Mapping[str, Any]) -> list[str]:
    verdict = "rejected" if each["expected"] == "right" else "paid"
    lines = [f"  {each['class']} ({verdict})"] if each["examples"] else []
    for example in each["examples"]:
        given = ", ".join(f"{name}: {_short(value)}" for name, value in example["columns"].items())
        lines.append(f"    {given}; {verdict}: {_short(example['answer'])}")
    return lines


def _short(value: object) -> str:
    text = str(value).replace("\n", "\\n")
    return text if len(text) <= _CUT else f"{text[:_CUT]}… ({len(text)} characters)"
