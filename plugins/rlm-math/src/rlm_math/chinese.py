"""Chinese words between and after answers: 或 is "or", 无解 is "no solution", and 12元 has a unit."""

from __future__ import annotations

import re

WORDS = re.compile("[\u4e00-\u9fff]+")
_JOINED = {"或者": "or", "或": "or", "并且": "and", "且": "and", "和": "and", "与": "and"}
_JOIN = re.compile(rf"\\text\s*\{{\s*({'|'.join(_JOINED)})\s*\}}|({'|'.join(_JOINED)})")
_PHRASES = {
    **dict.fromkeys(("无解", "没有解", "空集"), r"\text{no solution}"),
    **dict.fromkeys(("全体实数", "一切实数", "实数集"), r"\mathbb{R}"),
    "不存在": r"\text{does not exist}",
}
_UNITS = {
    "米": "m", "厘米": "cm", "毫米": "mm", "千米": "km", "公里": "km", "克": "g", "千克": "kg", "公斤": "kg", "升": "l",
    "秒": "second", "分钟": "minute", "小时": "hour", "天": "day", "周": "week", "年": "year",
    "元": "yuan", "度": "degree",
}  # fmt: skip
_OF_ANOTHER_VALUE = re.compile(
    "[万亿千百十零一二三四五六七八九两半倍负不非多少约近左右余几错上下内外来折成打兆的吗]|分之|次方"
)


def translate(text: str) -> str:
    r"""Return a text with "or" and "and" between formulas; a phrase is translated as a whole.

    >>> translate("x=1或x=3"), translate("无解"), translate("充分不必要条件")
    ('x=1\\text{ or }x=3', '\\text{no solution}', '充分不必要条件')
    """
    plain = re.sub(r"\\(?:text(?:bf|it)?|math(?:rm|bf))\s*\{([^{}]*)\}", r"\1", text).strip(" *.")
    if WORDS.fullmatch(plain):
        return _PHRASES.get(plain, text)
    return _JOIN.sub(lambda match: rf"\text{{ {_JOINED[match[1] or match[2]]} }}", text)


def unit_name(words: str) -> str | None:
    """Return the name of a unit, in English if there is one; None for words that may change the number before them.

    >>> [unit_name(words) for words in ("个", "平方米", "小时", "万元", "左右")]
    ['个', 'm^2', 'hour', None, None]
    """
    if not WORDS.fullmatch(words) or len(words) > 4 or _OF_ANOTHER_VALUE.search(words.replace("千克", "")):
        return None
    power = {"平方": "^2", "立方": "^3"}.get(words[:2], "")
    name = words[2:] if power else words
    return _UNITS.get(name, name) + power


def is_unit(words: str) -> bool:
    """Return True for a unit as `unit_name` returns it without an English name."""
    return WORDS.match(words) is not None
