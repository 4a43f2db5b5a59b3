"""Pairs of reference and model answer that are equal or different: boxed, or as whole completions."""

# fmt: off
RIGHT = [
    (r"\frac{1}{2}", "½"), ("-0.5", r"-\frac12"), ("12", "12.0"), ("12", "+12"), ("1000000", "10^6"),
    ("1{,}234", "1234"), (r"1\,000\,000", "1,000,000"), (r"\$5.00", "5"), ("5", r"\$5"), (r"2\sqrt{3}", r"\sqrt{12}"),
    (r"2\sqrt{3}", "2√3"), (r"\frac{\sqrt{3}}{2}", r"\dfrac{\sqrt3}{2}"), ("x^2+2x+1", "(x+1)^2"),
    (r"\frac{\pi}{2}", r"\pi/2"), ("[0,1)", r"\left[0, 1\right)"), (r"(-\infty, 2]", "(-∞, 2]"),
    (r"\{-4,4\}", r"\pm 4"), ("1, 2", "2, 1"), ("x=4", "4"), ("x=4", "x=4.0"), ("(2, 3)", "(x, y) = (2, 3)"),
    ("f(x)=2x", "2x"), ("2x", "f(x) = 2x"), ("4", "2+2=4"), ("12", r"12\text{ apples}"), ("12", "12 cm"),
    (r"4\text{ m}", r"4\,\mathrm{m}"), (r"4\text{ meters}", r"4\text{ m}"), (r"60^\circ", "60"), ("60", "60°"),
    (r"25\%", r"25\%"), (r"25\%", "25"), (r"25\%", r"\frac14"), ("0.25", r"25\%"), (r"\text{(B)}", "B"),
    ("B", r"\textbf{(B)}"), ("Monday", r"\text{monday}"), (r"\text{no solution}", r"\text{No solution}"),
    ("2^{10}", "1024"), ("1024", "2^{10}"), ("101_2", "101_{2}"), (r"\binom{5}{2}", "10"), ("4", r"\text{four}"),
    ("3+4i", "3 + 4 i"), (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}"), (r"x \ge 2", r"x \geq 2"),
    ("x > 2", "2 < x"), (r"(2,\infty)", "x>2"), ("x>2", r"(2,\infty)"), ("e^{x}", r"\exp(x)"),
    (r"\frac{3}{4}\pi", r"\frac{3\pi}{4}"), (r"\sqrt{2}", "2^{1/2}"), ("0.1", r"\frac{1}{10}"),
    (r"\frac{1}{3}", r"0.\overline{3}"), ("-3", r"-\,3"), ("7", "x_1 = 7"), ("$7$", "7"), ("7", "$7$"),
    ("y=2x+1", "2x+1"), ("3", r"3\ \text{units}"), ("10", r"10\text{ dollars}"), ("4", "n=4"),
    ("6", r"2 \cdot 3 = 6"), ("3, 5", r"4 \pm 1"), (r"4 \pm 1", r"\{5, 3\}"), (r"2+\sqrt3, 2-\sqrt3", r"2 ± √3"),
    (r"\frac{1 \pm \sqrt{5}}{2}", r"\frac{1-\sqrt5}{2}, \frac{1+\sqrt5}{2}"), ("-4, 4", "x = ±4"),
]
"""Equal pairs, boxed."""

WRONG = [
    ("4", r"4 \pm 1"), ("5", r"4 \pm 1"), ("3, 5", r"4 \pm 2"), ("4", r"4 \pm 0"), (r"4 \pm 1", "5"),
    ("3, 5", r"4 \mp 1 \pm 1"), ("2^{10}", "2^{1}0"), ("1024", "2^{1}0"), ("x^{12}", "x^{1}2"), ("x_{12}", "x_{1}2"),
    ("4", r"4\text{ or so}"), ("4", r"4\text{ is wrong, } 5"), ("4", r"4\text{ million}"), ("4", "3=4"),
    ("4", "x=3=4"), ("x=4", "3=4"), ("x=4", "4=4"), ("x=4", "y=4"), ("4", "5 - 1 = 4 = 5"),
    (r"\frac{1}{2}", r"\int_0^1 x dx"), ("6", "3!"), ("4", r"\frac{8"), ("4", "4, 5"), ("4", r"\{4, 5\}"),
    ("4", r"\{4,4.0\}"), ("1234", "(1,234)"), ("12", "1 2"), ("12", "1,2"), ("1.5", "1,5"), (r"\pi", "3.14159"),
    (r"\pi", "3.141592653589793"), (r"\sqrt{2}", "1.414"), (r"\sqrt{2}", "1.4142135623731"), ("0.5", r"0.5\%"),
    (r"50\%", r"0.5\%"), ("0.01", "0"), ("10^{-20}", "0"), (r"\frac{\pi}{10^{20}}", "0"), ("(1,2)", "1,2"),
    ("(1,2]", "[1,2)"), ("(0,1)", "[0,1]"), (r"\{1,2\}", "(1,2)"), ("1,2", "1"), ("1,2", "1,2,3"), (r"\pm 4", "4"),
    ("A", "A, B"), ("A", r"\text{A or B}"), ("A", "AB"), ("A", "a"), (r"\text{yes}", r"\text{yes and no}"),
    ("B", r"\text{not B}"), ("x^2", "x"), ("2x", "2y"), ("x+1", "1"), ("x>2", "x>3"), ("x>2", "x<2"), ("x>2", "2>x"),
    (r"x\neq 2", "x=2"), ("4", r"x\neq 4"), ("4", r"\neq 4"), ("4", r"x \le 4"), ("4", "<4"), ("4", r"\approx 4"),
    (r"\infty", r"-\infty"), ("0", r"\emptyset"), ("4", "4_5"), ("4", r"4 \pmod 7"), ("4", r"\max(4,3)"),
    ("4", r"\gcd(8,12)"), ("4", r"\lfloor 4.5 \rfloor"), ("4", r"4\ldots"), ("-4", "4"), ("4", "--5"), ("4", "4?"),
    ("4", "4 5"), ("45", "4 5"), ("3+4i", "3+4j"), ("3+4i", "5"), ("3+4i", "3-4i"), ("4", r"\text{fourteen}"),
    ("4", r"4\text{ m or }5\text{ m}"), (r"4\text{ m}", r"4\text{ kg}"), (r"90^\circ", r"90\text{ radians}"),
    ("4", r"4\cdot\text{apple}"), ("0", r"\sin(0.0000000000001)"), ("1", "0.9999999999999"),
    (r"\frac{1}{3}", "0.333333333333333"), ("10", r"\log"), ("4", r"4\\5"), ("4", r"4 \\ 5"), ("4", r"4\quad 5"),
    ("4", "4;5"), ("4", "4|5"), ("4", "4/5"), ("4", "4:5"), ("4", r"5\!4"), ("4", r"\phantom{4}"),
    ("4", r"\cancel{5}4"), ("4", r"\sout{5}4"), ("4", r"\color{white}4"), ("4", "4%5"), ("4", "% 5\n4"), ("4", "5 %4"),
]
"""Different pairs, boxed."""

COMMITTED = [
    ("4", "</think>\n\\boxed{4}"), ("4", "\\boxed{4}\n\nLet me check: \\boxed{4}"), ("4", r"Box: \boxed {4}"),
    ("4", r"a { stray brace. \boxed{4}"),
]
"""Whole completions whose final answer is correct."""

UNCOMMITTED = [
    ("4", r"\boxed{4} \boxed{4.0}"), ("4", r"\boxed{4"), ("4", r"\boxed{4} then \boxed{5"),
    ("4", r"<think>\boxed{4}"), ("4", r"<think>x</think> <think> \boxed{4}"), ("4", r"\boxed{4} or \boxed{5}"),
    ("4", r"\boxed{5}, or maybe \boxed{4}"), ("4", r"\boxed{4} or 5"), ("4", r"\boxed{5}\boxed{4}"),
    ("4", r"\boxed{4}, \boxed{5}"), ("4", ""), ("4", r"\boxed{\boxed{5}\boxed{4}}"), ("4", "answer: 4"),
]
"""Whole completions without a final answer, or with a wrong one."""
# fmt: on
