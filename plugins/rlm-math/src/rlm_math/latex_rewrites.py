"""Notations with the same meaning as an ordinary one: infix commands, styles, residues, repeating decimals."""

from __future__ import annotations

import re

_STYLES = "boldsymbol bm pmb underline emph textsf texttt textnormal mathsf"
_SWITCHES = "bf rm it large Large LARGE huge Huge small normalsize limits nolimits"
_DOTS = r"(?:\\(?:ldots|dots|cdots|dotsc)(?![A-Za-z])|\.\.\.)"
_MODULUS = (
    r"(?:\\(?:mathrm|text|operatorname)\s*\{\s*mod\s*\}|\\(?:mod|bmod)(?![A-Za-z])|mod(?![a-z])|\\text\s*\{\s*mod)"
)

_PATTERNS = [
    (r"\\(?:text|mathrm)\s*\{\s*(USD|EUR|GBP)\s*\}", r"\1 "),
    (r"(?:\\text\s*\{\s*US\s*\}|US)\s*(?=\\\$)", ""),
    (r"\\(?:left|right)\s*\.", " "),
    (r"\\mathbf\s*\{?\s*([ijk])(?![A-Za-z])\s*\}?", r"\\vec{\1}"),
    (r"\\hspace\*?\s*\{[^{}]*\}", " "),
    (r"\\text\s*\{\s*\(\s*mod\s*(\d+)\s*\)\s*\}", r"\\pmod{\1}"),
    (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
    (r"\{([^{}]*?)\\over(?![A-Za-z])([^{}]*)\}", r"\\frac{\1}{\2}"),
    (r"^([^{}]*?)\\over(?![A-Za-z])([^{}]*)$", r"\\frac{\1}{\2}"),
    (r"\{([^{}]*?)\\choose(?![A-Za-z])([^{}]*)\}", r"\\binom{\1}{\2}"),
    (rf"\\(?:{'|'.join(_STYLES.split())})\s*(?=\{{)", ""),
    (rf"\\(?:{'|'.join(_SWITCHES.split())})(?![A-Za-z])", " "),
    (rf"\(\s*{_MODULUS}\s*\}}?\s*([^()]*?)\s*\)", r"\\pmod{\1}"),
    (r"\\mod(?![A-Za-z])\s*(\d+|[a-z])\s*$", r"\\pmod{\1}"),
    (r"(\\equiv.*)\\bmod(?![A-Za-z])\s*(\d+|[a-z])\s*$", r"\1\\pmod{\2}"),
    (r"\\not\s*=", r"\\neq "),
    (r"\\not\s*<|\\nless(?![A-Za-z])", r"\\geq "),
    (r"\\not\s*>|\\ngtr(?![A-Za-z])", r"\\leq "),
    (r"(?<=[\d.])\\bar(?=\s*\{\s*\d)", r"\\overline"),
    (r"(?<=\d\.)\((\d+)\)(?!\d)", r"\\overline{\1}"),
]
_REWRITES = [(re.compile(pattern, re.S), replacement) for pattern, replacement in _PATTERNS]
_DOTTED = re.compile(r"(?<=[\d.])\\dot\s*\{?\s*(\d)\s*\}?(?:(\d*)\\dot\s*\{?\s*(\d)\s*\}?)?(?!\d)")
_CONTINUED = re.compile(rf"(?<![\d.])(\d*)\.(\d+)\s*{_DOTS}")
MAX_PLACES = 60
"""Decimal places that are searched for a repetition."""
_REPETITION = re.compile(r"(\d*?)((\d+?)\3+)")


def rewrite(text: str) -> str:
    """Return a text with ordinary notation where another means the same.

    >>> rewrite(r"{1 \\over 2}"), rewrite(r"0.\\dot{3}\\dot{6}"), rewrite(r"3 (\\text{mod } 7)")
    ('\\\\frac{1 }{ 2}', '0.\\\\overline{36}', '3 \\\\pmod{7}')
    """
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _DOTTED.sub(lambda m: f"\\overline{{{m[1]}{m[2] or ''}{m[3] or ''}}}", text)
    return _CONTINUED.sub(_repeating, text)


def _repeating(match: re.Match[str]) -> str:
    """Return 0.1666… as a repeating decimal; digits without a repetition at their end stay as they are."""
    whole, places = match.groups()
    repetition = _REPETITION.fullmatch(places) if len(places) <= MAX_PLACES else None
    if repetition is None:
        return match[0]
    return f"{whole or 0}.{repetition[1]}\\overline{{{repetition[3]}}}"
