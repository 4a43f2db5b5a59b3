"""Inputs that break verifiers, with their correct scores: short ones from a file, long ones generated here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple


class Case(NamedTuple):
    """One completion for one reference answer, and its correct score."""

    name: str
    gold: str
    completion: str
    expected: float


def box(content: str) -> str:
    """Return a completion that boxes `content`."""
    return f"The answer is $\\boxed{{{content}}}$."


def _file() -> list[Case]:
    lines = Path(__file__).with_name("adversarial.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [Case(row["id"], row["gold"], row["completion"], float(row["expected"])) for row in rows]


_SET = ",".join(map(str, range(301)))
_TURNED = ",".join(map(str, range(300, 0, -1)))

LONG = [
    Case("dos_frac_nest", "1", box(r"\frac{1}{1+" * 200 + "1" + "}" * 200), 0),
    Case("dos_digits", "1", box("1" * 5000), 0),
    Case("dos_digits_gold", "1" * 5000, box("1" * 5000), 1),
    Case("dos_dollars", "1", "$" * 100_000, 0),
    Case("dos_pluses", "1", box("1+" * 5000 + "1"), 0),
    Case("dos_longtext", "1", "so 1 = 1 and $x$ then " * 50_000 + box("1"), 1),
    Case("dos_many_eq", "1", box("x=" * 500 + "1"), 0),
    Case("dos_bigset", rf"\{{{_SET}\}}", box(rf"\{{{_TURNED}\}}"), 0),
    Case("dos_bigset_right", rf"\{{0,{_TURNED}\}}", box(rf"\{{{_SET}\}}"), 1),
    Case("dos_brackets", "1", box("(" * 3000 + "1" + ")" * 3000), 0),
    Case("dos_braces", "1", box("{" * 3000 + "1" + "}" * 3000), 0),
    Case("dos_boxes", "1", "\\boxed{" * 3000 + "1" + "}" * 3000, 0),
    Case("dos_open_boxes", "1", "\\boxed{" * 100_000, 0),
    Case("dos_stray_braces", "1", "{" * 500_000 + "\\boxed{1}", 1),
    Case("dos_megabytes", "1", "x" * 3_000_000 + "\\boxed{1}", 1),
    Case("dos_thinking", "1", "<think>" + "x" * 3_000_000 + "\\boxed{1}", 0),
    Case("dos_roots", "1", box(r"\sqrt[3]{" * 30 + "2" + "}" * 30), 0),
    Case("dos_sines", "1", box("+".join(f"\\sin(x+{i})" for i in range(28))), 0),
    Case("dos_wide_power", "1", box("x^{1999}(x+1)^{1999}"), 0),
    Case("dos_powers_of_powers", "1", box("((2^{1000})^{1000})^{1000}"), 0),
    Case("dos_quotient", "x", box(r"\frac{(x+1)^{99}-(x-1)^{99}}{(x+2)^{99}}"), 0),
    Case("dos_tower", "1", box("9^{9^9}"), 0),
    Case("dos_exponent", "1", box("9^{99999999}"), 0),
    Case("dos_product", "1", box(r"\prod_{i=1}^{10^7} i"), 0),
    Case("dos_scientific", "1", box("1e999999999"), 0),
]

CASES = [*_file(), *LONG]
