"""Training of a judge: pairs with a known better answer as prompts, and a reward for the right verdict (J1)."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from rlm_judge.knobs import Instructions, MaxCharacters
from rlm_judge.prompt_builder import PromptBuilder
from rlm_judge.verdict_parsing import text_after_mark, word
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec

ASK = "Which of the two answers to the task is better?"
FORM = "A, B or TIE (A: the first, B: the second)"
_VERDICTS = {"A": "A", "B": "B", "TIE": "TIE"}


def judge_pairs(
    *,
    path: str,
    split: str = "train",
    columns: dict[str, str] | None = None,
    instructions: Instructions = "",
    longest: MaxCharacters = 20_000,
    test_rows: Annotated[int, Field(ge=1)] = 100,
) -> EnvironmentSpec:
    """Build comparisons of two answers, one of which is known to be better, to train a judge that reasons.

    The data set has the columns `prompt`, `chosen` and `rejected` as text; `columns` maps its own names to these. Each
    pair is an example in both orders, as `judge_pairwise` shows them to a judge. So a judge trained here is used by
    ``{name: judge_pairwise, judge: {path: …}}``. Columns: ``prompt``, ``verdict`` (A or B), ``mark``, ``pair``. About
    `test_rows` examples are held out: all of a prompt, by its hash. Source: J1, arXiv 2505.10320, whose reward is
    `judge_verdict`.
    """
    from rlm_plugins.data.tables import open_split

    table = open_split(path, split)
    names = {name: (columns or {}).get(name, name) for name in ("prompt", "chosen", "rejected")}
    missing = [name for name in names.values() if name not in (table.column_names or ())]
    if missing:
        where, allowed = "environment.columns", ", ".join(table.column_names or ())
        raise RecipeError(f"the data set has no column '{missing[0]}'", where=where, allowed=allowed)
    pairs = [{name: str(row[own]) for name, own in names.items()} for row in table]
    limit = 256 * test_rows // max(2 * len(pairs), 1)
    held_out = [pair for pair in pairs if _hash(pair["prompt"]) < limit]
    if not held_out:
        held_out = pairs[:1]
    prompts = {pair["prompt"] for pair in held_out}
    builder = PromptBuilder(instructions, None, True, "show", longest)
    return EnvironmentSpec(
        train=list(comparisons((pair for pair in pairs if pair["prompt"] not in prompts), builder)),
        test=list(comparisons(held_out, builder)),
    )


def comparisons(pairs: Iterable[Mapping[str, str]], builder: PromptBuilder) -> Iterator[dict[str, Any]]:
    """Yield the two examples of each pair: the better answer first, then second."""
    for number, pair in enumerate(pairs):
        for verdict, first, second in (("A", "chosen", "rejected"), ("B", "rejected", "chosen")):
            texts = {"task": pair["prompt"], "first": pair[first], "second": pair[second]}
            query = builder.query(texts, ASK, FORM, functools.partial(word, values=dict.fromkeys("AB", 1.0)))
            mark = query.user.rpartition("Verdict-")[2].partition(":")[0]
            yield {"prompt": query.messages, "verdict": verdict, "mark": mark, "pair": number}


def _hash(text: str) -> int:
    return hashlib.blake2b(text.encode(), digest_size=1).digest()[0]


def judge_verdict(
    completions: Sequence[str],
    verdict: Sequence[str],
    mark: Sequence[str],
    *,
    wrong: float = 0.0,
    tie: float = 0.0,
    unreadable: float = 0.0,
) -> list[float]:
    """Return 1 if the judgment ends with the right verdict, `wrong`, `tie` or `unreadable` otherwise.

    r = 1[verdict is right]: the text before it is free, so that a judge learns to reason by what helps its verdicts.
    For the environment `judge_pairs`. J1, arXiv 2505.10320 §3: verdict correctness. Its second reward, for the same
    verdict in both orders, compares two prompts and is not included. A verdict that stands only inside an open
    ``<think>``, or behind another mark, is unreadable.

    >>> judge_verdict(["Sound. Verdict-1f: A", "Verdict-1f: B", "Verdict-2a: A"], ["A"] * 3, ["1f"] * 3)
    [1.0, 0.0, 0.0]
    """
    scores = []
    for text, right, token in zip(completions, verdict, mark, strict=True):
        behind = text_after_mark(text, token)
        choice = None if behind is None else word(behind, _VERDICTS)
        if choice is None:
            scores.append(unreadable)
        elif choice == "TIE":
            scores.append(tie)
        else:
            scores.append(1.0 if choice == right else wrong)
    return scores
