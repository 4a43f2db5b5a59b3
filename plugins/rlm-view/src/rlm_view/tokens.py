"""Tokens of a capsule: their text, and what a replay changes per token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from rlm_view.capsule import Capsule
from rlm_view.replay import Replay

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


_MAX_ENTRIES, _MAX_PER_COMPLETION = 64, 3
_CONTEXT = 2
"""Tokens before and after a token in its text."""


def figures(result: Replay) -> dict[str, float | int]:
    """Return the figures of a replay: loss, completions with an advantage, tokens with a gradient, its size."""
    advantages, mask = result.scored.advantages, result.scored.mask
    nonzero = (advantages.expand(mask.shape) != 0) & mask
    gradient = gradient_of(result)
    has_advantage, step_mask = nonzero[result.rows], result.step.mask
    clipped = (
        has_advantage[:, : step_mask.shape[1]] & (gradient == 0) if result.losses else torch.zeros(0, dtype=torch.bool)
    )
    return {
        "loss": result.loss,
        "completions": len(mask),
        "completions with an advantage": int(nonzero.any(1).sum()),
        "tokens trained on": int(mask.sum()),
        "tokens with a gradient": int((gradient != 0).sum()),
        "tokens without one despite an advantage": int(clipped.sum()),
        "Σ |∂J/∂log π|": float(gradient.abs().sum()),
    }


def gradient_of(result: Replay) -> torch.Tensor:
    """Return ∂J/∂log π (R, T) of a replay; zeros if the loss does not depend on log-probs."""
    return result.tokens.get("gradient", torch.zeros(result.step.mask.shape if result.losses else (0, 0)))


def changes(capsule: Capsule, before: Replay, after: Replay) -> list[dict[str, Any]]:
    """Return the tokens whose gradient changes most, first those whose sign changes; a few of each completion.

    If `after` is `before`, these are the tokens with the largest gradient.

    Returns:
        Per token ``row, position, text, gradient, gradient_after, advantage, advantage_after, sign_changes``.
    """
    gradient_before, gradient_after = gradient_of(before), gradient_of(after)
    if not gradient_before.numel() or gradient_before.shape != gradient_after.shape:
        return []
    size = gradient_after.abs() if before is after else (gradient_after - gradient_before).abs()
    flips = torch.sign(gradient_before) * torch.sign(gradient_after) < 0
    order = (size + flips * (size.max() + 1)).flatten().argsort(descending=True, stable=True)
    entries: list[dict[str, Any]] = []
    width = gradient_before.shape[1]
    counts: Counter[int] = Counter()
    for index in order.tolist():
        row, position = divmod(index, width)
        if size[row, position] == 0 or len(entries) == _MAX_ENTRIES:
            break
        counts[row] += 1
        if counts[row] > _MAX_PER_COMPLETION:
            continue
        number = int(before.rows[row])
        entry = {"row": number, "position": position, "text": _text(capsule, number, position)}
        for suffix, result, gradient in (("", before, gradient_before), ("_after", after, gradient_after)):
            advantages = result.scored.advantages
            entry[f"gradient{suffix}"] = float(gradient[row, position])
            entry[f"advantage{suffix}"] = float(advantages[number, min(position, advantages.shape[1] - 1)])
        entries.append({**entry, "sign_changes": bool(flips[row, position])})
    return entries


def completion_ids(capsule: Capsule) -> list[list[int]]:
    """Return the token ids of the completions of a capsule."""
    if capsule.batch is not None and capsule.batch.completion_ids:
        return [list(map(int, ids)) for ids in capsule.batch.completion_ids]
    return [list(map(int, ids)) for ids in (capsule.sampled or {}).get("completion_ids", ())]


def _text(capsule: Capsule, row: int, position: int) -> str:
    """Return a token in brackets, with the tokens around it."""
    ids = completion_ids(capsule)
    texts = token_texts(capsule.tokens, row, ids[row] if row < len(ids) else [])
    preceding = "".join(texts[max(position - _CONTEXT, 0) : position])
    following = "".join(texts[position + 1 : position + 1 + _CONTEXT])
    token = texts[position] if position < len(texts) else "<end>"
    return f"{preceding}[{token}]{following}"
