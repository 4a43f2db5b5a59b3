"""Whether a tokenizer can write the rows of a world; a model that reads ``<|unk|>`` learns nothing, silently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import RecipeError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def check_fit(tokenizer: PreTrainedTokenizerBase, row: Mapping[str, Any]) -> None:
    """Holds one row of a world, its prompt and demonstration, against the tokenizer of a model.

    Raises:
        RecipeError: The prompt is a conversation and there is no chat template, or the text has characters the
            tokenizer does not know.
    """
    text = _written(tokenizer, row["prompt"]) + (row.get("demonstration") or "")
    unknown = tokenizer.unk_token_id
    if unknown is None or unknown not in tokenizer(text, add_special_tokens=False)["input_ids"]:
        return
    strange = [c for c in dict.fromkeys(text) if unknown in tokenizer(c, add_special_tokens=False)["input_ids"]]
    raise RecipeError(
        f"the tokenizer does not know {', '.join(map(repr, strange)) or 'a word'} in {text[:80]!r}",
        where="model",
        hint="add the characters to the knob `characters` of a model from scratch, or start from a pretrained one",
    )


def _written(tokenizer: PreTrainedTokenizerBase, prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    if tokenizer.chat_template is None:
        raise RecipeError(
            "the prompts are conversations, but the model's tokenizer has no chat template",
            where="model",
            hint="start from an instruct model, or give the data set `chat: false` to keep plain text",
        )
    return str(tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True))
