"""Mathematical answers: notations of one value, small changes, other answers, whole completions and hostile texts."""

from __future__ import annotations

from dataclasses import replace

from rlm_audit.case import Family
from rlm_audit.kinds import generators
from rlm_audit.mathematics import completions
from rlm_audit.mathematics.spelling import spell
from rlm_audit.mathematics.values import NUMBERS_AND_FUNCTIONS, SEVERAL_VALUES_AND_WORDS

_WORDS = ("choice", "option", "word", "no solution", "product of letters")
KINDS = {
    name: kind if name in _WORDS else replace(kind, spell=spell)
    for name, kind in {**NUMBERS_AND_FUNCTIONS, **SEVERAL_VALUES_AND_WORDS}.items()
}
FORM = "The answer is $\\boxed{{answer}}$."
FAMILY = Family({**generators(KINDS), **completions.generators()}, form=FORM)
"""Cases for rewards that compare mathematical answers in a box."""
