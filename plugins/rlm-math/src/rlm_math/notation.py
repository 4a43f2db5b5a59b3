"""One notation: Unicode symbols become LaTeX, and LaTeX loses commands for style, spacing and size."""

from __future__ import annotations

import re
import unicodedata
from itertools import groupby

_FORMS = {"<super>": "^{%s}", "<sub>": "_{%s}"}
"""Form of a Unicode character, which NFKC would drop → LaTeX of a run of them."""
_NAMES = "alpha beta gamma delta theta lambda mu sigma phi omega"
_MARKS_OF = "lfloor rfloor lceil rceil land lor angle equiv langle rangle"
_GREEK = zip("αβγδθλμσφω", _NAMES.split(), strict=True)
_MARKS = zip("⌊⌋⌈⌉∧∨∠≡⟨⟩", _MARKS_OF.split(), strict=True)
_SYMBOLS = {
    **{symbol: rf"\{name} " for symbol, name in (*_GREEK, *_MARKS)},
    **{symbol: mark for mark, group in ((r"\leq ", "≤⩽≦"), (r"\geq ", "≥⩾≧"), ("/", "⁄∕÷")) for symbol in group},
    **{symbol: rf"\mathbb{{{unicodedata.normalize('NFKC', symbol)}}}" for symbol in "ℝℤℕℚℂ"},
    "−": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "π": r"\pi ", "∞": r"\infty ", "±": r"\pm ",
    "∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ", "…": r"\ldots ", "≈": r"\approx ", "≠": r"\neq ",
    "∈": r"\in ", "∖": r"\setminus ", "°": r"^\circ ", "º": r"^\circ ", "℃": r"^\circ C", "∶": ":", "′": "'",
    "‰": r" \times 10^{-3}", "，": ", ", "、": ", ", "。": ".",
}  # fmt: skip
_SYMBOL = re.compile("|".join(map(re.escape, _SYMBOLS)))
_SLASHED = re.compile("([⁰¹²³⁴-⁹]+)[⁄/]([₀-₉]+)")
_ZERO_WIDTH = "\u200b-\u200e\u2060\ufeff"
_INVISIBLE = re.compile(
    rf"(?<![\w{_ZERO_WIDTH}])[{_ZERO_WIDTH}]+|(?<![{_ZERO_WIDTH}])[{_ZERO_WIDTH}]+(?![\w{_ZERO_WIDTH}])"
)
"""Characters of no width, but not those between letters or digits."""
_COLORS = "black|blue|brown|cyan|darkgray|gray|green|lime|magenta|olive|orange|pink|purple|red|teal|violet"
"""Colors that hide no text on a white page."""
_STYLE = r"\\(?:boldsymbol|bm|pmb|underline|emph|ensuremath)\s*(?=\{)"
_SWITCH = (
    r"\\(?:bf|it|rm|large|Large|LARGE|huge|Huge|small|normalsize|limits|nolimits|displaystyle|textstyle|left|middle"
    r"|right|[bB]igg?[lmr]?|therefore)(?![A-Za-z])|\\hspace\*?\s*\{[^{}]*\}"
)
_VECTOR = r"\\(?:vec|mathbf|boldsymbol|bm|overrightarrow)(?![A-Za-z])\s*(?:\{\s*[A-Za-z]+\s*\}|[A-Za-z])"
_DOTS = r"(?:\\(?:ldots|dots|cdots|dotsc)(?![A-Za-z])|\.\.\.)"
_MOD = r"(?:\\(?:mathrm|text|operatorname)\s*\{\s*mod\s*\}|\\b?mod(?![a-z])|mod(?![a-z])|\\text\s*\{\s*mod)"
_CLOSED = r"(?<=[\w})\]])(?<!and\})(?<!or\})(?<!and \})(?<!or \})"
"""The end of a formula, and not of a word that joins it to the next."""
_TEXT = r"\s*(?:\\text\s*\{)?\s*"
_NONE = r"(?:(?i:there (?:is|are) )?(?i:no (?:real )?solutions?)(?: exists?)?|[Nn]one|(?i:(?:the )?empty set))"
_PATTERNS = [
    (r"\\(?:mathbf|hat)\s*\{?\s*\\?([ijk])(?:math)?(?![A-Za-z])\s*\}?", r"\\vec{\1}"),
    (rf"({_VECTOR})\s*\\times\s*(?={_VECTOR})", r"\1\\crossproduct "),
    (r"\\(?:left|right|[bB]igg?[lmr]?)\s*\.", " "),
    (_SWITCH, " "),
    (_STYLE, ""),
    (rf"\\(?:text)?color\s*\{{\s*(?:{_COLORS})\s*\}}", " "),
    (r"\\(?:textrm|mbox|hbox|text(?:bf|it|sf|tt|up|normal|sc))(?![A-Za-z])", r"\\text"),
    (r"\\(?:mathsf|mathbf)(?=\s*\{)", r"\\mathrm"),
    (r"\\(?:[dtc]frac|nicefrac|sfrac)(?![A-Za-z])", r"\\frac"),
    (rf"{_CLOSED}\s*\\q?quad\s*(?=[A-Za-z](?:_\w|_\{{\w+\}})?\s*(?:=|\\equiv))", ", "),
    (r"(?<!\\)\\[,;:> ]|\\(?:q?quad|en(?:space|skip)|(?:thin|med|thick|nobreak)space)|~", " "),
    (r"(?<=\d)(?:\\!)?,\s*\\!\s*(?=\d{3}(?!\d))", ","),
    (r"(?<!\\)\\!", ""),
    (r"(?<![-+*/=,;:$\\ ])\$ +\$(?![-+*/=])", ", "),
    (r"(?<!\\)\$", " "),
    (r" {2,}", " "),
    (r"\\le(?:qslant)?(?![A-Za-z])", r"\\leq"),
    (r"\\ge(?:qslant)?(?![A-Za-z])", r"\\geq"),
    (r"\\not\s*=|!=|\\ne(?![A-Za-z])", r"\\neq "),
    (rf"\\varnothing|\\\{{\s*\\\}}|^{_TEXT}{_NONE}\.?\s*\}}?\s*$", r"\\emptyset"),
    (rf"^{_TEXT}(?:all )(?:the )?real(?:s| numbers?)\.?\s*\}}?\s*$", r"\\mathbb{R}"),
    (rf"^{_TEXT}(?:does not exist|DNE)\.?\s*\}}?\s*$", r"\\text{does not exist}"),
    (r"\\(?:textdegree|degree)(?![A-Za-z])", r"^\\circ"),
    (r"(?<=[A-Za-z}])\s*\^\s*\{\s*\\prime\s*\}", "'"),
    (r"^\s*\\bigcup_\{\s*([a-z])\s*=\s*-\\infty\s*\}\s*\^\s*\{\s*\\infty\s*\}(.*)$", r"\2, \1 \\in \\mathbb{Z}"),
    (r"\\(max|min)(?=\s*(?:\.|\\text))", r"\\text{\1.}"),
    (r"\\big(cup|cap)(?![A-Za-z])", r"\\\1"),
    (r"(?<!\\)\\(?=-?\d)", r"\\\\"),
    (r"\{,\}", ","),
    (r"\\text\s*\{\s*only\s*\}\s*$|^\s*\\text\s*\{\s*only\s*\}", " "),
    (r"\\text\s*\{((?:[^{}A-Za-z\\]|\\[$%])*)\}", r" \1 "),
    (r"\\\{\s*\\begin\s*\{(?:array|aligned|matrix)\}\s*(?:\{[lcr ]+\})?(.*?)\\end\s*\{\w+\}\s*\.?(?=[\s}]*$)",
     r"\\begin{cases}\1\\end{cases}"),
    (r"\^\s*\{\s*\\(?:mathsf|mathrm|text)\s*\{?\s*T\s*\}?\s*\}", "^T"),
    (r"\\in\s*(?:\\(?:mathrm|text)\s*\{\s*([RZNQC])\s*\}|([RZNQC])(?![A-Za-z(]))", r"\\in \\mathbb{\1\2}"),
    (r"\\overrightarrow(?![A-Za-z])", r"\\vec"),
    (r"\\colon(?![A-Za-z])|\{:\}", ":"),
    (r"\\text\s*\{\s*\(\s*mod\s*(\d+)\s*\)\s*\}", r"\\pmod{\1}"),
    (rf"\(\s*{_MOD}\s*\}}?\s*([^()]*?)\s*\)", r"\\pmod{\1}"),
    (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
    (r"\{([^{}]*?)\\over(?![A-Za-z])([^{}]*)\}|^([^{}]*?)\\over(?![A-Za-z])([^{}]*)$", r"\\frac{\1\3}{\2\4}"),
    (r"\{([^{}]*?)\\choose(?![A-Za-z])([^{}]*)\}", r"\\binom{\1}{\2}"),
    (r"\\sqrt\s*([0-9A-Za-z])", r"\\sqrt{\1}"),
    (r"\\frac\s*([0-9A-Za-z])\s*([0-9A-Za-z])", r"\\frac{\1}{\2}"),
    (r"\\frac\s*([0-9A-Za-z])\s*\{", r"\\frac{\1}{"),
    (r"(\\frac\s*\{[^{}]*\})\s*([0-9A-Za-z])", r"\1{\2}"),
    (r"(?<=[\d.])\\(?:bar|dot|overline)\s*\{?\s*(\d+)\s*\}?", r"\\overline{\1}"),
    (r"(?<=\d\.)\((\d+)\)(?!\d)", r"\\overline{\1}"),
]  # fmt: skip
_REWRITES = [(re.compile(pattern, re.S), replacement) for pattern, replacement in _PATTERNS]
_CONTINUED = re.compile(rf"(?<![\d.])(\d*)\.(\d{{1,60}})\s*{_DOTS}")
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALE = re.compile(rf"(?<=\d)\s*(\\text\s*\{{)?\s*({'|'.join(_SCALES)})(?![A-Za-z])\s*(\}})?")
_REPETITION = re.compile(r"(\d*?)((\d+?)\3+)")
_OUTER = [
    re.compile(r"\\\((.*)\\\)|\\\[(.*)\\\]", re.S),
    re.compile(r"\{((?:[^{}\\]|\\.|\{(?:[^{}\\]|\\.|\{[^{}]*\})*\})+)\}", re.S),
    re.compile(r"\\math(?:rm|it)\s*\{((?![A-Za-z\s]*\})(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}", re.S),
    re.compile(r"\\text\s*\{([^{}]*=[^{}]*)\}"),
]
"""What is put around a whole formula: delimiters, braces, a font."""
_PLAIN_WORDS = re.compile(r"^(?![^$]*\\).*?(?<!\S)(?!(?:and|or)\b)[A-Za-z]{2,}", re.S)
_QUANTITY = re.compile(r"\\text\s*\{\s*(-?\d[\d.,/]*)\s*([A-Za-z%][^{}\\]*)\}")


def to_ascii(text: str) -> str | None:
    """Return `text` in ASCII where a notation exists; None if a part of it is invisible.

    >>> to_ascii("４"), to_ascii("√2"), to_ascii("1⅜"), to_ascii("x²ⁿ"), to_ascii("٤"), to_ascii("4\u200b2")
    ('4', '\\\\sqrt{2}', '1\\\\frac{3}{8}', 'x^{2n}', '4', None)
    """
    if text.isascii():
        return None if re.search(r"[\0-\b\x0e-\x1f\x7f]", text) else re.sub(r"\s+", " ", text)
    text = re.sub(r"[\s\u2061\u2062]+", " ", _INVISIBLE.sub("", text))  # function application, invisible times
    text = _SLASHED.sub(lambda m: unicodedata.normalize("NFKC", rf"\frac{{{m[1]}}}{{{m[2]}}}"), text)
    text = re.sub(r"√\s*(?:\(([^()]*)\)|(\d+|\w))", r"\\sqrt{\1\2}", text).replace("√", r"\sqrt")
    text = re.sub(r"([∛∜])\s*(\d+|[A-Za-z])", lambda m: rf"\sqrt[{'34'[m[1] == '∜']}]{{{m[2]}}}", text)
    text = re.sub(r"(^|[=(\[{,^])(\s*)–(?=\s*[\dA-Za-z.\\])", r"\1\2-", text)
    text = "".join(_written(form, "".join(run)) for form, run in groupby(text, _form))
    text = unicodedata.normalize("NFKC", _SYMBOL.sub(lambda m: _SYMBOLS[m[0]], text))
    if any(unicodedata.category(character) in ("Cf", "Cs", "Cc", "Co") for character in text):
        return None
    return "".join(c if c.isascii() or not c.isdecimal() else str(unicodedata.decimal(c)) for c in text)


def _form(character: str) -> str:
    """Return the form of a character: ``<super>``, ``<fraction>``, …; empty for ordinary ones."""
    form = unicodedata.decomposition(character).partition(" ")[0]
    return form if form in _FORMS or form == "<fraction>" else ""


def _written(form: str, run: str) -> str:
    if form == "<fraction>":
        parts = [unicodedata.normalize("NFKC", each).partition("⁄") for each in run]
        return "".join(rf"\frac{{{top}}}{{{bottom}}}" for top, _, bottom in parts)
    return _FORMS[form] % unicodedata.normalize("NFKC", run) if form else run


def normalize_latex(text: str) -> str:
    """Return `text` with one notation for synonymous commands, without style, spacing and what is around a formula.

    >>> normalize_latex(r"$\\left(\\dfrac12,\\ \\sqrt3\\right)$."), normalize_latex(r"0.1666\\ldots")
    ('(\\\\frac{1}{2}, \\\\sqrt{3} )', '0.1\\\\overline{6}')
    """
    text = _unescaped(_with_words(text))
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _SCALE.sub(lambda m: f"\\times 10^{{{_SCALES[m[2]]}}}{m[1] or '' if not m[3] else ''}", text)
    text = _CONTINUED.sub(_repeating, text)
    text = _without_ending(re.sub(r" {2,}", " ", text))
    for pattern in (*_OUTER, *_OUTER):
        while match := pattern.fullmatch(text):
            text = _without_ending(match[1] or (match.re.groups > 1 and match[2]) or "")
    quantity = _QUANTITY.fullmatch(text)
    return f"{quantity[1]}\\text{{ {quantity[2]}}}" if quantity else text


def _with_words(text: str) -> str:
    """Return a text with the words between its formulas in a command for text.

    >>> _with_words(r"min. at $x=1$, max. at $2$"), _with_words("$1$ and $2$")
    ('\\\\text{min. at} $x=1$, \\\\text{max. at} $2$', '$1$ and $2$')
    """
    parts = re.split(r"(?<!\\\\)(\$+)", text)
    if len(parts) == 1 or len(parts) % 4 != 1 or not _PLAIN_WORDS.search(" ".join(parts[::4])):
        return text
    parts[::4] = [re.sub(r"[A-Za-z](?:[^\\0-9]*[A-Za-z)])?", r"\\text{\g<0>}", each) for each in parts[::4]]
    return "".join(parts)


def _unescaped(text: str) -> str:
    """Return a text with single backslashes if all its commands have two, or some outside a table, where two end a row.

    >>> _unescaped(r"\\\\frac12"), _unescaped(r"\\begin{matrix}1\\\\ab\\end{matrix}")
    ('\\\\frac12', '\\\\begin{matrix}1\\\\\\\\ab\\\\end{matrix}')
    """
    if re.search(r"\\\\[A-Za-z]{2}", text) and all(len(run) % 2 == 0 for run in re.findall(r"\\+", text)):
        return text.replace("\\\\", "\\")
    return text if "\\begin" in text else re.sub(r"(?<!\\)\\(?=\\[A-Za-z]{2})", "", text)


def _without_ending(text: str) -> str:
    return text.strip().rstrip("\\ ").removesuffix(".").strip()


def _repeating(match: re.Match[str]) -> str:
    """Return 0.1666… as a repeating decimal; digits without a repetition at their end stay as they are."""
    whole, places = match.groups()
    repetition = _REPETITION.fullmatch(places)
    return f"{whole or 0}.{repetition[1]}\\overline{{{repetition[3]}}}" if repetition else match[0]


def strip_spaces(text: str) -> str:
    """Return `text` without insignificant spaces; texts in the same notation become equal.

    >>> strip_spaces(r"\\{ 1, 2 \\}"), strip_spaces("1 2"), strip_spaces("101_{2}"), strip_spaces("2^{1}0")
    ('\\\\{1,2\\\\}', '1 2', '101_2', '2^{1}0')
    """
    text = re.sub(r"([_^])\s*\{(\w)\}(?!\s*\d)", r"\1\2", re.sub(r"(?<=\d)\s+(?=[A-Za-z])", "", text))
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"(?<![0-9A-Za-z.])\s|\s(?![0-9A-Za-z.])|(?<=\D\.)\s|\s(?=\.\D)", "", text)
