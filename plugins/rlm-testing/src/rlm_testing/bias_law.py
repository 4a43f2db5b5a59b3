"""Law of the expected gradient: `rlm explain --bias` as the judge of an advantage, a ratio or a policy loss."""

from __future__ import annotations

from importlib.util import find_spec

import rlm_testing as testing
from rlm_plugins.errors import RlmError
from rlm_testing.law import Draw, LawBroken, Subject, law


def claims(subject: Subject) -> bool:
    """Return True if the part has the attribute ``is_unbiased = True``."""
    return bool(getattr(subject.part.target, "is_unbiased", False))


def _applies(subject: Subject) -> bool:
    return find_spec("rlm_lab") is not None and (claims(subject) or testing.measures_bias())


@law("rlm_advantages", "rlm_importance", "rlm_policy_losses", applies=_applies, share=0)
def bias(subject: Subject, draw: Draw) -> None:
    """Check that its expected gradient, over every group of a small policy, is the exact one if it claims so.

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
