"""Mathematical answers: notations of one value, near misses, whole completions and hostile texts."""

from __future__ import annotations

from rlm_audit.case import Family
from rlm_audit.mathematics import (
    completions,
    constants,
    curves,
    fractions,
    functions,
    further_answers,
    huge_integers,
    integers,
    intervals,
    labels,
    named_values,
    polynomials,
    quantities,
    radicals,
    rare_differences,
    residues_and_times,
    sets,
    systems,
    wordings,
)
from rlm_audit.mathematics.others import OTHERS
from rlm_audit.mathematics.subject import Subject

SUBJECTS: dict[str, Subject] = {
    "integer": integers.INTEGERS,
    "huge integer": huge_integers.HUGE,
    "small integer": huge_integers.TINY,
    "fraction": fractions.FRACTIONS,
    "decimal": fractions.DECIMALS,
    "surd": radicals.SURDS,
    "nested root": radicals.NESTED,
    "complex number": radicals.COMPLEX,
    "multiple of π": constants.PI,
    "sine": constants.ANGLES,
    "logarithm": constants.LOGARITHMS,
    "polynomial": polynomials.POLYNOMIALS,
    "linear form": functions.HALVES,
    "line": curves.LINES,
    "circle": curves.CIRCLES,
    "rational function": functions.PARTIAL_FRACTIONS,
    "function": functions.FUNCTIONS,
    "set": sets.SETS,
    "tuple": sets.TUPLES,
    "interval": intervals.INTERVALS,
    "domain": intervals.DOMAINS,
    "matrix": further_answers.MATRICES,
    "plus or minus": sets.PAIRS,
    "length": further_answers.LENGTHS,
    "choice": further_answers.CHOICES,
    "word": further_answers.WORDS,
    "short word": further_answers.SHORT_WORDS,
    "product of letters": further_answers.PRODUCTS,
    "base": further_answers.BASES,
    "residue": residues_and_times.RESIDUES,
    "residues": residues_and_times.SEVERAL_RESIDUES,
    "time": residues_and_times.CLOCK,
    "time of a half day": residues_and_times.TIMES,
    "term": rare_differences.TERM,
    "distance": rare_differences.DISTANCE,
    "step": rare_differences.STEP,
    "alternating sign": rare_differences.ALTERNATING,
    "number near a limit": rare_differences.LIMIT,
    "price": rare_differences.PRICE,
    "number in words": wordings.NUMBER_WORDS,
    "no solution": wordings.NO_SOLUTION,
    "option": wordings.OPTIONS,
    "angle": quantities.DEGREES,
    "number of years": quantities.DECADES,
    "years": quantities.YEARS,
    "rate": quantities.RATES,
    "duration": quantities.DURATIONS,
    "repeating decimal": quantities.REPEATING,
    "sum": quantities.SUMS,
    "cases": quantities.PIECEWISE,
    "vector": named_values.VECTORS,
    "vector of unit vectors": named_values.UNIT_VECTORS,
    "sum of parameters": named_values.PARAMETERS,
    "neighborhood": named_values.DISTANCES,
    "day": named_values.DAYS,
    "symbol of a unit": named_values.SYMBOLS,
    "polar form": named_values.POLAR,
    "value": named_values.VALUES_OF,
    "lengths": quantities.LENGTH_LISTS,
    "rounded number": quantities.APPROXIMATED,
    "options": labels.OPTIONS,
    "statements": labels.STATEMENTS,
    "named quantity": labels.NAMED,
    "share": labels.SHARES,
    "alternatives in Chinese": labels.CHINESE,
    "unit in Chinese": labels.CHINESE_UNITS,
    "system": systems.SYSTEMS,
    "solutions": systems.SOLUTIONS,
    "asymptotes": systems.ASYMPTOTES,
    "residue class": systems.RESIDUE_CLASSES,
    "periodic solutions": systems.PERIODIC,
    "condition": systems.CONDITIONS,
    "binomial coefficient": systems.BINOMIALS,
    "equal unknowns": systems.EQUAL_NAMES,
    "ratio": systems.RATIOS,
    "function with a constant": systems.LINEAR_FUNCTIONS,
}
"""Name → kind of answer."""

FORM = "The answer is $\\boxed{{answer}}$."
FAMILY = Family(
    {
        **{key: make for name, subject in SUBJECTS.items() for key, make in subject.generators(name).items()},
        **completions.generators(),
    },
    form=FORM,
    others=OTHERS,
)
"""Cases for rewards that compare mathematical answers in a box."""

_SLOW = ("huge integer", "small integer", "completion", "box", "hostile")
COMPARED = Family(
    {name: make for name, make in FAMILY.generators.items() if not name.startswith(_SLOW)}, form=FORM, others=OTHERS
)
"""The cases without those on which other libraries need minutes."""
