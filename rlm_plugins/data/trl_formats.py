"""TRL's data set formats as columns of ours: ``prompt``, ``demonstration``, ``chosen`` and ``rejected``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, takewhile
from typing import Any

from rlm_plugins.data.images import undecoded
from rlm_plugins.data.tables import row_address
from rlm_plugins.errors import RecipeError

Example = Mapping[str, Any]


def pairs_of_ranking(ranking: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return (better, worse) for all K · (K − 1) / 2 pairs of a ranking, best first.

    InstructGPT, arXiv 2203.02155 eq. 1: the loss of a reward model is the mean over these pairs.

    >>> pairs_of_ranking("abc")
    [('a', 'b'), ('a', 'c'), ('b', 'c')]
    """
    return list(combinations(ranking, 2))


def to_recipe_columns(rows: Any, path: str = "") -> Any:
    """Return examples with a prompt, and the target of supervised stages as ``demonstration``.

    ``messages`` (or ShareGPT's ``conversations``) becomes the prompt and its last turn; ``completion`` the
    demonstration; of ``chosen`` and ``rejected`` without a prompt, what both begin with is the prompt. ``ranking``, a
    list of completions from the best to the worst, becomes one example per pair, with ``chosen`` and ``rejected``.
    ``text`` becomes the demonstration of an empty prompt. Unpaired preferences and other examples stay as they are.

    Raises:
        RecipeError: An example is unusable; it names its row, counted from 0.
    """
    first: Example = next(iter(undecoded(rows)), {})
    if "ranking" in first and not {"chosen", "rejected"} & {*first}:
        return rows.map(_ranked, batched=True, batch_size=1, remove_columns=list(first))
    names = set(first) if isinstance(first.get("label"), bool) else set(first) - {"label"}
    for convert, required, absent in (
        (_from_messages, {"messages"}, {"prompt", "demonstration"}),
        (_from_conversations, {"conversations"}, {"prompt", "messages", "demonstration"}),
        (_from_preference, {"chosen", "rejected"}, {"prompt"}),
        (_from_unpaired, {"prompt", "completion", "label"}, {"demonstration"}),
        (_from_completion, {"prompt", "completion"}, {"demonstration"}),
        (_from_text, {"text"}, {"prompt", "messages", "chosen", "demonstration"}),
    ):
        if required <= names and not absent & names:
            unused = [] if "label" in required else sorted(required - {"prompt", "chosen", "rejected"})
            return rows.map(_located(convert, path), with_indices=True, remove_columns=unused)
    return rows


def _located(convert: Callable[[Example], dict[str, Any]], path: str) -> Callable[[Example, int], dict[str, Any]]:
    """Return a conversion whose errors name the row."""

    def converted(row: Example, number: int) -> dict[str, Any]:
        try:
            return convert(row)
        except ValueError as error:
            raise RecipeError(str(error), where=row_address(path, number)) from None

    return converted


def _ranked(row: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the pairs of one ranked example, as columns."""
    pairs = pairs_of_ranking(row["ranking"][0] or ())
    columns = {name: values * len(pairs) for name, values in row.items() if name != "ranking"}
    chosen, rejected = zip(*pairs, strict=True) if pairs else ((), ())
    return {**columns, "chosen": list(chosen), "rejected": list(rejected)}


def _from_messages(row: Example) -> dict[str, Any]:
    messages = _checked(row["messages"], "messages")
    if messages[-1]["role"] != "assistant" or len(messages) < 2:
        raise ValueError("expected `messages` that end with a turn of the assistant after a prompt")
    return {"prompt": messages[:-1], "demonstration": messages[-1:]}


def _from_conversations(row: Example) -> dict[str, Any]:
    return _from_messages({"messages": row["conversations"]})


def _from_completion(row: Example) -> dict[str, Any]:
    if isinstance(row["completion"], str) is not isinstance(row["prompt"], str):
        raise ValueError("expected `prompt` and `completion` of one kind, text or messages")
    if not row["completion"]:
        raise ValueError(f"`completion` is empty ({row['completion']!r})")
    return {"demonstration": row["completion"]}


def _from_unpaired(row: Example) -> dict[str, Any]:
    if not isinstance(row["label"], bool):
        raise ValueError(f"expected `label` to be true or false, got {row['label']!r}")
    _from_completion(row)
    return {}


def _from_text(row: Example) -> dict[str, Any]:
    if not isinstance(row["text"], str) or not row["text"].strip():
        raise ValueError(f"`text` is empty ({row['text']!r})")
    return {"prompt": "", "demonstration": row["text"]}


def _from_preference(row: Example) -> dict[str, Any]:
    chosen, rejected = row["chosen"], row["rejected"]
    if not chosen or not rejected or chosen == rejected:
        raise ValueError("expected `chosen` and `rejected` that differ, and are not empty")
    pairs = zip(chosen, rejected, strict=False)
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    if isinstance(chosen, str):
        while shared and chosen[shared - 1] != " ":  # a word is not split; its space belongs to the completions
            shared -= 1
        shared -= shared > 0
    if not shared or shared in (len(chosen), len(rejected)):
        raise ValueError("expected `chosen` and `rejected` that begin with the same prompt and differ after it")
    return {"prompt": chosen[:shared], "chosen": chosen[shared:], "rejected": rejected[shared:]}


_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "observation": "tool"}
"""Roles of ShareGPT's format → those of chat templates; others stay."""


def _checked(messages: Any, column: str) -> Sequence[Mapping[str, Any]]:
    if isinstance(messages, list) and all(isinstance(m, Mapping) and {"from", "value"} <= {*m} for m in messages):
        messages = [{"role": _ROLES.get(m["from"], m["from"]), "content": m["value"]} for m in messages]
    if (
        not isinstance(messages, list)
        or not all(isinstance(m, Mapping) and "role" in m for m in messages)
        or not messages
    ):
        raise ValueError(f"expected `{column}` to be messages with `role` and `content`, got {messages!r:.60}")
    return messages


def is_unpaired(names: Sequence[str]) -> bool:
    """Return True if the columns are those of an unpaired preference.

    >>> is_unpaired(["prompt", "completion", "label"]), is_unpaired(["prompt", "completion"])
    (True, False)
    """
    return {"prompt", "completion", "label"} <= {*names} and not {"demonstration", "chosen"} & {*names}
