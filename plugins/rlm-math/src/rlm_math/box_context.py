"""Text around a box that changes its answer: ``-\\boxed{4}``, ``not \\boxed{4}``, ``\\boxed{4} (or 5)``."""

from __future__ import annotations

import re

from rlm_math.box_tokens import Token, tokenize
from rlm_math.unit_names import is_symbol
from rlm_math.unit_words import scales_number

WINDOW = 2000
"""Characters before and after a box that are read, within its paragraph."""
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_DASHES = {"-", "−", "–", "—"}
_MARKS_OF_LINES = {*_DASHES, "*", "+", ">", "|"}
"""Signs that begin an item of a list, a quotation or a cell of a table."""
_RELATIONS = {"<", ">", "!=", "≠", "\\neq", "\\ne", "\\lt", "\\gt", "\\not"}
_UNITS = {"\\AA", "\\Omega"}
_OR = {"or", "alternatively", "maybe", "perhaps", "possibly", "otherwise", "else", "unless", "versus", "vs", "resp"}
_CHINESE_OR = ("或", "还是", "抑或")
_BEFORE_OR = {*",;:", *_DASHES, "\\quad", "\\qquad"}
_FILLER = r"(?:be|equal|equals|to|the|an?|only|just|of|really|right|correct|final|answer|value|ever|[a-z]+ly)"
_NO = (
    r"\b(?:not|never|nor|neither|cannot|except|minus|negative|plus|times|twice|double|triple|half|log|ln|sqrt)"
    r"|n['’]t|\bthan"
)
_OPERATION = r"(?:divided|multiplied) by|(?:root|square|cube|opposite|reciprocal|inverse|complement|logarithm) of"
_OPINION = (
    r"(?:(?:not|\w+n['’]t) (?:think|believe|mean|suppose)|(?:false|wrong|untrue|incorrect|impossible|not true) that)"
    r"(?: that)? (?:it|this|the (?:final )?answer) (?:is|equals)"
)
_NO_OTHER = r"(?:anything|everything|all) but|(?:wrong|incorrect|false)\s+(?:answer|value|result):?"
_DENIED = re.compile(
    rf"(?:(?:{_NO}|\b(?:{_OPERATION}|{_NO_OTHER}|{_OPINION}))(?:\s+{_FILLER})*?(?:\s+{_FILLER}:)?"
    r"|\\not\s*(?:[=<>]|\\\w+)|不是|并非|不等于|不为|负|(?<!不)(?:[大小多少]于|超过)|不足|除了?)\s*$",
    re.I,
)
_NO_MORE_THAN = re.compile(r"\b(?:no|not|none|nothing)\b[^.;:\n]*\bthan\s*$", re.I)
_TAKEN_BACK = re.compile(
    r"[\s,:;()*]*(?:(?:is|was|are|would be)\s+(?:not|never)\s+(?:the|an?|correct|right|it|true|possible)"
    r"|(?:isn|wasn)['’]t\s+(?:the|an?|correct|right|it|true|possible)|contradicts|fails"
    r"|(?:cannot|can['’]t|(?:can|could) not) be|(?:does|did)(?:n['’]t| not) (?:work|hold|fit|satisfy)"
    r"|(?:(?:divided|multiplied) by|to the power(?: of)?|percent of)(?=\s*[$\\(]*\s*\d)"
    r"|(?:(?:is|was|are|seems|looks|would be)\s+(?:\w+ly\s+)?)?(?:wrong|incorrect|false|impossible|excluded))\b"
    r"|\s*(?:不对|错误|[?？])",
    re.I,
)
_CORRECTED = re.compile(r"[\s,;()*]*but (?:it|this|that|the (?:\w+ )?answer) (?:is|equals)\s*[$\\(]*\s*-?\d", re.I)
_LISTED_BEFORE = re.compile(r"(?:^|[\n$(\[{])[\s\d./+-]*\d[\s\d.,;/+-]*[,;]\s*$")
_LISTED_AFTER = re.compile(
    r"\s*(?:[,;]|(?:and|to)\b)\s*[-+]?\s*(?:\d|\\(?:frac|sqrt|pi)\b)[^A-Za-z=]*(?:[)\]\n]|\.?\s*$)"
)
_AND_A_PART = re.compile(r"\s*and\s+(?:a|an|one|two|three)\s+(?:hal|third|quarter|fourth|fifth|tenth)", re.I)
_OFFERED_BEFORE = re.compile(
    r"(?<![\w./])(\d+)\s*,?\s*(?:\bor(?:\s+(?:else|maybe|perhaps|possibly))?|或者?|还是)\s*$", re.I
)
_INTEGER_IN_BOX = re.compile(r"\\\w+\s*\{\s*(\d+)\s*\}")
_STRUCK_OUT = re.compile(r"(?:~~|<(?:s|del|strike)>|\\begin\s*\{comment\})(?:(?!~~|</)[^\n])*$")


def changes_answer(text: str, start: int, end: int) -> bool:
    """Return True if what stands around the box ``text[start:end]`` makes another answer of it, or takes it back.

    This holds for a box that is an operand, an argument of a command that is no style, denied, or one of several.
    Sentences, relations, units and remarks around a box do not change it.

    >>> texts = (r"2\\boxed{4}", r"x = \\boxed{4}", r"it is not \\boxed{4}", r"\\boxed{4}\\text{ cm}", r"\\boxed{4}^2")
    >>> [changes_answer(text, text.index("\\\\boxed"), text.index("4}") + 2) for text in texts]
    [True, False, True, False, True]
    """
    before = _PARAGRAPH.split(text[max(0, start - WINDOW) : start])[-1]
    after = _PARAGRAPH.split(text[end : end + WINDOW])[0]
    left, is_in_argument = tokenize(before)
    right, in_math = tokenize(after).tokens, _is_math(left)
    if is_in_argument or any(rule.search(before) for rule in (_STRUCK_OUT, _LISTED_BEFORE)):
        return True
    if _is_denied(_plain(left)) or _is_other_integer(_plain(left), text[start:end]):
        return True
    if any(rule.match(_plain(right)) for rule in (_TAKEN_BACK, _CORRECTED, _LISTED_AFTER, _AND_A_PART)):
        return True
    left, right = _outside_brackets(left, right)
    return _is_changed_before(left, in_math) or _is_changed_after(right, in_math, has_words=_has_words(left))


def _is_denied(before: str) -> bool:
    return _DENIED.search(before) is not None and not _NO_MORE_THAN.search(before)


def _is_other_integer(before: str, box: str) -> bool:
    """Return True for another integer with "or" before an integer in a box: 8/2 or a formula may be the same number."""
    offered, inside = _OFFERED_BEFORE.search(before), _INTEGER_IN_BOX.fullmatch(box)
    return offered is not None and inside is not None and int(offered[1]) != int(inside[1])


def offers_another(after: str) -> bool:
    """Return True if the text after a box begins with a word that offers an alternative."""
    return _offers_another(tokenize(after).tokens)


def _is_math(left: list[Token]) -> bool:
    """Return True if the last delimiter before a box begins a formula."""
    delimiters = [token.text for token in left if token.kind == "delimiter"]
    if delimiters and "$" in delimiters[-1]:
        return len([each for each in delimiters if "$" in each]) % 2 == 1
    return bool(delimiters) and delimiters[-1] in ("\\(", "\\[")


def _outside_brackets(left: list[Token], right: list[Token]) -> tuple[list[Token], list[Token]]:
    """Return the tokens outside pairs of brackets that hold only the box."""
    while True:
        outer_left, outer_right = _without_spaces(left), _without_spaces(right[::-1])[::-1]
        pair = outer_left[-1].text + outer_right[0].text if outer_left and outer_right else ""
        if pair not in ("()", "[]", "\\{\\}"):
            return left, right
        left, right = outer_left[:-1], outer_right[1:]


def _without_spaces(tokens: list[Token]) -> list[Token]:
    while tokens and tokens[-1].kind == "space":
        tokens = tokens[:-1]
    return tokens


def _has_words(left: list[Token]) -> bool:
    """Return True if the line has words."""
    start = max((i for i, token in enumerate(left) if token.kind == "line"), default=-1)
    return any(token.kind == "word" for token in left[start + 1 :])


def _plain(tokens: list[Token]) -> str:
    """Return tokens as text without delimiters and emphasis."""
    return "".join(" " if t.kind in ("delimiter", "space") or t.text.strip("*_") == "" else t.text for t in tokens)


def _is_changed_before(left: list[Token], in_math: bool) -> bool:
    rest = _without_spaces([Token("space", " ") if token.kind == "delimiter" else token for token in left])
    crossed = {token.kind for token in left[len(rest) :]}
    if not rest:
        return False
    last, line = rest[-1], _without_spaces(rest[:-1])
    is_outside, is_apart = not in_math or "delimiter" in crossed, "space" in crossed
    if last.kind == "operator":
        begins = (not line or line[-1].kind == "line") and last.text in _MARKS_OF_LINES and is_apart
        is_dash = last.text in _DASHES and bool(line) and line[-1].kind in ("word", "sign")
        is_unary = last.text == "+" and bool(line) and line[-1].kind == "relation"
        is_emphasis = _is_emphasis(last) and _is_attached(last, rest[:-1], is_apart)
        return not is_unary and not (is_outside and (begins or is_dash or is_emphasis or last.text == "|"))
    if last.kind in ("number", "letter", "closed"):
        is_label = last.text == ")" and (is_apart or "delimiter" in crossed or rest[-3:-2] == [Token("opened", "(")])
        return not (is_outside and (is_label or (is_apart and ("delimiter" in crossed or _has_words(rest)))))
    return False


def _is_changed_after(right: list[Token], in_math: bool, *, has_words: bool) -> bool:
    if _offers_another(right):
        return True
    rest = _without_spaces([Token("space", " ") if t.kind == "delimiter" else t for t in right[::-1]])[::-1]
    crossed = {token.kind for token in right[: len(right) - len(rest)]}
    if not rest:
        return False
    first, second = rest[0], rest[1] if len(rest) > 1 else Token("line", "")
    is_outside, is_apart = not in_math or "delimiter" in crossed, "space" in crossed
    if first.kind == "word":
        return scales_number(first.text.lower())
    if first.kind == "sign":
        return first.text in ".,:" and second.kind == "number"
    if first.kind == "letter":
        return not _is_unit(first) and not (is_outside and (is_apart or "delimiter" in crossed))
    if first.kind == "opened":
        return not (is_outside and (is_apart or "delimiter" in crossed)) and not _is_remark(rest)
    if first.text == "\\%":
        return second.text == "\\%"
    if first.text == "!":
        return not (is_outside and has_words)
    if first.kind == "operator":
        return not _is_harmless(first, _without_spaces(rest[:0:-1])[::-1], is_outside, is_apart)
    return first.kind == "number" and not ("delimiter" in crossed and is_apart)


def _is_unit(token: Token) -> bool:
    """Return True for a letter that is the symbol of a unit; in a command for text all but names of variables are."""
    return token.kind == "letter" and (is_symbol(token.text) or (token.in_text and token.text not in "eiknxyz"))


def _is_emphasis(token: Token) -> bool:
    return not token.text.strip("*_")


def _is_attached(sign: Token, left: list[Token], is_apart: bool) -> bool:
    """Return True for asterisks before a box that begin, or end, text in bold."""
    kind = left[-1].kind if left else "line"
    if is_apart:
        return kind in ("word", "sign") or (kind != "space" and len(sign.text) > 1)
    return kind not in ("number", "letter", "closed")


def _offers_another(right: list[Token]) -> bool:
    """Return True if the next word offers an alternative; after the end of a sentence or line only "or" does."""
    words = _OR
    for token in right:
        if token.kind == "word":
            return token.text.lower() in words or token.text.startswith(_CHINESE_OR)
        if token.kind == "line" or token.text == ".":
            words = {"or"}
        elif not (token.kind in ("space", "delimiter", "opened") or token.text in _BEFORE_OR or _is_emphasis(token)):
            return False
    return False


def _is_remark(rest: list[Token]) -> bool:
    """Return True for a bracket with words or the letter of an option."""
    end = next((i for i, token in enumerate(rest) if token.kind == "closed"), len(rest))
    inside = rest[1:end]
    is_text = any(token.kind in ("word", "relation") or token.in_text or token.text in _RELATIONS for token in inside)
    return is_text or (len(inside) == 1 and inside[0].text in "ABCDEFGH")


def _is_harmless(sign: Token, rest: list[Token], is_outside: bool, is_apart: bool) -> bool:
    """Return True for a relation, an ordinal, a unit after a slash, emphasis, a border of a table, or a dash."""
    following = rest[0] if rest else Token("line", "")
    if sign.text in _RELATIONS:
        return True
    if sign.text == "^":
        return following.in_text
    if sign.text == "/":
        return following.kind == "word" or _is_unit(following)
    if sign.text in _UNITS or (sign.text == "\\mu" and following.in_text):
        return True
    if _is_emphasis(sign):
        return is_outside and not (following.kind in ("number", "letter", "opened") or is_apart)
    is_dash = sign.text in _DASHES and following.kind in ("word", "line", "letter")
    return is_outside and (sign.text == "|" or is_dash)
