"""Text of single tokens, so that a completion can be shown token by token without its tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

UNKNOWN = "\ufffd"
"""Part of a character, where a token holds some of its bytes only."""
_LONGEST = 8
"""Most tokens of one character."""


def text_of_tokens(tokenizer: Any, rows: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return the text of every token of some sequences.

    Returns:
        `vocabulary`, id → text, and `joined`, row → [[position, count, text], …]: tokens that are one character
        together.
    """
    ids = sorted({int(token) for row in rows for token in row})
    if not ids:  # `batch_decode` of no sequence returns one text
        return {"vocabulary": {}, "joined": {}}
    names = tokenizer.convert_ids_to_tokens(ids)
    texts = tokenizer.batch_decode([[token] for token in ids], clean_up_tokenization_spaces=False)
    vocabulary = {token: _spaced(name, text) for token, name, text in zip(ids, names, texts, strict=True)}
    parts = {token for token, text in vocabulary.items() if UNKNOWN in text}
    characters = ((row, list(_characters(tokenizer, tokens, parts))) for row, tokens in enumerate(rows))
    joined = {row: entries for row, entries in characters if entries}
    return {"vocabulary": vocabulary, "joined": joined}


def token_texts(tokens: Mapping[str, Any], row: int, ids: Sequence[int]) -> list[str]:
    """Return the text of each token of a sequence; of tokens that are one character, the first has it."""
    vocabulary = tokens.get("vocabulary", {})
    texts = [str(vocabulary.get(int(token), f"<{token}>")) for token in ids]
    for position, count, text in tokens.get("joined", {}).get(row, ()):
        texts[position : position + count] = [text, *[""] * (count - 1)]
    return texts


def _spaced(name: Any, text: str) -> str:
    """Return the text with the space that SentencePiece has in the name of a token and drops at the start of a text."""
    return f" {text}" if isinstance(name, str) and name.startswith("\u2581") and not text.startswith(" ") else text


def _characters(tokenizer: Any, tokens: Sequence[int], parts: Iterable[int]) -> Any:
    """Yield [position, count, text] of the shortest runs of tokens that decode to whole characters."""
    position, unknown = 0, set(parts)
    while position < len(tokens):
        step = 1
        if int(tokens[position]) in unknown:
            for count in range(2, min(_LONGEST, len(tokens) - position) + 1):
                text = tokenizer.decode(tokens[position : position + count], clean_up_tokenization_spaces=False)
                if UNKNOWN not in text:
                    yield [position, count, text]
                    step = count
                    break
        position += step
