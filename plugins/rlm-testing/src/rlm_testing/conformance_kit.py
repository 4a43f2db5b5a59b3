"""`conformance`: all laws of a hook as one parametrized test; and the law of the expected gradient."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, errors, given, settings
from hypothesis import strategies as st

import rlm_testing as testing
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.errors import PluginError, RlmError, nearest
from rlm_plugins.registry.part import Part
from rlm_testing import environment_laws, equation_laws, reward_laws
from rlm_testing.law import Draw, Law, LawBroken, Subject, battery, failure, law
from rlm_testing.reward_laws import require_columns

__all__ = ["conformance", "environment_laws", "equation_laws", "reward_laws"]  # importing laws registers them


def conformance(
    hook: str,
    target: Any,
    *,
    knobs: Mapping[str, Any] | None = None,
    exceptions: Mapping[str, str] | None = None,
    columns: Mapping[str, Any] | None = None,
) -> Callable[[str], None]:
    """Return a test of every law of `hook`; assign it to a name that begins with ``test_``.

    Args:
        hook: The hook that offers the part, as in ``def rlm_rewards():``.
        target: The part: a function, a class, or (``rlm_algorithms``) an Algorithm.
        knobs: Knob → value, where there is no default or another value is tested.
        exceptions: Law → why this part violates it on purpose, which is tested as well.
        columns: Of rewards: column of the data set → its values, a list or a hypothesis strategy. ``prompts`` and
            ``completions`` are allowed too; unusual texts are always added to completions.

    Raises:
        PluginError: The hook, a law, or the values of a column are unknown.
    """
    if hook not in HOOKS:
        raise PluginError(f"unknown hook '{hook}'", allowed=", ".join(HOOKS), hint=nearest(hook, HOOKS))
    part = Part(hook, getattr(target, "__name__", type(target).__name__), _plugin(target), target)
    subject = Subject(part, dict(knobs or {}), dict(columns or {}))
    require_columns(subject)
    laws = {law.name: law for law in battery(subject)}
    allowed = dict(exceptions or {})
    for name in allowed:
        if name not in laws:
            raise PluginError(
                f"unknown law '{name}' for '{part.name}'", allowed=", ".join(laws), hint=nearest(name, laws)
            )

    @pytest.mark.conformance
    @pytest.mark.parametrize("law", list(laws))
    def test(law: str) -> None:
        check_law(laws[law], subject, allowed.get(law))

    test.__doc__ = f"{part.full_name} obeys the laws of {hook}."
    test.subject = subject  # type: ignore[attr-defined]  # for tests of which parts are covered
    return test


def _plugin(target: Any) -> str:
    module = inspect.getmodule(target)
    return module.__name__.split(".")[0] if module else "?"


def check_law(law: Law, subject: Subject, reason: str | None) -> None:
    """Check a law; with a `reason`, check that it is violated."""
    broken = find_violation(law, subject, expected=reason is not None)
    if broken is None and reason is not None:
        pytest.fail(
            f"'{subject.part.name}' obeys the law '{law.name}' ({law.statement}): remove the exception «{reason}»",
            pytrace=False,
        )
    if broken is not None and reason is None:
        pytest.fail(report(law, subject, broken), pytrace=False)


def equality(reference: Subject) -> Law:
    """Return the law that a reward, or a part of the equation, equals `reference`."""
    laws = reward_laws if reference.part.hook == "rlm_rewards" else equation_laws
    statement = "it equals the reference, value and gradient"
    return Law("equal", statement, (), partial(laws.equals, reference), lambda _: True, share=5.0)


def find_violation(law: Law, subject: Subject, *, expected: bool = False) -> LawBroken | None:
    """Return the smallest violation of `law`, or None; if `expected`, the first of at least 100 examples."""
    examples = max(100, testing.examples()) if expected else testing.examples()

    @settings(
        max_examples=max(1, round(examples * law.share)),
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,) if expected else (Phase.generate, Phase.shrink),
    )
    @given(st.data())
    def search(data: Any) -> None:
        law.check(subject, data.draw)

    try:
        search()
    except LawBroken as broken:
        return broken
    except (errors.Flaky, errors.FlakyStrategyDefinition) as flaky:
        violations = [e for e in getattr(flaky, "exceptions", ()) if isinstance(e, LawBroken)]
        return LawBroken("its results are not reproducible" + "".join(f"; once {e.finding}" for e in violations[:1]))
    except RlmError as error:
        return LawBroken(str(error))
    except Exception as error:
        return LawBroken(failure(error))
    return None


def report(law: Law, subject: Subject, broken: LawBroken) -> str:
    """Return the report of a violation."""
    part, knobs = subject.part, ", ".join(f"{k}={v!r}" for k, v in subject.knobs.items())
    lines = [
        f"{part.name}({knobs}) violates the law '{law.name}' of {part.hook}  ({part.file})",
        f"  law      {law.statement}",
        f"  found    {broken.finding}",
    ]
    width = max(map(len, broken.example), default=0)
    lines += [f"  example  {name:<{width}}  {_brief(value)}" for name, value in broken.example.items()]
    return "\n".join(lines)


def _brief(value: object) -> str:
    text = repr(value.tolist() if hasattr(value, "tolist") else value)
    return text if len(text) < 400 else f"{text[:400]}…"


def claims(subject: Subject) -> bool:
    """Return True if the part has the attribute ``is_unbiased = True``."""
    return bool(getattr(subject.part.target, "is_unbiased", False))


def _applies(subject: Subject) -> bool:
    return find_spec("rlm_lab") is not None and (claims(subject) or testing.measures_bias())


@law("rlm_advantages", "rlm_importance", "rlm_policy_losses", applies=_applies, share=0)
def bias(subject: Subject, draw: Draw) -> None:
    """Check by `rlm explain --bias` that its expected gradient over every group is the exact one, if it claims so.

    A part claims it by the attribute ``is_unbiased = True``. With ``--rlm-bias`` that of any other is printed, as
    information (``pytest -rP`` shows it): a part may be biased on purpose. The law requires rlm-lab.
    """
    from rlm_lab.oracle import bias_of

    try:
        found = bias_of(subject.fresh())
    except RlmError as error:
        if claims(subject):
            raise
        print(f"{subject.part.name}: the bias is not measured: {error.problem}")
        return
    size = f"scale {found['scale']:.4g}, bias {found['bias']:.2%}, std of a group {found['std']:.3g}"
    if claims(subject) and (found["bias"] or not found["scale"] > 0):
        raise LawBroken(f"it claims to be unbiased, and its expected gradient has {size}", found)
    print(f"{subject.part.name}: {size} of the exact gradient")
