"""Facts of a data set that show defects for training or evaluation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import Any

from rlm_plugins.specs import EnvironmentSpec

MAX_EXAMPLES = 50_000
"""Maximum number of training examples that are read."""
LABELS = 10
"""Different answers up to which they are labels, which a prompt may list."""

_ANSWER = "the answer"


def data_facts(environment_spec: EnvironmentSpec, tokenizer: Any) -> dict[str, float]:
    """Return facts of a data set as metrics; of a stream, only those of the tokenizer.

    - `data/duplicated`: share of training prompts that occurred before
    - `data/prompts`, `data/held_out`: number of different training prompts, and of held-out examples
    - `data/overlap`: share of held-out prompts that are training prompts
    - `data/answer_in_prompt`: share of prompts with their gold answer at one place, the same in all of them; labels do
      not count
    - `data/generation_prompt`: 0 if the chat template ignores `add_generation_prompt`; of conversations only
    - `data/end_of_turn`: 0 if the chat template ends a turn with a special token that is not `eos_token`
    - `data/pad_is_end`: 1 if the pad token is the end token

    Args:
        environment_spec: The examples.
        tokenizer: Of the policy.
    """
    rows, facts = environment_spec.train, _tokenizer_facts(environment_spec, tokenizer)
    if not hasattr(rows, "__len__"):
        return facts
    examples = list(islice(rows, MAX_EXAMPLES))
    prompts = [repr(example["prompt"]) for example in examples]
    distinct = set(prompts)
    facts["data/duplicated"] = 1 - len(distinct) / max(len(prompts), 1)
    facts["data/prompts"] = float(len(distinct))
    if len(environment_spec.test):
        facts["data/held_out"] = float(len(environment_spec.test))
        in_training = [repr(example["prompt"]) in distinct for example in environment_spec.test]
        facts["data/overlap"] = sum(in_training) / len(in_training)
    return facts | _leaks(examples)


def _tokenizer_facts(environment_spec: EnvironmentSpec, tokenizer: Any) -> dict[str, float]:
    facts = {"data/pad_is_end": float(tokenizer.pad_token_id == tokenizer.eos_token_id)}
    prompt = next(iter(environment_spec.train))["prompt"]
    if not isinstance(prompt, str) and getattr(tokenizer, "chat_template", None):
        with_prompt, without_prompt = (
            tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=adds) for adds in (True, False)
        )
        facts["data/generation_prompt"] = float(with_prompt != without_prompt)
        facts["data/end_of_turn"] = float(_ends_with_end_token(tokenizer, prompt))
    return facts


def _ends_with_end_token(tokenizer: Any, prompt: Sequence[Mapping[str, Any]]) -> bool:
    """Return False if a special token other than `eos_token` ends the turn of the assistant in the chat template."""
    conversation = [*prompt, {"role": "assistant", "content": _ANSWER}]
    try:
        text = tokenizer.apply_chat_template(conversation, tokenize=False)
    except Exception:  # a template that takes no such turn: the run reports what it needs
        return True
    end = text.rpartition(_ANSWER)[2]
    special = [token for token in tokenizer.all_special_tokens if token in end]
    return not special or tokenizer.eos_token in special


def _leaks(examples: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    answers = [str(example.get("answer") or "").strip() for example in examples[:1000]]
    if len(set(answers)) <= LABELS:
        return {}
    texts = [_last_text(example["prompt"]) for example in examples[: len(answers)]]
    counts = Counter(chain.from_iterable(map(_positions, answers, texts)))
    return {"data/answer_in_prompt": max(counts.values(), default=0) / len(answers)}


def _positions(answer: str, text: str) -> set[tuple[str, object]]:
    """Return the positions of an answer in a prompt: words before it, words after it, and the word before it.

    A template that leaks the column of the answer has it at one position. In a choice ("which is the largest of these")
    the position differs from prompt to prompt.
    """
    positions: set[tuple[str, object]] = set()
    for match in re.finditer(rf"(?<!\w){re.escape(answer)}(?!\w)", text) if len(answer) > 1 else ():
        preceding, following = (re.findall(r"\w+", side) for side in (text[: match.start()], text[match.end() :]))
        positions |= {
            ("before", len(preceding)),
            ("after", len(following)),
            ("word", preceding[-1] if preceding else ""),
        }
    return positions


def _last_text(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else str(prompt[-1].get("content") or "")
