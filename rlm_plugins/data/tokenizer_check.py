"""Check of a tokenizer against the text of an environment, for characters it would encode as ``<|unk|>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import RecipeError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, row: Mapping[str, Any], **template: Any) -> None:
    """Check that a tokenizer can encode an example, its prompt, its demonstration and its answer.

    Args:
        tokenizer: Of the policy.
        row: An example.
        **template: ``chat_template_kwargs`` of the recipe.

    Raises:
        RecipeError: The prompt is a conversation that the chat template cannot render, or the text has characters
            outside the vocabulary.
    """
    answer = row.get("answer")
    written = _text(row.get("demonstration")) + (answer if isinstance(answer, str) else "")
    text = rendered(tokenizer, row["prompt"], **template) + written
    unknown = unknown_characters(tokenizer, text)
    if not unknown:
        return
    raise RecipeError(
        f"the tokenizer has no token for {', '.join(map(repr, unknown))} in {text[:80]!r}",
        where="model",
        hint="add the characters to the knob `characters` of a model from scratch, or start from a pretrained one",
    )


def unknown_characters(tokenizer: PreTrainedTokenizerBase, text: str) -> list[str]:
    """Return the pieces of a text for which a tokenizer has no token; of one without offsets, none are known."""
    if tokenizer.unk_token is None or not tokenizer.is_fast:
        return []
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    spans = zip(encoding["input_ids"], encoding["offset_mapping"], strict=True)
    unknown = dict.fromkeys(text[start:end] for token, (start, end) in spans if token == tokenizer.unk_token_id)
    unknown.pop(tokenizer.unk_token, None)  # on purpose: some tokenizers use one token for unknown and end
    return list(unknown)


def _text(demonstration: Any) -> str:
    """Return a demonstration, or several, as text: each is text or messages."""
    if isinstance(demonstration, list | tuple):
        return "".join(map(_text, demonstration))
    if isinstance(demonstration, Mapping):
        return str(demonstration.get("content") or "")
    return demonstration or ""


def positions_of(config: Any) -> int | None:
    """Return the number of positions of a model, with the scaling of its rotary embeddings; None: no limit is known.

    Args:
        config: A config of transformers.
    """
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or {}
    original, factor = rope.get("original_max_position_embeddings"), rope.get("factor")
    scaled = int(original * factor) if original and factor else 0
    return max(getattr(text, "max_position_embeddings", None) or 0, scaled) or None


def rendered(tokenizer: PreTrainedTokenizerBase, prompt: Any, **template: Any) -> str:
    """Return a prompt as the text that the model reads.

    Args:
        tokenizer: With the chat template, for a conversation.
        prompt: Text or messages.
        **template: ``chat_template_kwargs`` of the recipe.

    Raises:
        RecipeError: A conversation, and the tokenizer has no chat template, or one that does not render it.
    """
    if isinstance(prompt, str):
        return prompt
    if tokenizer.chat_template is None:
        raise RecipeError(
            "the prompts are conversations, but the model's tokenizer has no chat template",
            where="model",
            hint="start from an instruct model, or give the data set `chat: false` to keep plain text",
        )
    try:
        return str(tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True, **template))
    except Exception as error:  # of a template any: it is a program
        roles = ", ".join(f"{message.get('role')}: {type(message.get('content')).__name__}" for message in prompt[:8])
        problem = f"the chat template cannot render the conversation [{roles}]: {type(error).__name__}: {error}"
        hint = "the order of its roles, or the type of a content, is none that this model was trained with"
        raise RecipeError(problem, where="model", hint=hint) from None
