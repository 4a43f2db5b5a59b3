"""Texts of the policy as input of another model, whose special tokens they must not contain."""

from __future__ import annotations

from typing import Any


def without_special_tokens(tokenizer: Any, text: str) -> str:
    """Return a text with a space after the first character of each special token that it spells.

    A tokenizer makes a special token of ``<|im_end|>`` wherever it stands. A completion that spells it could end its
    own message, and write the next one to the model that scores it. Which tokens these are is read from the tokenizer;
    those of one character are kept.

    Args:
        tokenizer: Of the model that reads the text.
        text: A completion.
    """
    added = (token.content for token in tokenizer.added_tokens_decoder.values() if token.special)
    for token in sorted({*tokenizer.all_special_tokens, *added}, key=len, reverse=True):
        if len(token) > 1:
            text = text.replace(token, f"{token[0]} {token[1:]}")
    return text


def messages_without_special_tokens(tokenizer: Any, messages: Any) -> list[Any]:
    """Return chat messages of which each content that is a text is without special tokens."""
    return [
        {**message, "content": without_special_tokens(tokenizer, message["content"])}
        if isinstance(message.get("content"), str)
        else message
        for message in messages
    ]
