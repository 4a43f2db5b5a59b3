"""Other libraries that compare mathematical answers, called as their documentation shows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from rlm_audit.case import Case, Scorer
from rlm_plugins.errors import RlmError


def _math_verify(cases: Sequence[Case], completions: Sequence[str]) -> list[float | None]:
    try:
        from math_verify import parse, verify
    except ImportError as error:
        raise RlmError(
            "`math_verify` requires math-verify", where="--beside", hint="pip install math-verify"
        ) from error

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)

    def score(case: Case, text: str) -> float | None:
        try:
            return float(verify(parse(f"${case.columns['answer']}$"), parse(text)))
        except Exception:  # an exception is no score
            return None

    return [score(case, text) for case, text in zip(cases, completions, strict=True)]


def _trl(cases: Sequence[Case], completions: Sequence[str]) -> list[float | None]:
    from trl.rewards import accuracy_reward

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    answers = [f"${case.columns['answer']}$" for case in cases]

    def score(answer: str, text: str) -> float | None:
        try:
            return accuracy_reward([[{"role": "assistant", "content": text}]], [answer])[0]
        except Exception:  # an exception is no score
            return None

    return [score(answer, text) for answer, text in zip(answers, completions, strict=True)]


OTHERS: Mapping[str, Scorer] = {"math_verify": _math_verify, "trl": _trl}
"""Name → scorer."""
