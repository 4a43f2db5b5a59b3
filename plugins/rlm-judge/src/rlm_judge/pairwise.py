"""r: win rate of a completion in pairwise comparisons, each in both orders (hook ``rlm_rewards``)."""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from rlm_judge import verdict_parsing
from rlm_judge.judge_factory import Log, query_judge
from rlm_judge.prompt_builder import PromptBuilder, column
from rlm_judge.prompt_builder import has_content
from rlm_judge.records import Query
from rlm_judge.spec import Instructions, Judge, MaxCharacters, Reason, Template, Thinking, Votes
from rlm_plugins.equation.knobs import Count


class Candidate(NamedTuple):
    """A completion with its task and reference."""

    task: str
    text: str
    reference: str


class Pair(NamedTuple):
    """Two answers to one task."""

    task: str
    first: str
    second: str

    @property
    def swapped(self) -> Pair:
        """The pair in the other order."""
        return Pair(self.task, self.second, self.first)


class Group(NamedTuple):
    """The answers to one task: each distinct text and its count."""

    task: str
    texts: list[str]
    counts: Counter[str]


def group_by_task(candidates: Sequence[Candidate]) -> list[Group]:
    """Group the candidates by task."""
    by_task: dict[str, Counter[str]] = {}
    for candidate in candidates:
        by_task.setdefault(candidate.task, Counter())[candidate.text] += 1
    return [Group(task, sorted(counts, key=_ring_position), counts) for task, counts in by_task.items()]


def _ring_position(text: str) -> bytes:
    """Return the position of a text on the ring: a hash, independent of its index and quality."""
    return hashlib.blake2b(text.encode("utf-8", "replace")).digest()


def make_pairs(group: Group, opponents: int | None) -> Iterator[Pair]:
    """Yield the pairs to compare."""
    count = len(group.texts)
    max_distance = count if opponents is None else (opponents + 1) // 2
    for i in range(count):
        for j in range(i + 1, count):
            if min(j - i, count - (j - i)) <= max_distance:
                yield Pair(group.task, group.texts[i], group.texts[j])


def win_rates(group: Group, outcomes: Mapping[Pair, float]) -> dict[tuple[str, str], float | None]:
    """Return (task, text) → share of comparisons won; each opponent counts as often as it was generated."""
    rates: dict[tuple[str, str], float | None] = {}
    for text in group.texts:
        won, played = 0.5 * (group.counts[text] - 1), group.counts[text] - 1
        for other in group.texts:
            pair = Pair(group.task, text, other)
            outcome = outcomes.get(pair)
            if outcome is None and pair.swapped in outcomes:
                outcome = 1.0 - outcomes[pair.swapped]
            if other != text and outcome is not None:
                won, played = won + outcome * group.counts[other], played + group.counts[other]
        rates[group.task, text] = won / played if played else None
    return rates


async def judge_pairwise(
    completions: Sequence[str],
    prompts: Sequence[str],
    reference: Sequence[object] | None = None,
    log_metric: Log | None = None,
    trainer_state: object | None = None,
    *,
    judge: Judge,
    against: Literal["group", "reference"] = "group",
    opponents: Count | None = None,
    instructions: Instructions = "",
    template: Template = None,
    reason: Reason = True,
    votes: Votes = 1,
    thinking: Thinking = "hide",
    longest: MaxCharacters = 20_000,
) -> list[float | None]:
    """Return how often the completion is preferred: rᵢ = mean over opponents j of ½ (v(i, j) + 1 − v(j, i)).

    v(first, second) is 1 where the judge prefers the first, 0 the second, ½ neither. Each pair is compared in both
    orders, so a judge that prefers a position has no effect: rᵢ = ½ for all. The share of pairs whose orders contradict
    each other is ``judge_pairwise/contradictions``.

    `against` the "group": every completion is compared with every other, or with `opponents` others each (on a ring, in
    an order that depends on their texts alone; an odd number becomes the next even one). Equal texts share their
    verdicts and tie. `against` the "reference": each is compared with the column `reference`. An answer without a
    letter or digit loses without a query. A comparison with a failed order is dropped. A completion without any
    comparison is not scored: None, and so is a group of one. Further knobs as of ``judge_score``; a template has
    ``{first}`` and ``{second}``. Source: both orders, LLM-as-a-judge, arXiv 2306.05685 §3.4.
    """
    builder = PromptBuilder(instructions, template, reason, thinking, longest)
    texts = [builder.judged_text(completion) for completion in completions]
    references = column(reference, prompts)
    candidates = [Candidate(task, text, ref) for task, text, ref in zip(prompts, texts, references, strict=True)]
    groups = group_by_task(candidates) if against == "group" else []
    pairs = [pair for group in groups for pair in make_pairs(group, opponents)]
    if against == "reference":
        pairs = [
            Pair(candidate.task, candidate.text, candidate.reference) for candidate in candidates if candidate.reference
        ]
    outcomes = await _compare(list(dict.fromkeys(pairs)), builder, judge, votes, log_metric, trainer_state)
    if against == "reference":
        return [
            outcomes.get(Pair(candidate.task, candidate.text, candidate.reference)) if candidate.reference else None
            for candidate in candidates
        ]
    scores = {key: score for group in groups for key, score in win_rates(group, outcomes).items()}
    return [scores[candidate.task, candidate.text] for candidate in candidates]


async def _compare(
    pairs: Sequence[Pair], builder: PromptBuilder, judge: Judge, votes: int, log: Log | None, state: object
) -> dict[Pair, float]:
    """Return by how much the first of each pair wins, from both orders; pairs without a verdict are omitted."""
    outcomes = {pair: _outcome_without_query(pair) for pair in pairs}
    undecided = [pair for pair in pairs if outcomes[pair] is None]
    ordered_pairs = [order for pair in undecided for order in (pair, pair.swapped)]
    queries = [_query(builder, pair) for pair in ordered_pairs]
    verdicts = iter(await query_judge("judge_pairwise", judge, queries, votes, log, state))
    contradictions = 0
    for pair, forward, backward in zip(undecided, verdicts, verdicts, strict=True):
        if forward is not None and backward is not None:
            outcomes[pair] = (forward + 1.0 - backward) / 2.0
            contradictions += (forward - 0.5) * (backward - 0.5) > 0
    if log is not None:
        log("judge_pairwise/contradictions", contradictions / len(undecided) if undecided else 0.0)
    return {pair: outcome for pair, outcome in outcomes.items() if outcome is not None}


def _outcome_without_query(pair: Pair) -> float | None:
    """Return the outcome of pairs that need no judge: equal texts tie, and an empty text loses."""
    first_has_content, second_has_content = has_content(pair.first), has_content(pair.second)
    if pair.first == pair.second or not (first_has_content or second_has_content):
        return 0.5
    return None if first_has_content and second_has_content else float(first_has_content)


def _query(builder: PromptBuilder, pair: Pair) -> Query:
    ask = (
        "Which answer to the task is better, A (the first) or B (the second)? Neither the order nor the length of the "
        "answers matters."
    )
    parse = functools.partial(verdict_parsing.word, values={"A": 1.0, "B": 0.0, "TIE": 0.5})
    texts = {"task": pair.task, "first": pair.first, "second": pair.second}
    return builder.query(texts, ask, "A, B or TIE", parse)
