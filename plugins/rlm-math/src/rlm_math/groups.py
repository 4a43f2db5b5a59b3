"""Groups, rings and spaces in one notation: ``\\mathbb{Z}/2\\mathbb{Z}``. They are compared as text."""

from __future__ import annotations

import re

_SIZE = r"(?:\d+|[a-z])"
_FACTOR = re.compile(
    rf"\\mathbb\{{[ZQRCFN]\}}(?:/(?:\(?{_SIZE}\\mathbb\{{Z\}}\)?|{_SIZE})|_{_SIZE}|(?:_{_SIZE})?\^(?:\d+|n))?"
    rf"|\(\\mathbb\{{Z\}}/{_SIZE}\\mathbb\{{Z\}}\)\^{_SIZE}"
)
_PRODUCT = re.compile(r"\\(?:times|oplus)(?![A-Za-z])")


def normalized_group(text: str) -> str:
    r"""Return a group without spaces, and the factors of a product in order; empty for anything else.

    >>> normalized_group(r"\mathbb Z_{3} \times \mathbb{Z}/2\mathbb{Z}"), normalized_group(r"\mathbb{R}")
    ('\\mathbb{Z}/2\\mathbb{Z}\\times\\mathbb{Z}_3', '')
    """
    plain = re.sub(r"\\mathbb\s*\{?\s*([A-Z])\s*\}?", r"\\mathbb{\1}", text)
    plain = re.sub(r"([_^])\{(\w+)\}", r"\1\2", re.sub(r"\s", "", plain))
    factors = _PRODUCT.split(plain)
    is_group = len(plain) > len("\\mathbb{Z}") and all(map(_FACTOR.fullmatch, factors))
    return "\\times".join(sorted(factors)) if is_group else ""
