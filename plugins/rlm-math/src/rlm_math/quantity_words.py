"""Words that name a quantity: nouns such as "area", with harmless words before and a complement after them."""

from __future__ import annotations

import re

from rlm_math.unit_words import changes_number

_NOUN_NAMES = (
    "acceleration age altitude amount angle answer ans apothem arc area average balance base capacity cardinality "
    "chance change charge choice circumference coefficient combination constant coordinate cost count current "
    "decrease degree denominator density depth derivative determinant deviation diagonal diameter difference digit "
    "discount discriminant displacement distance duration earning edge energy expectation exponent expression face "
    "factor force fraction frequency gcd gcf gradient growth hcf height hypotenuse increase income index inradius "
    "circumradius integer integral intercept interest interval lcm leg length limit load loss mass max maximum mean "
    "measure median min minimum mode moment momentum money multiple norm number numerator order outcome parameter part "
    "payment percent percentage perimeter period permutation place population position power pressure price prime "
    "probability product profit proportion quantity quotient radius range rank rate ratio reading remainder residue "
    "resistance result revenue root salary sale saving score scale side size slope solution speed square step subset "
    "sum surface temperature term thickness time total trace triangle value variance velocity vertex volume wage way "
    "weight width work zero pair path arrangement element divisor tax tip fee fare debt energy voltage"
)
_QUALIFIER_NAMES = (
    "the a an this that my our his her its their final total overall combined average mean median maximum minimum max "
    "min greatest least smallest largest biggest lowest highest shortest longest required desired requested shaded "
    "remaining entire whole original new initial common real positive integer possible distinct different surface "
    "lateral cross sectional base side arc units ones tens last first second third expected exact simplified net "
    "daily weekly monthly yearly annual hourly current central interior exterior inscribed directional constant "
    "leading sample standard"
)
_NOUNS, _QUALIFIERS = ({*names.split()} for names in (_NOUN_NAMES, _QUALIFIER_NAMES))
_OBJECT_NAMES = (
    "blue box car circle cone cube cylinder disk green hexagon hemisphere in left octagon out parallelogram pentagon "
    "polygon prism pyramid rectangle red rhombus right sector segment semicircle small big large sphere tank "
    "tetrahedron trapezoid water white black kin avg eff up down train bus boat rest inner outer"
)
_OBJECTS = {*_OBJECT_NAMES.split()}
_PREPOSITIONS = {"of", "for", "in", "per", "on", "at", "between"}


def is_quantity(words: str) -> bool:
    """Return True for words that name a quantity and say nothing else about it.

    >>> texts = ("Area", "the total cost", "Number of ways", "John's age", "not area", "upper bound", "area of half")
    >>> [is_quantity(words) for words in texts]
    [True, True, True, True, False, False, False]
    """
    each = words.lower().replace("’", "'").split()
    at = next((i for i, word in enumerate(each) if word in _PREPOSITIONS), len(each))
    before, complement = each[:at], each[at:]
    is_named = bool(before) and _is_noun(before[-1])
    is_harmless = all(word in _QUALIFIERS or word.endswith("'s") or _is_noun(word) for word in before[:-1])
    known = _QUALIFIERS | _PREPOSITIONS | {"and"}
    is_plain = all(word in known or _is_noun(word) or not changes_number(word) for word in complement)
    return is_named and is_harmless and is_plain


def is_object(word: str) -> bool:
    """Return True for an index in words: a quantity, a body, or a word such as "total"."""
    return is_quantity(word) or word in _QUALIFIERS | _OBJECTS


def _is_noun(word: str) -> bool:
    singular = re.sub(r"ies$", "y", word)
    return bool(_NOUNS & {word, singular, word.removesuffix("s"), word.removesuffix("es")}) or word == "vertices"
