"""Check of examples against tokenizer and model before weights are loaded: lengths, characters without a token."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rlm_plugins.data.text_columns import SAMPLED, Examples
from rlm_plugins.errors import RecipeError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_LOG = logging.getLogger(__name__)
COLUMNS = ("demonstration", "answer", "chosen", "rejected", "completion")
"""Columns that the policy must be able to write."""
PIECE = 16
"""Characters per token beyond which a prefix decides that a text is too long."""
MEASURED = SAMPLED
"""Texts of a column that are tokenized at most: the longest in bytes."""
FEW = 32
"""Prompts after which the number of tokens that the template adds is taken as known."""


def check_texts(
    tokenizer: Any,
    rows: Any,
    positions: int | None,
    completion: int | None,
    where: str,
    *,
    explicit: bool = False,
    template: Mapping[str, Any] | None = None,
    kind: str = "training",
) -> None:
    """Check that a tokenizer can encode the examples, and that their prompts fit the model, with one position left.

    Tokenized are a sample, the first example of each form of conversation or with an unknown character, and the
    longest prompts in bytes. A prompt is measured only if its bytes may exceed the limit, because a
    token has at least one byte.
    """
    examples = rows if isinstance(rows, Examples) else Examples(rows)
    added = sorted({*_telling(tokenizer, examples)} - {*examples.numbers}) if len(examples) else []
    numbered = [*examples.sample, *zip(added, examples.picked(added), strict=True)]
    for number, example in _of_every_character(sorted(numbered, key=itemgetter(0))):
        try:
            check_tokenizer(tokenizer, example, **(template or {}))
        except RecipeError as error:
            problem = f"{kind} example {number}: {error.problem}"
            raise RecipeError(problem, where=error.where, hint=error.hint) from None
    longest = _longest(tokenizer, examples, positions, completion or 0, template or {}) if positions else None
    if longest is None or positions is None:
        return
    number, tokens = longest
    subject = f"the prompt of {kind} example {number} has"
    if tokens >= positions:
        counted = f"{tokens} tokens" if tokens < 4 * positions else f"more than {4 * positions} tokens"
        raise RecipeError(
            f"{subject} {counted}, and the model has {positions} positions",
            where=where,
            hint="remove or shorten such prompts, or choose a model with more positions",
        )
    if completion is not None and tokens + completion > positions:
        problem = f"{subject} {tokens} tokens, and with a completion of {completion} more than the {positions} "
        problem += "positions of the model"
        hint = f"`trainer.max_completion_length: {max(1, positions - tokens)}`, or shorter prompts"
        if explicit:
            raise RecipeError(problem, where=where, hint=hint)
        _LOG.warning("%s: %s\n  hint: %s", where, problem, hint)


def warn_of_long_texts(tokenizer: Any, rows: Any, limits: Mapping[str, int], where: str) -> None:
    """Log a warning for each column with texts that the policy cannot write within the limit."""
    examples = rows if isinstance(rows, Examples) else Examples(rows)
    for name, limit in limits.items():
        texts = examples.texts(name, _written)
        candidates = [number for size, number in texts.longest(MEASURED) if size > limit]
        values = [_written(example.get(name)) for example in examples.picked(candidates)]
        lengths = [len(tokenizer(text[: PIECE * limit], add_special_tokens=False)["input_ids"]) for text in values]
        if too_long := [length for length in lengths if length > limit]:
            counted = f"{len(too_long)} of {len(texts.numbers)} texts of the column '{name}' are longer than {limit}"
            hint = f"the longest has {max(too_long)}: raise the limit of the trainer, or remove them"
            _LOG.warning("%s: %s tokens and are cut\n  hint: %s", where, counted, hint)


def _telling(tokenizer: Any, examples: Examples) -> list[int]:
    """Return the numbers of examples beside a sample that a tokenizer or its template may refuse."""
    numbers = examples.forms()
    for name in (name for name in ("prompt", *COLUMNS) if name in examples.sample[0][1]):
        texts = examples.texts(name, _written)
        unknown = unknown_characters(tokenizer, "".join(sorted(texts.characters())))
        numbers += [texts.containing(text)[0] for text in unknown[:FEW] if len(text) == 1]
    return numbers


def _of_every_character(examples: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield number and example of those with a new character or form of conversation: a few dozen stand for all."""
    seen: set[str] = set()
    seen_forms: set[Any] = set()
    for number, example in examples:
        form = _form(example["prompt"])
        text = str(example.get("prompt")) + "".join(str(example.get(name) or "") for name in COLUMNS)
        if form not in seen_forms or not seen.issuperset(text):
            new = set(text) - seen
            seen |= new
            seen_forms.add(form)
            yield number, {**example, "prompt": _shortened(example["prompt"], new)}


def _form(prompt: Any) -> Any:
    """Return what a chat template may object to: roles, types of contents, and further keys."""
    if isinstance(prompt, str):
        return ""
    shapes = []
    for message in prompt:
        keys = sorted(key for key, value in message.items() if value is not None)
        shapes.append((message.get("role"), type(message.get("content")).__name__, *keys))
    return tuple(shapes)


def _shortened(prompt: Any, characters: set[str], limit: int = 20_000) -> Any:
    """Return a prompt; of a very long text, the characters that count."""
    if isinstance(prompt, str) and len(prompt) > limit:
        return "".join(sorted(characters.intersection(prompt)))
    return prompt


def _longest(
    tokenizer: Any, examples: Examples, positions: int, completion: int, template: Mapping[str, Any]
) -> tuple[int, int] | None:
    """Return number and tokens of the longest prompt that is measured; None: there is no example.

    The template adds tokens of its own: as many as to the prompts before, doubled while these are few.
    """
    sizes = examples.texts("prompt", lambda prompt: "\n".join(_texts(prompt))).longest(MEASURED)
    longest, added = None, 0
    prompts = [example["prompt"] for example in examples.picked([number for _, number in sizes])]
    for measured, ((size, number), prompt) in enumerate(zip(sizes, prompts, strict=True)):
        most = size + (2 * added if measured < FEW else added)
        if longest is not None and most <= max(longest[1], positions - max(1, completion)):
            break
        tokens = _tokens(tokenizer, rendered(tokenizer, prompt, **template), positions)
        added = max(added, tokens - sum(_tokens(tokenizer, text, positions) for text in _texts(prompt)))
        if longest is None or tokens > longest[1]:
            longest = number, tokens
        if tokens >= positions:
            break
    return longest


def _texts(prompt: Any) -> list[str]:
    return [prompt] if isinstance(prompt, str) else [str(message.get("content") or "") for message in prompt]


def _tokens(tokenizer: Any, text: str, positions: int) -> int:
    if len(text) > PIECE * positions:
        prefix = len(tokenizer(text[: PIECE * positions], add_special_tokens=False)["input_ids"])
        if prefix > positions:
            return prefix
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _written(value: Any) -> str:
    """Return the text of a column: of several texts the longest, of messages their contents."""
    if isinstance(value, list | tuple):
        parts = [_written(part) for part in value]
        return "".join(parts) if value and isinstance(value[0], Mapping) else max(parts, key=len, default="")
    if isinstance(value, Mapping):
        return str(value.get("content") or "")
    return "" if value is None else str(value)


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, row: Mapping[str, Any], **template: Any) -> None:
    """Check that a tokenizer can encode an example, its prompt, its demonstration and its answer."""
    answer = row.get("answer")
    written = _demonstration(row.get("demonstration")) + (answer if isinstance(answer, str) else "")
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


def _demonstration(demonstration: Any) -> str:
    """Return a demonstration, or several, as text: each is text or messages."""
    if isinstance(demonstration, list | tuple):
        return "".join(map(_demonstration, demonstration))
    if isinstance(demonstration, Mapping):
        return str(demonstration.get("content") or "")
    return demonstration or ""


def positions_of(config: Any) -> int | None:
    """Return the number of positions of a model, with the scaling of its rotary embeddings; None: no limit is known."""
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or {}
    original, factor = rope.get("original_max_position_embeddings"), rope.get("factor")
    scaled = int(original * factor) if original and factor else 0
    return max(getattr(text, "max_position_embeddings", None) or 0, scaled) or None


def rendered(tokenizer: PreTrainedTokenizerBase, prompt: Any, **template: Any) -> str:
    """Return a prompt as the text that the model reads."""
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
