"""Check of a tokenizer against the text of an environment, for characters it would encode as ``<|unk|>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import RecipeError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, row: Mapping[str, Any]) -> None:
    """Check that a tokenizer can encode an example, its prompt and its demonstration.

    Raises:
        RecipeError: The prompt is a conversation and the tokenizer has no chat template, or the text has characters
            outside the vocabulary.
    """
    text = _rendered(tokenizer, row["prompt"]) + (row.get("demonstration") or "")
    if tokenizer.unk_token is None or not tokenizer.is_fast:
        return
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    spans = zip(encoding["input_ids"], encoding["offset_mapping"], strict=True)
    unknown = dict.fromkeys(text[start:end] for token, (start, end) in spans if token == tokenizer.unk_token_id)
    unknown.pop(tokenizer.unk_token, None)  # on purpose: some tokenizers use one token for unknown and end
    if not unknown:
        return
    raise RecipeError(
        f"the tokenizer has no token for {', '.join(map(repr, unknown))} in {text[:80]!r}",
        where="model",
        hint="add the characters to the knob `characters` of a model from scratch, or start from a pretrained one",
    )


def _rendered(tokenizer: PreTrainedTokenizerBase, prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    if tokenizer.chat_template is None:
        raise RecipeError(
            "the prompts are conversations, but the model's tokenizer has no chat template",
            where="model",
            hint="start from an instruct model, or give the data set `chat: false` to keep plain text",
        )
    return str(tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True))
