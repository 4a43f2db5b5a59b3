"""The glossary: a term of the field → the part, knob, recipe key, batch field, metric or hook of this project.

Terms are compared without case, hyphens and blanks: ``KL coef``, ``kl-coef`` and ``kl_coef`` are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files

from rlm_plugins.errors import nearest


def normalized(term: str) -> str:
    """Return `term` in lower case, with an underscore for each hyphen or run of blanks.

    >>> normalized("Token-level loss"), normalized("--eps_clip")
    ('token_level_loss', 'eps_clip')
    """
    return re.sub(r"[-\s]+", "_", term.strip().lstrip("-").casefold())


_TEXT = files("rlm_plugins").joinpath("glossary.txt").read_text(encoding="utf-8").replace("\n    ", " ")
_LINES = [line.partition(" = ") for line in _TEXT.splitlines() if line and not line.startswith("#")]
ENTRIES = [(spellings.split(), names.split()) for spellings, _, names in _LINES]
"""Spellings of a term and our names for it, from `glossary.txt`."""
TERMS: dict[str, tuple[str, ...]] = {
    normalized(spelling): tuple(names) for spellings, names in ENTRIES for spelling in spellings
}
"""Normalized spelling → our names, the most likely first."""


def translate(term: str) -> tuple[str, ...]:
    """Return our names for a term of the field, the most likely first; empty if the glossary lacks it.

    A dotted config path is reduced to its last component.

    >>> translate("Clip-Range"), translate("actor_rollout_ref.actor.clip_ratio"), translate("nonsense")
    (('policy_loss/clip.epsilon',), ('policy_loss/clip.epsilon',), ())
    """
    key = normalized(term)
    return TERMS.get(key) or TERMS.get(key.rpartition(".")[2], ())


def describe(name: str) -> str:
    """Return one of our names as a phrase for a message.

    >>> describe("policy_loss/clip.epsilon"), describe("policy_loss/clip"), describe("speed.padding_free")
    ('`epsilon` of `clip`', '`clip` (policy_loss)', '`speed.padding_free`')
    >>> describe("batch:mask"), describe("metric:reward")
    ('`mask` of the batch', 'the metric `reward`')
    """
    kind, _, entry = name.rpartition(":")
    if kind:
        return f"`{entry}` of the batch" if kind == "batch" else f"the {kind} `{entry}`"
    key, _, part = name.rpartition("/")
    if not key:
        return f"`{name}`"
    part, _, knob = part.partition(".")
    return f"`{knob}` of `{part}`" if knob else f"`{part}` ({key})"


def suggest(term: str, allowed: Iterable[str]) -> str:
    """Return a hint for an unknown knob or key; empty if nothing is close.

    The glossary has priority over similar spellings: a term of the field is not a typing error.

    >>> suggest("clip_range", ["epsilon", "delta"]), suggest("clip_range", ["gamma"])
    ("did you mean 'epsilon'?", "'clip_range' is `epsilon` of `clip`: see `rlm explain clip_range`")
    >>> suggest("padding-free", ["padding_free"]), suggest("gama", ["gamma"]), suggest("zzz", ["gamma"])
    ("did you mean 'padding_free'?", "did you mean 'gamma'?", '')
    """
    valid = list(allowed)
    names = translate(term)
    candidates = [normalized(term), *(re.split(r"[/.:]", name)[-1] for name in names)]
    for candidate in candidates:
        if candidate in valid:
            return f"did you mean '{candidate}'?"
    if names:
        meaning = " or ".join(describe(name) for name in names)
        return f"'{term}' is {meaning}: see `rlm explain {term}`"
    return nearest(term, valid)
