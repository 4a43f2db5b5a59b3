"""Words that are no unit: after a number they change it, take it back, or offer another."""

from __future__ import annotations

import re

_OF_ANOTHER_VALUE = (
    "half third quarter fourth fifth sixth seventh eighth ninth tenth eleventh twelfth sixteenth hundredth "
    "thousandth millionth billionth halve zero one two three four five six seven eight nine ten eleven twelve "
    "thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty "
    "ninety hundred thousand million billion trillion dozen score gross myriad lakh crore grand kilo mega giga "
    "milli micro nano permille ppm ppb bp bps basis mille fold twice double triple percent pi infinity squared "
    "cubed bn mn mil thou pct naught nought googol centi deci deca hecto pico tera"
)
_OF_AN_OPERATION = (
    "plus minus mod modulo base factorial choose over inverse reciprocal negative positive opposite complement sqrt "
    "abs log ln sine cosine tangent sin cos tan less more fewer increased decreased reduced doubled tripled estimated "
    "quadrupled halved inverted reversed reverse added subtracted multiplied divided negated raised rounded off short "
    "root shy debt deficit time"
)
_OF_DOUBT = (
    "or and not no nor but wrong false incorrect is if maybe perhaps about around than most least under from to "
    "between else either guess unsure alternative instead except unless versus vs through thru until till onward "
    "upward downward minimum maximum almost close near ish some several many few something anything nothing none "
    "never other another also by with without mistaken untrue invalid undefined error respective would could should "
    "may might can be estimate depend depending optional unknown question after before then otherwise rather "
    "possible probable impossible fail excluded "
    "neither rejected above below beyond missing"
)
_WORDS = {*f"{_OF_ANOTHER_VALUE} {_OF_AN_OPERATION} {_OF_DOUBT}".split()}
_NUMERAL = re.compile(r"[a-z]*illion|[a-z]+tieth|[a-z]+teenth|([a-z]+)fold")
_ADVERB = re.compile(r".*[a-z]{2}ly")
_NOUNS_IN_LY = {"family", "butterfly", "assembly", "butterflie", "lily", "jelly", "belly", "bully", "ally", "rally"}


def changes_number(word: str) -> bool:
    """Return True for a word, in lower case, that is no unit after a number.

    >>> [changes_number(word) for word in ("probably", "tenths", "sixes", "tenfold", "apple", "family")]
    [True, True, True, True, False, False]
    """
    is_adverb = _ADVERB.fullmatch(word) is not None and word not in _NOUNS_IN_LY
    singular = re.sub(r"(?<=[osx])es?$|s$", "", word)  # "perhap" and "sixe" are singulars of units
    numeral = _NUMERAL.fullmatch(singular)
    is_numeral = numeral is not None and (numeral[1] is None or numeral[1] in _WORDS)
    return is_adverb or is_numeral or bool(_WORDS & {word, singular, f"{word}s"})


_AFTER_A_NUMBER = "squared cubed factorial plus minus over choose mod modulo"
_OF_A_REMARK = "percent basis pct one two three four five six seven eight nine ten score grand double fold"
_CHINESE = re.compile(
    "[万亿千百倍多余]|以[上下内外]|的(?:平方|立方|一半|倒数|相反数|[一二两三四五六七八九十]+[倍次])|[是都]?(?:不[对正成]|错)|吗"
)
_SCALES = {*f"{_OF_ANOTHER_VALUE} {_AFTER_A_NUMBER}".split()} - {*_OF_A_REMARK.split()}


def scales_number(word: str) -> bool:
    """Return True for a word in lower case that multiplies or changes a number before it: ``million``, ``thirds``.

    >>> [scales_number(word) for word in ("million", "thirds", "squared", "percent", "apples", "is")]
    [True, True, True, False, False, False]
    """
    numeral = _NUMERAL.fullmatch(word)
    return (
        _CHINESE.match(word) is not None
        or (numeral is not None and numeral[1] is None)
        or bool(_SCALES & {word, word.removesuffix("s")})
    )
