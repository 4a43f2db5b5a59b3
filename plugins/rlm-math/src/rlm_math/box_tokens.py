"""Tokens of the text around a box: words, operands, operators, relations and marks, without commands for style."""

from __future__ import annotations

import re
from typing import NamedTuple

_STYLE_NAMES = (
    "text textbf textit textrm textnormal textsf texttt textup emph underline mbox hbox mathrm mathbf mathit mathsf "
    "mathtt boldsymbol bm pmb boxed fbox framebox tiny scriptsize footnotesize small normalsize large Large LARGE "
    "huge Huge displaystyle textstyle scriptstyle bf it rm sf bfseries itshape color textcolor colorbox fcolorbox "
    "centering noindent raggedright centerline ensuremath left right big Big bigg Bigg bigl bigr Bigl Bigr biggl "
    "biggr Biggl Biggr medskip bigskip smallskip limits nolimits section subsection paragraph overset underset "
    "stackrel textsuperscript operatorname"
)
"""Commands that change only the look of what they contain, or label a relation."""
_RELATION_NAMES = (
    "therefore because implies impliedby iff Rightarrow Leftrightarrow Longrightarrow Longleftrightarrow to "
    "rightarrow leftarrow longrightarrow Leftarrow mapsto leadsto approx equiv cong sim simeq leq geq le ge in "
    "leqslant geqslant propto doteq coloneqq colon quad qquad item newline par hline hfill bullet star blacksquare "
    "square Box qed checkmark tag label ldots dots triangleright pmod bmod mod"
)
"""Commands that end an expression: relations, arrows, wide spaces, signs of a list or of the end of a proof."""
_STYLES, _RELATIONS = ({*names.split()} for names in (_STYLE_NAMES, _RELATION_NAMES))
_CONJUNCTIONS = {"lor": "or", "vee": "or", "land": "and", "wedge": "and"}
_TEXTS = {"text", "textbf", "textit", "textrm", "textnormal", "mathrm", "mbox", "hbox", "textsuperscript"}
_TOKEN = re.compile(
    r"""(?P<delimiter>\$\$?|\\[()\[\]])
  | (?P<line>\n|<br\s*/?>|\\\\|&|\\(?:begin|end)\s*\{\s*[A-Za-z]+\*?\s*\})
  | (?P<space>(?:[ \t\r~]|\\[ ,;:!>]|\\(?:text)?color\s*\{[^{}]*\}|\\[hv]space\*?\s*\{[^{}]*\}|</?[A-Za-z]+\s*/?>)+)
  | (?P<mark>\\[%$#]|\^\s*(?:\\(?:circ|degree|prime)(?![A-Za-z])|\{(?:\s*\\(?:circ|degree|prime))+\s*\}))
  | (?P<opened>[(\[]|\\\{) | (?P<closed>[)\]]|\\\})
  | (?P<command>\\[A-Za-z]+(?:\s*\[[^][]*\](?=\s*\{))?|\\.)
  | (?P<relation>[-=]+>|[=<>:]=|[=≈≡≤≥⇒→∴⟹⟶])
  | (?P<number>[0-9]+(?:[.,]\d+)*|[⁰¹²³⁴-⁹½⅓⅔¼¾])
  | (?P<word>[A-Za-z]{2,}(?:['’][a-z]+)?|[^\W\d_a-zA-Z]+) | (?P<letter>[A-Za-z])
  | (?P<operator>\*+|_+|!=|[-+/^|<>!−–—×·÷±√¬≠]) | (?P<brace>[{}]) | (?P<sign>.)""",
    re.X | re.S,
)
_OPERANDS = re.compile(r"\\(begin|end)\s*\{\s*(?:.?(?:small)?matrix|cases)\*?\s*\}")


class Token(NamedTuple):
    """A token: its kind, its text, and whether it stands in a command for text."""

    kind: str
    text: str
    in_text: bool = False


class Tokens(NamedTuple):
    """The tokens of a text, and whether its end is in an argument of a command that is no style, or in a matrix."""

    tokens: list[Token]
    is_in_argument: bool


def tokenize(text: str) -> Tokens:
    """Split a text into tokens; brackets of style are dropped, and the last brace of an argument is "closed".

    >>> [(token.kind, token.text) for token in tokenize(r"2\\textbf{x} = \\frac{").tokens if token.kind != "space"]
    [('number', '2'), ('letter', 'x'), ('relation', '='), ('operator', '\\\\frac')]
    """
    tokens, groups, command, matrices = list[Token](), list[tuple[str, int]](), "", 0
    for match in _TOKEN.finditer(text):
        kind, found = str(match.lastgroup), match[0]
        if kind == "brace":
            if found == "{":
                groups.append((command, len(tokens)))
            command, start = groups[-1] if groups else ("", 0)
            if found == "}" and groups:
                groups.pop()
                if command in _RELATIONS:
                    del tokens[start:]  # the label of a relation
                elif command and command not in _STYLES:
                    tokens.append(Token("closed", found))
            elif found == "{":
                command = ""
            continue
        if kind == "command":
            command = re.sub(r"\W", "", found.partition("[")[0]) or found
            if command in _STYLES:
                continue
            if command in _CONJUNCTIONS:
                kind, found = "word", _CONJUNCTIONS[command]
            else:
                kind = "relation" if command in _RELATIONS else "operator"
        elif kind != "space":
            command = found if found in ("^", "_") else ""
        if environment := _OPERANDS.fullmatch(found):
            matrices += 1 if environment[1] == "begin" else -1
        tokens.append(Token(kind, found, any(name in _TEXTS for name, _ in groups)))
    shown = (_STYLES | _RELATIONS) - {"label"}
    return Tokens(tokens, matrices > 0 or any(name and name not in shown for name, _ in groups))
