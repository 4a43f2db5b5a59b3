"""Reference answers that no completion equals: worked solutions, lists as text, free text, patches, tests."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from rlm_plugins.data.answer_extraction import final_answers

_HASHES = re.compile(r"####\s*(\S.{0,79})\s*\Z")
_PATCH = re.compile(r"\A\s*diff --git |^--- .*\n\+\+\+ ", re.M)
_TEST_KEYS = {"inputs", "outputs", "fn_name", "functional", "testtype", "stdin", "asserts"}
_FUNCTION = re.compile(r"^def (check|test\w*)\(", re.M)
WORDS, ALPHABETIC = 12, 0.8
"""Smallest number of words of a free text, and the smallest share of them that has letters alone."""


class Kind(NamedTuple):
    """A kind of references: its plural, and what pays them in place of a comparison with equal text."""

    plural: str
    paid_by: str


FREE_TEXT = Kind("free text", "judge_verify, token_f1")
PATCH = Kind("patches", "none; as the column `demonstration` they train supervised stages")
TESTS = Kind("tests of programs", "code_tests, with the environment `code_table`")


def final_answer(text: str) -> str:
    """Return the answer inside a reference: a JSON list's only entry, the text after ``####``, a box; else the text.

    >>> [final_answer(text) for text in ('["3"]', "48/2 = 24 clips.\\n#### 24", r"so $\\boxed{5}$.", "[1, 2]", "x")]
    ['3', '24', '5', '[1, 2]', 'x']
    """
    listed = _parsed(text)
    if isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], str):
        return listed[0]
    if match := _HASHES.search(text):
        return match[1].strip()
    return (final_answers(text, "answer", "boxed") or [text])[-1]


def kind_of(texts: Sequence[str]) -> Kind | None:
    """Return the kind that more than half of some references have.

    >>> kind_of(["diff --git a/x b/x"] * 2).plural, kind_of(['{"inputs": ["1"], "outputs": ["2"]}']).plural
    ('patches', 'tests of programs')
    >>> kind_of(["Short waves are scattered by the air much more strongly than long waves are."]).plural
    'free text'
    """
    kinds = [_kind(text) for text in texts]
    return next((kind for kind in {*kinds} - {None} if 2 * kinds.count(kind) > len(kinds)), None)


def _kind(text: str) -> Kind | None:
    words = text.split()
    if _PATCH.search(text):
        return PATCH
    tests = _parsed(text)
    case = tests[0] if isinstance(tests, list) and tests else tests
    if _FUNCTION.search(text) or (isinstance(case, dict) and _TEST_KEYS & {*case}):
        return TESTS
    alphabetic = sum(word.strip(".,;:!?()'\"").isalpha() for word in words)
    return FREE_TEXT if len(words) >= WORDS and alphabetic >= ALPHABETIC * len(words) else None


def shortened(text: str) -> str:
    """Return a text without its last word."""
    return text.rstrip().rpartition(" ")[0]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
