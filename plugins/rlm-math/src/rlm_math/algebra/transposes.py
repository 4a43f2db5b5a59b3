"""Rule for transposed vectors and matrices: ``(1,2)^T`` is a column."""

from __future__ import annotations

from rlm_math.algebra.splitting import Parse, Tokens, is_enclosed
from rlm_math.algebra.values import Items, Matrix, Value

_MARKS = {"T", "\\top", "\\intercal"}


def transposed(tokens: Tokens, parse: Parse) -> Value | None:
    """Parse ``(1,2)^T`` and ``A^{\\top}`` for a vector or matrix that is written out; None for anything else."""
    texts = [token.text for token in tokens]
    size = 4 if texts[-1] == "}" else 2
    exponent = texts[-size:]
    if exponent[0] != "^" or not _MARKS & {*exponent[1:]} or not is_enclosed(tokens[:-size]):
        return None
    value = parse(tokens[:-size])
    if isinstance(value, Matrix) and not value.bars:
        return Matrix(tuple(zip(*value.rows, strict=True)))
    if isinstance(value, Items) and value.opened in ("(", "[", "<"):
        return Matrix(tuple((item,) for item in value.items))
    return None
