"""r: verdicts of a judge on one completion, on the criteria of a rubric, and in pairs (hook ``rlm_rewards``)."""

from __future__ import annotations

import functools
import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from rlm_judge import reply_parsing
from rlm_judge.prompt_builder import PromptBuilder, column, has_content
from rlm_judge.spec import (
    Instructions,
    Judge,
    Log,
    MaxCharacters,
    Query,
    Reason,
    Template,
    Thinking,
    Votes,
    query_judge,
    query_or_default,
)
from rlm_plugins.equation.knobs import Count
from rlm_plugins.errors import PartError


async def judge_score(
    completions: Sequence[str],
    prompts: Sequence[str],
    reference: Sequence[object] | None = None,
    judged: Sequence[bool] | None = None,
    log_metric: Log | None = None,
    trainer_state: object | None = None,
    *,
    judge: Judge,
    lowest: int = 1,
    highest: int = 10,
    scale: Literal["unit", "raw"] = "unit",
    instructions: Instructions = "",
    template: Template = None,
    reason: Reason = True,
    votes: Votes = 1,
    thinking: Thinking = "hide",
    longest: MaxCharacters = 20_000,
) -> list[float | None]:
    """Return the judge's score from `lowest` to `highest`, by default as r = (score − lowest) / (highest − lowest).

    `judge` is a server (``{url: http://localhost:8000/v1, model: …}``), a local model (``{path: …}``) or the policy
    (``{policy: base}``). `instructions` state the criteria; `reason` lets the judge reason first; the mean of several
    `votes` counts. A column `reference` is shown as a correct answer; where a column `judged` is false the completion
    is not scored: None. `template` replaces the prompt (fields ``{task}``, ``{answer}``, ``{reference}``, ``{ask}``,
    ``{form}``, ``{instructions}``, and ``{mark}``: the verdict follows ``Verdict-{mark}:``; without this field the
    judge's whole answer must be the verdict).

    If the judge fails, the completion is not scored: None, and counted (``judge_score/failed``). An answer without a
    letter or digit gets the lowest score without a query. Source: LLM-as-a-judge, arXiv 2306.05685 §3.1.
    """
    if highest <= lowest:
        raise PartError(
            f"empty range from {lowest} to {highest}", where="judge_score", allowed="`lowest` below `highest`"
        )
    builder = PromptBuilder(instructions, template, reason, thinking, longest)
    form = f"N (a number from {lowest}, the worst, to {highest}, the best)"
    parse = functools.partial(reply_parsing.number, lowest=lowest, highest=highest)
    queries: list[Query | None] = []
    is_judged = [True] * len(prompts) if judged is None else [bool(judge_this) for judge_this in judged]
    texts, references = [builder.judged_text(completion) for completion in completions], column(reference, prompts)
    for task, answer, reference_text, judge_this in zip(prompts, texts, references, is_judged, strict=True):
        fields = {"task": task, **({"reference": reference_text} if reference_text else {}), "answer": answer}
        ask = "How good is the answer to the task?" + (" The reference is a right answer." if reference_text else "")
        queries.append(builder.query(fields, ask, form, parse) if judge_this and has_content(answer) else None)
    verdicts = await query_or_default("judge_score", judge, queries, votes, log_metric, trainer_state, default=lowest)
    span = highest - lowest if scale == "unit" else 1
    offset = lowest if scale == "unit" else 0
    scores = [None if verdict is None else (verdict - offset) / span for verdict in verdicts]
    return [score if judge_this else None for score, judge_this in zip(scores, is_judged, strict=True)]


async def judge_verify(
    completions: Sequence[str],
    prompts: Sequence[str],
    answer: Sequence[object],
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
    """Return 1 if the judge finds the completion's answer equal to the reference `answer`, else 0: r = 1[same answer].

    For answers that no rule can compare: names, short texts, units in words. Knobs as of ``judge_score``; the
    verdict is CORRECT or INCORRECT, with the mean of several `votes`. Without an `answer` it is not scored: None.
    Source: generative verifiers, arXiv 2408.15240; empty answers get 0 without a query (arXiv 2507.08794).
    """
    builder = PromptBuilder(instructions, template, reason, thinking, longest)
    ask = (
        "Does the answer come to the same final result as the reference? The reference is right. Other words, "
        "notation or units for the same thing are the same; an answer that commits to no result, or to two, is not."
    )
    parse = functools.partial(reply_parsing.word, values={"CORRECT": 1.0, "INCORRECT": 0.0})
    references = column(answer, prompts)
    queries = [
        builder.query({"task": task, "reference": reference, "answer": text}, ask, "CORRECT or INCORRECT", parse)
        if reference and has_content(text)
        else None
        for task, reference, text in zip(prompts, references, map(builder.judged_text, completions), strict=True)
    ]
    scores = await query_or_default("judge_verify", judge, queries, votes, log_metric, trainer_state, default=0.0)
    return [score if reference else None for score, reference in zip(scores, references, strict=True)]


Points = Annotated[dict[str, float], Field(min_length=1)]


async def judge_rubric(
    completions: Sequence[str],
    prompts: Sequence[str],
    rubric: Sequence[Any] | None = None,
    log_metric: Log | None = None,
    trainer_state: object | None = None,
    *,
    judge: Judge,
    criteria: Points | None = None,
    instructions: Instructions = "",
    template: Template = None,
    reason: Reason = True,
    votes: Votes = 1,
    thinking: Thinking = "hide",
    longest: MaxCharacters = 20_000,
) -> list[float | None]:
    """Return how much of a rubric is met: r = Σ wₖ sₖ / Σ_{wₖ>0} wₖ, clamped to [0, 1].

    `criteria` maps the text of each criterion to its weight wₖ; one of negative weight is a fault to detect. A
    column `rubric` (such a mapping, or a list of ``{criterion: …, points: …}``) has precedence. The judge answers
    all of them in one JSON object: true, false or a share sₖ of each. If one is missing, the completion is not scored:
    None. Without any criteria it is not scored either, and an answer without a letter or digit gets 0 without a query.
    Further knobs as of ``judge_score``; in a `template`, ``{ask}`` lists the criteria.
    Source: rubrics as rewards, arXiv 2507.17746 eq. 1; faults: HealthBench, arXiv 2505.08775.
    """
    builder = PromptBuilder(instructions, template, reason, thinking, longest)
    rubrics = [parse_rubric(entry, criteria, index) for index, entry in enumerate(rubric or [None] * len(prompts))]
    queries = [
        builder.query({"task": task, "answer": text}, own_rubric.ask, own_rubric.form, own_rubric.parse)
        if own_rubric and has_content(text)
        else None
        for task, own_rubric, text in zip(prompts, rubrics, map(builder.judged_text, completions), strict=True)
    ]
    scores = await query_or_default("judge_rubric", judge, queries, votes, log_metric, trainer_state, default=0.0)
    return [score if own_rubric else None for score, own_rubric in zip(scores, rubrics, strict=True)]


@dataclass(frozen=True)
class Rubric:
    """Criteria and their weights, numbered from 1 in the prompt."""

    weights: Mapping[str, float]

    @property
    def ask(self) -> str:
        listed = [f"{number}. {' '.join(text.split())}" for number, text in enumerate(self.weights, 1)]
        return "\n".join(["Which of these criteria does the answer meet?", *listed])

    @property
    def form(self) -> str:
        """The form of the verdict, for the prompt."""
        shown = ", ".join(f'"{number}": …' for number in range(1, len(self.weights) + 1))
        return f"{{{shown}}} (a JSON object; for each criterion true, false, or a share such as 0.5)"

    def parse(self, text: str) -> float | None:
        """Compute r from the judge's JSON.

        >>> Rubric({"right": 3, "short": 1, "rude": -2}).parse('{"1": true, "2": 0.5, "3": true}')
        0.375
        """
        met = reply_parsing.items(text, [str(number) for number in range(1, len(self.weights) + 1)])
        if met is None:
            return None
        best = sum(weight for weight in self.weights.values() if weight > 0)
        total = sum(weight * share for weight, share in zip(self.weights.values(), met, strict=True))
        return min(1.0, max(0.0, total / best))


def parse_rubric(entry: Any, criteria: Mapping[str, float] | None, index: int) -> Rubric | None:
    """Return the rubric of an example: its own, or else the recipe's; None if there is neither."""
    weights = dict(criteria or {})
    if entry:
        try:
            weights = (
                dict(entry) if isinstance(entry, Mapping) else {item["criterion"]: item["points"] for item in entry}
            )
        except (TypeError, KeyError):
            weights = {"?": math.nan}
        if not all(isinstance(k, str) and isinstance(w, int | float) and math.isfinite(w) for k, w in weights.items()):
            allowed = "{criterion: points, …} or [{criterion: …, points: …}, …]"
            raise PartError(f"sample {index}: malformed rubric {str(entry)[:80]!r}", allowed=allowed)
    if weights and max(weights.values()) <= 0:
        raise PartError(f"sample {index}: the rubric requires a criterion with a positive weight", where="criteria")
    return Rubric(weights) if weights else None


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
        pairs = [Pair(*candidate) for candidate in candidates if candidate.reference]
    outcomes = await _compare(list(dict.fromkeys(pairs)), builder, judge, votes, log_metric, trainer_state)
    if against == "reference":
        return [outcomes.get(Pair(*candidate)) if candidate.reference else None for candidate in candidates]
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
    parse = functools.partial(reply_parsing.word, values={"A": 1.0, "B": 0.0, "TIE": 0.5})
    texts = {"task": pair.task, "first": pair.first, "second": pair.second}
    return builder.query(texts, ask, "A, B or TIE", parse)
