"""Mathematical answers: notations of one value, small changes, other answers, whole completions and hostile texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlm_audit.kinds import Family, Kind, generators, read_kinds
from rlm_audit.mathematics import completions
from rlm_audit.mathematics.spelling import spell

_IDENTITIES = (
    (r"\sin(2 \cdot <k>x)", r"2\sin(<k>x)\cos(<k>x)", r"\sin(<k>x)\cos(<k>x)"),
    (r"\cos(2 \cdot <k>x)", r"1-2\sin^2(<k>x)", r"1-\sin^2(<k>x)"),
    (r"\tan^2(<k>x)+1", r"\sec^2(<k>x)", r"\sec(<k>x)"),
    (r"\sin^2(<k>x)+\cos^2(<k>x)", "1", "<k>+1"),
    ("e^{<k>x}", "(e^x)^<k>", "e^{x^<k>}+1"),
    (r"\ln(x^<k>)+\ln 2", r"\ln(2x^<k>)", r"\ln(x^<k>+2)"),
    ("|<k>x|", r"\sqrt{<k>^2x^2}", "<k>x"),
    ("x^{<k>/3}", r"\sqrt[3]{x^<k>}", "x^{<k>}+1"),
    (r"\frac{x^<k>-1}{x-1}", r"\frac{1-x^<k>}{1-x}", r"\frac{x^<k>+1}{x-1}"),
    ("2^{n+<k>}", r"2^<k> \cdot 2^n", "2^{n<k>}"),
    ("(-1)^{n+<k>}", "(-1)^n(-1)^<k>", "(-1)^{n+<k>+1}"),
    (r"\frac{n(n+<k>)}{2}", r"\frac{n^2+<k>n}{2}", r"\frac{n^2+<k>}{2}"),
    ("n!", "n(n-1)!", "<k>n!+1"),
    ("<k>xy+x^2", "x(x+<k>y)", "x(y+<k>x)"),
    ("(a+b)^2-<k>ab", "a^2+b^2+(2-<k>)ab", "a^2+b^2+<k>ab+1"),
    (r"\cosh(<k>x)", r"\frac{e^{<k>x}+e^{-<k>x}}{2}", r"\frac{e^{<k>x}-e^{-<k>x}}{2}"),
)
"""(expression, an equal one, a different one), each with a number k."""
IDENTITIES = {
    f"identity of {expression}": Kind(
        draw={"k": "r(2,8)"},
        same=(expression, equal, f"{expression}+x-x"),
        other=(different, f"-({equal})", f"{equal}+1", f"{equal}+10^{{-<r(10,300)>}}"),
    )
    for expression, equal, different in _IDENTITIES
}
NUMBERS_AND_FUNCTIONS = IDENTITIES | read_kinds(
    Path(__file__).with_name("numbers_and_functions.txt").read_text(encoding="utf-8")
)
SEVERAL_VALUES_AND_WORDS = read_kinds(
    Path(__file__).with_name("several_values_and_words.txt").read_text(encoding="utf-8")
)
"""Name → kind of answer."""

_WORDS = ("choice", "option", "word", "no solution", "product of letters")
KINDS = {
    name: kind if name in _WORDS else replace(kind, spell=spell)
    for name, kind in {**NUMBERS_AND_FUNCTIONS, **SEVERAL_VALUES_AND_WORDS}.items()
}
FORM = "The answer is $\\boxed{{answer}}$."
FAMILY = Family({**generators(KINDS), **completions.generators()}, form=FORM)
"""Cases for rewards that compare mathematical answers in a box."""
