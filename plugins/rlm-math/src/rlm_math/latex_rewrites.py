"""Notations with the same meaning as an ordinary one: infix commands, styles, residues, repeating decimals."""

from __future__ import annotations

import re

_STYLES = "boldsymbol bm pmb underline emph"
_SWITCHES = "bf it large Large LARGE huge Huge small normalsize limits nolimits textstyle scriptstyle"
_COLORS = "black blue brown cyan darkgray gray green lime magenta olive orange pink purple red teal violet"
"""Colors that hide no text on a white page."""
_DOTS = r"(?:\\(?:ldots|dots|cdots|dotsc)(?![A-Za-z])|\.\.\.)"
_MODULUS = (
    r"(?:\\(?:mathrm|text|operatorname)\s*\{\s*mod\s*\}|\\(?:mod|bmod)(?![A-Za-z])|mod(?![a-z])|\\text\s*\{\s*mod)"
)

_TH = r"\{\s*(?:st|nd|rd|th)\s*\}"
_ORDINAL = rf"(?:(?:\^\s*)?\\(?:text|mathrm)\s*{_TH}|\^\s*\{{\s*\\(?:text|mathrm)\s*{_TH}\s*\}}|\^\s*{_TH})"
_SYSTEM = r"\\(?:begin|end)\s*\{(?:array|aligned|matrix)\}"

_LINES = r"(?:aligned|align|gathered|gather|split|equation)\*?"

_VECTOR = r"\\(?:vec|mathbf|boldsymbol|bm|overrightarrow)(?![A-Za-z])"

_PATTERNS = [
    (r"(?<![\^_A-Za-z])(?<![\^_] )\{\s*([-+=]|\\(?:cdot|times|div|pm)(?![A-Za-z]))\s*\}", r"\1"),
    (r"(?<![\^_A-Za-z}])\{\s*(\\(?:sin|cos|tan|cot|sec|csc|ln|log)(?![A-Za-z]))\s*\}(?=\s*[\^_])", r"\1"),
    (r"\\text\s*\{\s*\}", " "),
    (r"(?<=\d)((?:\s|\\[,;: ]|~)*)\\operatorname\s*\{([^{}]*)\}\s*$", r"\1\\mathrm{\2}"),
    (r"^\s*\\text\s*\{\s*\$([^$]*)\$\s*\}\s*(?:\\,)?\s*\.?\s*$", r"\1"),
    (r"(?<![A-Za-z])\\(?:text|mathrm)\s*\{\s*([-,;])\s*\}", r"\1"),
    (r"\{\s*\\rm\s+([^{}]*)\}|\\rm\s*\{([^{}]*)\}", r"\\mathrm{\1\2}"),
    (r"\\rm(?![A-Za-z])", " "),
    (r"(?<=[\d)])\s*\{\s*\}\s*(?=\^\s*\{?\s*\\circ)", ""),
    (r"(?<=[\d)])\s*\^\s*(?:o(?![A-Za-z])|\{\s*(?:\\(?:text|mathrm)\s*\{\s*o\s*\}|o)\s*\})", r"^\\circ "),
    (r"\\(?:text|mathrm)\s*\{\s*(\^\\circ|\\%)\s*\}", r"\1"),
    (r"(?<=\d)\s*\\text\s*\{\s*x\s*\}\s*(?=10)", r"\\times "),
    (r"^\s*([a-z])\s*:\s*([a-z])\s*\\mapsto(?![A-Za-z])", r"\1(\2)="),
    (r"\{\s*\\mathrm\s*\{\s*d\s*\}", "{d "),
    (r"\\hat\s*\{\s*\\(?:mathbf|boldsymbol|vec)\s*\{?\s*([ijk])\s*\}?\s*\}", r"\\hat{\1}"),
    (r"^\s*(\\text\s*\{)?\s*``([^`'{}]*)''(\s*\})?\s*$", r"\1\2\3"),
    (r"^\s*\\text\s*\{\s*(\"|')([A-Za-z ]+)\1\s*\}\s*$", r"\\text{\2}"),
    (rf"^\s*\\begin\s*\{{{_LINES}\}}((?:(?!\\\\|\\begin|&.*&).)*)\\end\s*\{{{_LINES}\}}\s*$", r"\1"),
    (rf"({_VECTOR}\s*(?:\{{\s*[A-Za-z]+\s*\}}|[A-Za-z]))\s*\\times\s*(?={_VECTOR})", r"\1\\crossproduct "),
    (r"(?<=\d)(?:\\!)?,\s*\\!\s*(?=\d{3}(?!\d))", ","),
    (r"\\(?:text|math)dollar(?![A-Za-z])|\\text\s*\{\s*\\\$\s*\}", r"\\$"),
    (r"\\text\s*\{\s*([¢€£¥₹])\s*\}", r"\1"),
    (rf"(?<=\d)\s*{_ORDINAL}(?!\s*\d)", ""),
    (r"\^\s*\{\s*\\(?:mathsf|mathrm|text)\s*\{?\s*T\s*\}?\s*\}", "^T"),
    (r"(\d+)\s*(?:\\text\s*\{\s*out of\s*\}|out of)\s*(\d+)", r"\\frac{\1}{\2}"),
    (r"^\s*(?:\\text\s*\{)?\s*(\d+)\s*(?:\\text\s*\{\s*in\s*\}| in )\s*(\d+)\s*\}?\s*$", r"\\frac{\1}{\2}"),
    (r"\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm)\s*\]|\\cr(?![A-Za-z])", r"\\\\"),
    (
        rf"\\left\s*\\(?:\{{|lbrace)\s*{_SYSTEM}\s*(?:\{{[lcr ]+\}})?(.*?){_SYSTEM}\s*\\right\s*\.",
        r"\\begin{cases}\1\\end{cases}",
    ),
    (r"\\in\s*(?:\\(?:mathbf|mathrm|text)\s*\{\s*([RZNQC])\s*\}|([RZNQC])(?![A-Za-z(]))", r"\\in \\mathbb{\1\2}"),
    (r"^\s*\\mathbf\s*\{\s*R\s*\}\s*$", r"\\mathbb{R}"),
    (r"\\overrightarrow(?![A-Za-z])", r"\\vec"),
    (r"\\colon(?![A-Za-z])|\{:\}", ":"),
    (r"(?<=[\d.])\\(?:bar|overline)\s*(\d)", r"\\overline{\1}"),
    (r"(?<![A-Za-z\\])oo(?![A-Za-z])", r"\\infty "),
    (r"\\(?:text|mathrm)\s*\{\s*(USD|EUR|GBP)\s*\}", r"\1 "),
    (r"(?:\\text\s*\{\s*US\s*\}|US)\s*(?=\\\$)", ""),
    (r"\\(?:left|right)\s*\.", " "),
    (r"\\mathbf\s*(?:\{\s*([ijk])\s*\}|([ijk])(?![A-Za-z]))", r"\\vec{\1\2}"),
    (rf"\\(?:text)?color\s*\{{\s*(?:{'|'.join(_COLORS.split())})\s*\}}", " "),
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
    (r"^([^{}]*?)\\choose(?![A-Za-z])([^{}]*)$", r"\\binom{\1}{\2}"),
    (r"^(\s*[A-Za-z]\s*\(\s*[a-z]\s*\)\s*)\\equiv(?![A-Za-z])(?!.*mod)", r"\1="),
    (r"(\\(?:max|min|gcd))\s*\\\{([^{}\\]*)\\\}", r"\1(\2)"),
    (r"\\text\s*\{\s*(?:is )?(even|odd)\s*\}(?=\s*(?:[,.]?\s*(?:\\\\|\\end)))", r"\\mathcal{\1}"),
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
