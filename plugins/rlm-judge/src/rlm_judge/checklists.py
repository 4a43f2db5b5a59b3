"""r: weighted mean over the items of a checklist, each asked by itself and by a program where it has one (RLCF)."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlm_judge import verdict_parsing
from rlm_judge.judge_factory import Log, query_judge
from rlm_judge.knobs import Instructions, MaxCharacters, Reason, Template, Thinking, Votes
from rlm_judge.prompt_builder import PromptBuilder
from rlm_judge.prompt_guard import has_content
from rlm_judge.spec import Judge
from rlm_plugins.errors import PartError

HIGHEST = 100.0


@dataclass(frozen=True)
class Item:
    """One requirement of a checklist.

    Args:
        requirement: A question that the answer should satisfy.
        importance: Its weight, at least 0.
        program: Source of ``verify(answer) -> bool``, run in the sandbox; empty: only the judge is asked.
    """

    requirement: str
    importance: float
    program: str = ""


async def judge_checklist(
    completions: Sequence[str],
    prompts: Sequence[str],
    checklist: Sequence[Any],
    log_metric: Log | None = None,
    trainer_state: object | None = None,
    *,
    judge: Judge,
    instructions: Instructions = "",
    template: Template = None,
    reason: Reason = True,
    votes: Votes = 1,
    thinking: Thinking = "hide",
    longest: MaxCharacters = 20_000,
) -> list[float | None]:
    """Return how well an answer meets the checklist of its prompt: r = Σ wₖ sₖ / Σ wₖ.

    sₖ is the judge's mark from 0 to 100 for item k, over 100, as the mean of `votes`. Where the item has a program, sₖ
    is the mean of that mark and of 1 or 0 for its result. Each item is a query of its own. RLCF, arXiv 2507.18624 §3,
    which asks 25 times per item, and trains on preference pairs made of these scores by DPO.

    The column `checklist` holds per example a list of ``{requirement: …, importance: …, program: …}``; the last is
    optional and requires rlm-sandbox. Items without a verdict are left out of both sums, and a completion without any
    is not scored: None, as without a checklist. A program that fails counts as 0. An answer without a letter or digit
    gets 0 without a query. Knobs as of ``judge_score``; in a `template`, ``{ask}`` is the requirement.
    """
    builder = PromptBuilder(instructions, template, reason, thinking, longest)
    checklists = [parse_checklist(entry, index) for index, entry in enumerate(checklist)]
    texts = [builder.judged_text(completion) for completion in completions]
    form = "N (a number from 0, not at all, to 100, completely)"
    parse = functools.partial(verdict_parsing.number, lowest=0.0, highest=HIGHEST)
    questions = [(row, item) for row, items in enumerate(checklists) if has_content(texts[row]) for item in items]
    queries = [
        builder.query({"task": prompts[row], "answer": texts[row]}, _ask(item), form, parse) for row, item in questions
    ]
    marks = await query_judge("judge_checklist", judge, queries, votes, log_metric, trainer_state) if queries else []
    sums: dict[int, list[tuple[float, float]]] = {}
    for (row, item), mark in zip(questions, marks, strict=True):
        if mark is not None:
            share = mark / HIGHEST
            share = (share + _verify(item.program, texts[row])) / 2 if item.program else share
            sums.setdefault(row, []).append((item.importance, share))
    return [_score(items, sums.get(row), texts[row]) for row, items in enumerate(checklists)]


def _score(items: Sequence[Item], verdicts: Sequence[tuple[float, float]] | None, text: str) -> float | None:
    if not items:
        return None
    if not has_content(text):
        return 0.0
    total = sum(weight for weight, _ in verdicts or ())
    return sum(weight * share for weight, share in verdicts or ()) / total if total else None


def _ask(item: Item) -> str:
    return f"How well does the answer meet this requirement?\n{' '.join(item.requirement.split())}"


def _verify(program: str, text: str) -> float:
    """Return 1 if the program's `verify` returns True for a text, in the sandbox."""
    from rlm_sandbox import Call, Program, shared

    (output,) = shared().run(Program(program), [Call("verify", [text])])
    return float(output.status == "ok" and output.value is True)


def parse_checklist(entry: Any, index: int) -> list[Item]:
    """Return the items of an example.

    Raises:
        PartError: It is malformed.
    """
    allowed = "[{requirement: text, importance: 0 or more, program: optional source of verify(answer)}, …]"
    items = []
    for given in entry or ():
        known = given if isinstance(given, Mapping) else {}
        requirement, importance = known.get("requirement"), known.get("importance", 1.0)
        valid = isinstance(importance, int | float) and not isinstance(importance, bool) and math.isfinite(importance)
        if not isinstance(requirement, str) or not requirement.strip() or not valid or importance < 0:
            raise PartError(f"sample {index}: malformed checklist item {str(given)[:80]!r}", allowed=allowed)
        items.append(Item(requirement, float(importance), known.get("program") or ""))
    return items
