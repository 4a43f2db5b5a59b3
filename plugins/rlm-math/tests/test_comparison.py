"""Comparison of parsed answers: equal pairs, different pairs, and the time that hostile ones take."""

from __future__ import annotations

import pytest
from rlm_math.algebra.comparison import are_same
from rlm_math.algebra.evaluation import Rules
from rlm_math.algebra.nodes import UndefinedError, UnreadableError
from rlm_math.algebra.value_parser import parse_value
from rlm_math.notation import normalize_latex, to_ascii

# fmt: off
EXPRESSIONS = [
    ("2^{100}-1", "2^{100}-1"), ("50!", "50!"), (r"2\sqrt3", r"\sqrt{12}"), ("x^2+2x+1", "(x+1)^2"),
    (r"\frac{\pi}{2}", r"\pi/2"), ("e^{x}", r"\exp(x)"), (r"\sin 30^\circ", r"\frac12"), (r"\sqrt{-4}", "2i"),
    ("i^2", "-1"), ("(1+i)(1-i)", "2"), (r"\frac{1}{1-i}", r"\frac{1+i}{2}"), (r"\frac{3}{4}\pi", r"\frac{3\pi}{4}"),
    (r"\sin 2x", r"2\sin x\cos x"), (r"\sin^2 x+\cos^2 x", "1"), (r"\ln 8", r"3\ln 2"), (r"\log_2 8", "3"),
    (r"\frac{\log 8}{\log 2}", "3"), (r"\cos\frac{\pi}{7}\cos\frac{2\pi}{7}\cos\frac{3\pi}{7}", r"\frac18"),
    (r"\sqrt{5+2\sqrt6}", r"\sqrt2+\sqrt3"), (r"\sqrt[3]{2+\sqrt5}+\sqrt[3]{2-\sqrt5}", "1"),
    ("((((((((((((((((((((((((((((((((((((((((40))))))))))))))))))))))))))))))))))))))))", "40"),
    (r"2\cdot 2^{2022}", "2^{2023}"), (r"\sqrt{x^2}", "|x|"), ("(-1)^n", "(-1)^{n+2}"), (r"\cos(n\pi)", "(-1)^n"),
    ("n!", "n(n-1)!"), (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"), (r"1\frac12", "1.5"), ("x^{3/2}", r"x\sqrt x"),
    (r"\frac{\sqrt x}{x}", r"\frac{1}{\sqrt x}"), (r"-\ln x", r"\ln\frac1x"), (r"e^{i\pi}", "-1"),
    (r"\arctan 1", r"\frac{\pi}4"), (r"\sqrt[3]{-8}", "-2"), ("(-8)^{1/3}", "-2"), (r"0.1\overline{6}", r"\frac16"),
    ("2^{3}3^{2}", "72"), ("3.14159", r"\pi"), ("0.333", r"\frac13"), ("f(x)+1", "1+f(x)"), ("|x-1|", "|1-x|"),
    (r"\log x^2", r"\log(x^2)"), (r"\frac{e^x+e^{-x}}{2}", r"\cosh x"), (r"\lfloor 3.7\rfloor", "3"),
]
"""Equal expressions."""

VALUES = [
    (r"\{1,2\}", r"\{1,1,2\}"), (r"\{1,2\}", r"\{2,1\}"), (r"\{1,2\}", "1,2"), ("1,2", "2,1"),
    (r"(-\infty,2)\cup(2,\infty)", r"\mathbb{R}\setminus\{2\}"), (r"x\neq 2", r"(-\infty,2)\cup(2,\infty)"),
    ("x>2", "2<x"), (r"(2,\infty)", "x>2"), (r"x \ge 2", r"[2,\infty)"),
    (r"x<1 \text{ or } x>3", r"(-\infty,1)\cup(3,\infty)"), (r"1<x\le 3", "(1,3]"), (r"\{x\mid x>2\}", r"(2,\infty)"),
    (r"\{x\in\mathbb{R}: x\ne 2\}", r"\mathbb{R}\setminus\{2\}"), (r"\pm 4", "-4,4"), (r"4\pm 1", "3,5"),
    (r"x=\pm 4", "-4,4"), (r"\frac{1 \pm \sqrt{5}}{2}", r"\frac{1-\sqrt5}{2}, \frac{1+\sqrt5}{2}"),
    ("y=2x+1", "y-1=2x"), ("x^2+y^2=4", "4-x^2=y^2"), ("2x+3y=6", r"y=2-\frac{2}{3}x"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix}1&2\\3&\frac{8}{2}\end{bmatrix}"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)"), (r"\langle 1,2\rangle", "(1,2)"), ("(x,y)=(1,2)", "x=1,y=2"),
    ("(1,2)", "x=1, y=2"), ("x=1,2", r"x=2 \text{ or } x=1"), (r"3\pmod 7", r"x\equiv 10\pmod{7}"),
    (r"\emptyset", r"\{\}"), (r"x\in(1,2)", "(1,2)"), (r"x \in [1,2]", r"1\le x\le 2"),
    (r"(-\infty,\infty)", r"\mathbb{R}"), (r"[1,3)\cup[2,5]", "[1,5]"), (r"(0,2)\cap(1,3)", "(1,2)"),
    (r"\{1\}\cup[2,3]", r"[2,3]\cup\{1\}"), ("x+y<3", "3>y+x"), ("2x+2y<6", "x+y<3"), ("x=1,x=2", "1,2"),
    (r"x\in\{1,2\}", "1,2"), ("(1,2),(3,4)", "(3,4),(1,2)"), (r"1,2,\ldots,10", r"1,2,\dots,10"), ("[a,b]", "[a,b]"),
    (r"(1,\pm 2)", "(1,2),(1,-2)"), ("(x-2)^2+(y+1)^2=9", "x^2+y^2-4x+2y=4"), (r"\{(1,2),(3,4)\}", "(1,2),(3,4)"),
    (r"\mathbb{R}-\{0,1\}", r"(-\infty,0)\cup(0,1)\cup(1,\infty)"),
    (r"x\neq 0, x\neq 1", r"x\neq 1 \text{ and } x\neq 0"), (r"x\ne 0,1", r"\mathbb R\setminus\{0,1\}"),
    (r"\infty", r"+\infty"),
]
"""Equal answers of other kinds."""

DIFFERENT = [
    ("2^{100}-1", "2^{100}"), ("50!", "50!-1"), (r"\binom{100}{50}", r"\binom{100}{50}-1"),
    (r"\frac{3^{50}-1}{2}", r"\frac{3^{50}}{2}"), ("0", "2^{-1999}"), ("1", "1+2^{-100}"), ("1", "0^0"),
    ("1", "1+e^{-1000}"), ("1", "1+e^{-9000}"), ("1", "e^{-10^9}+1"), ("x", "x+10^{-3000}"), (r"\sqrt{x^2}", "x"),
    (r"\ln(x^2)", r"2\ln x"), ("1", "9^{9^{9^9}}"), (r"\sqrt2", "1.41421356"), ("0.5", r"\frac{501}{1000}"),
    (r"\pi", "3.14159"), ("1", r"\frac{0}{0}"), ("4", "--5"), ("4", "2^{1}0"),
    (r"e^{\pi\sqrt{163}}", "262537412640768744"), ("f(x)", "f(x+1)"), ("1", "(x+1)^{2000}"), ("x^2", "x"),
    ("1", "e^{e^{e^{e^e}}}"), ("0", r"\sin(10^{-300})-10^{-300}"), ("1", r"\cos(10^{-400})"), ("3+4i", "3-4i"),
    ("0", "0.1+0.2-0.3+10^{-200}"), ("1", "1000000!"), ("2", r"\frac{\sin x}{x}"), ("1", r"\sqrt[10^9]{2}"),
    (r"[2,\infty)", r"[2,\infty]"), ("(1,2)", "(2,1)"), ("(1,2]", "[1,2)"), ("(1,2)", "1,2"), ("(1,2)", "[1,2]"),
    (r"\{1,2\}", "(1,2)"), ("x>2", r"x\ge 2"), ("x>2", "y>2"), ("4", r"\{4,4.0\}"), ("4", r"4\pmod 7"),
    ("4", r"x\ne 4"), ("1,2", "1,2,3"), ("1,1,2", "1,2"), (r"\pm4", "4"), ("0", r"\emptyset"), ("4", "4, 5"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{vmatrix}1&2\\3&4\end{vmatrix}"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&3\\2&4\end{pmatrix}"), ("x=1,y=2", "x=2,y=1"),
    ("y=2x+1", "y=2x-1"), ("x+y<3", "x+y>3"), ("x+y<3", r"x+y\le3"), ("x^2=4", "x=2"),
    (r"\mathbb{R}\setminus\{2\}", r"\mathbb{R}\setminus\{-2\}"), (r"(2,\infty)", "2"),
    (r"\infty", r"-\infty"), ("(3,5)", "(5,3)"), ("xy=4", "x^2y=4x"),
]
"""Different, undefined or unreadable answers."""

# fmt: on


def is_same(gold: str, answer: str) -> bool:
    """Compare two texts; an answer that cannot be parsed or has no value is wrong."""
    texts = [normalize_latex(to_ascii(text) or "") for text in (gold, answer)]
    expected = parse_value(texts[0])
    try:
        return are_same(expected, parse_value(texts[1]), Rules())
    except (UnreadableError, UndefinedError):
        return False


@pytest.mark.parametrize(("gold", "answer"), EXPRESSIONS + VALUES)
def test_equal_answers(gold: str, answer: str) -> None:
    assert is_same(gold, answer)
    assert is_same(gold, gold)
    assert is_same(answer, answer)


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_different_answers(gold: str, answer: str) -> None:
    assert not is_same(gold, answer)


@pytest.mark.parametrize(
    "text", [r"\frac{0}{0}", "0^0", "0^{-1}", r"\frac{x}{2-2}", "(-1)!", "9^{9^{9^9}}", "1000000!"]
)
def test_undefined_number_equals_no_answer(text: str) -> None:
    assert not is_same("1", text)
    assert not is_same("0", text)
    assert not is_same("x", text)
