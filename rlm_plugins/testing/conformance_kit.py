"""`conformance`: the battery of a hook as one parametrised test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, errors, given, settings
from hypothesis import strategies as st

from rlm_plugins import testing
from rlm_plugins.errors import PluginError, RlmError, nearest
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.registry.part import Part
from rlm_plugins.testing import behaviour_laws as manners
from rlm_plugins.testing import environment_laws as worlds
from rlm_plugins.testing import generator_laws as generators
from rlm_plugins.testing import invariance_laws as invariances
from rlm_plugins.testing import reward_laws as rewards
from rlm_plugins.testing import rollout_laws as sources
from rlm_plugins.testing import signature_laws as signatures
from rlm_plugins.testing.law import Law, battery
from rlm_plugins.testing.part_under_test import LawBroken, Subject, failure
from rlm_plugins.testing.text_samples import require_columns

__all__ = ["conformance", "generators", "invariances", "manners", "rewards", "signatures", "sources", "worlds"]


def conformance(
    hook: str,
    target: Any,
    *,
    knobs: Mapping[str, Any] | None = None,
    exceptions: Mapping[str, str] | None = None,
    columns: Mapping[str, Any] | None = None,
) -> Callable[[str], None]:
    """A test of every law that `hook` has; assign it to a name that begins with ``test_``.

    Args:
        hook: The hook that offers the part, as in ``def rlm_rewards():``.
        target: The part: a function, a class, or (``rlm_algorithms``) a Row.
        knobs: Knob → value, where the default is not meant or there is none.
        exceptions: Law → why this part breaks it on purpose. That it does is tested as well.
        columns: Of rewards: column of the data set → what it holds, a list or a hypothesis strategy. ``prompts``
            and ``completions`` may be given too; odd texts are always added to completions.

    Raises:
        PluginError: No such hook, no such law, or a column that nothing is known about.
    """
    if hook not in HOOKS:
        raise PluginError(f"there is no hook '{hook}'", allowed=", ".join(HOOKS), hint=nearest(hook, HOOKS))
    part = Part(hook, getattr(target, "__name__", type(target).__name__), _plugin(target), target)
    subject = Subject(part, dict(knobs or {}), dict(columns or {}))
    require_columns(subject)
    laws = {law.name: law for law in battery(subject)}
    excused = dict(exceptions or {})
    for name in excused:
        if name not in laws:
            raise PluginError(
                f"'{part.name}' is under no law '{name}'", allowed=", ".join(laws), hint=nearest(name, laws)
            )

    @pytest.mark.parametrize("law", list(laws))
    def test(law: str) -> None:
        verdict(laws[law], subject, excused.get(law))

    test.__doc__ = f"{part.full_name} keeps the laws of {hook}."
    test.subject = subject  # type: ignore[attr-defined]  # for tests that ask which parts were tested
    return test


def _plugin(target: Any) -> str:
    module = inspect.getmodule(target)
    return module.__name__.split(".")[0] if module else "?"


def verdict(law: Law, subject: Subject, reason: str | None) -> None:
    """Tries a law; with a `reason`, the law must be broken."""
    broken = tried(law, subject, wanted=reason is not None)
    if broken is None and reason is not None:
        pytest.fail(
            f"'{subject.part.name}' keeps the law '{law.name}' ({law.says.lower()}): remove the exception «{reason}»",
            pytrace=False,
        )
    if broken is not None and reason is None:
        pytest.fail(told(law, subject, broken), pytrace=False)


def tried(law: Law, subject: Subject, *, wanted: bool = False) -> LawBroken | None:
    """The smallest example that breaks `law`, or None; where one is `wanted`, the first of five times as many."""

    @settings(
        max_examples=max(1, round(testing.examples() * law.share)) * (5 if wanted else 1),
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,) if wanted else (Phase.generate, Phase.shrink),
    )
    @given(st.data())
    def search(data: Any) -> None:
        law.check(subject, data.draw)

    try:
        search()
    except LawBroken as broken:
        return broken
    except (errors.Flaky, errors.FlakyStrategyDefinition) as flaky:
        found = [e for e in getattr(flaky, "exceptions", ()) if isinstance(e, LawBroken)]
        return LawBroken("it does not answer the same twice" + "".join(f"; once {e.found}" for e in found[:1]))
    except RlmError as error:
        return LawBroken(str(error))
    except Exception as error:
        return LawBroken(failure(error))
    return None


def told(law: Law, subject: Subject, broken: LawBroken) -> str:
    """The report of a broken law."""
    part, knobs = subject.part, ", ".join(f"{k}={v!r}" for k, v in subject.knobs.items())
    lines = [
        f"{part.name}({knobs}) breaks the law '{law.name}' of {part.hook}  ({part.file})",
        f"  law      {law.says}",
        f"  found    {broken.found}",
    ]
    width = max(map(len, broken.example), default=0)
    lines += [f"  example  {name:<{width}}  {_brief(value)}" for name, value in broken.example.items()]
    return "\n".join(lines)


def _brief(value: object) -> str:
    text = repr(value.tolist() if hasattr(value, "tolist") else value)
    return text if len(text) < 400 else f"{text[:400]}…"
