"""Parser of answers: splits a text at its top-level separators, from sets and relations down to expressions."""

from __future__ import annotations

from collections.abc import Callable

from rlm_math.algebra import bracket_rules, list_rules, relation_rules
from rlm_math.algebra.nodes import UnreadableError
from rlm_math.algebra.parser import parse_expression
from rlm_math.algebra.splitting import Parse, Tokens
from rlm_math.algebra.tokens import tokenize
from rlm_math.algebra.values import Value


def parse_value(text: str) -> Value:
    """Parse an answer.

    Raises:
        UnreadableError: It is no mathematics, or has two readings.
        UndefinedError: It contains a division of two numbers by zero.
    """
    return _parse(tokenize(text))


def _parse(tokens: Tokens) -> Value:
    if not tokens:
        raise UnreadableError("empty")
    for rule in _RULES:
        value = rule(tokens, _parse)
        if value is not None:
            return value
    return parse_expression(tokens)


_RULES: tuple[Callable[[Tokens, Parse], Value | None], ...] = (
    list_rules.prose,
    relation_rules.congruence,
    relation_rules.approximation,
    list_rules.alternatives,
    relation_rules.membership,
    list_rules.set_operation,
    list_rules.comma_list,
    relation_rules.relation,
    list_rules.ratio,
    list_rules.plus_minus,
    bracket_rules.transposed,
    bracket_rules.brackets,
)
"""Tried in this order: what binds weakest comes first."""
