"""Scores of each reward for the reference answers of its own examples and for an empty completion, before training."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from rlm_plugins.equation.batch import PER_COMPLETION, SAMPLE
from rlm_plugins.errors import RecipeError, RlmError, short
from rlm_plugins.registry.protocols import HoldsMemory, Produces, Stateful, gold_column_of
from rlm_plugins.rewards.columns import example_data
from rlm_plugins.rewards.message_form import as_messages, reads_messages, written
from rlm_plugins.rewards.trl_adapter import compute_scores, trl_reward
from rlm_plugins.stage import Reward, Stage

FORMS: dict[str, str] = {
    "thinking, answer tag": "<think>I work it out.</think><answer>{answer}</answer>",
    "answer tag": "<answer>{answer}</answer>",
    "thinking, box": "<think>I work it out.</think>The result is \\boxed{{answer}}.",
    "box": "\\boxed{{answer}}",
    "####": "I work it out.\n#### {answer}",
    "sentence": "The answer is {answer}.",
    "bare": "{answer}",
    "program": "```python\n{answer}\n```",
}
"""Name → template of a completion that ends with an answer."""
COMPARED, CALLED = 16, 2
"""Examples of a reward that declares its column of gold answers, and of any other."""
LONGEST = 200
"""Characters of a value that may be the reference answer of a reward that declares none."""
USUAL = ("answer", "solution", "ground_truth", "target", "reference")
"""Columns of reference answers, for a reward that names no column."""
SECONDS = 60.0
"""Limit of the call, if the reward has no `timeout`."""


def unpaid(label: str, given: str, references: Sequence[str], total: int, paid: Any, empty: Any) -> str:
    """Return the sentence on a reward that pays its own reference answers nothing: the same in every command.

    Args:
        label: Of the reward.
        given: The form of the completions that it received: text or messages.
        references: Reference answers that earn no more than an empty completion.
        total: Number of reference answers that it was called on.
        paid: Its highest score for the first of them, in any form.
        empty: Its score for an empty completion.
    """
    which = (
        "its own reference answer" if len(references) == total else f"{len(references)} of {total} reference answers"
    )
    return (
        f"the reward '{label}' pays {which} nothing: given {given}, it pays {_score(paid)} for "
        f"{short(repr(references[0]))} in each of its forms, and {_score(empty)} for an empty completion"
    )


@dataclass(frozen=True)
class ReferenceScores:
    """The scores of one reward.

    Args:
        label: Of the reward.
        given: The form of the completions that it received: text or messages.
        skipped: Why it was not called; empty if it was.
        failure: Message of its failure.
        best: The completion that earned most, and its score.
        empty: The score of an empty completion.
        unpaid: The reference answers that earn no more than that, each with its highest score.
        total: Number of reference answers.
    """

    label: str
    given: str
    skipped: str = ""
    failure: str = ""
    best: tuple[str, float | None] = ("", None)
    empty: float | None = None
    unpaid: Sequence[tuple[str, float | None]] = ()
    total: int = 0

    @property
    def problem(self) -> str:
        """The sentence on what is wrong; empty if nothing is."""
        if self.failure:
            return f"the reward '{self.label}', given {self.given}, failed on a reference answer: {self.failure}"
        if not self.unpaid:
            return ""
        references = [text for text, _ in self.unpaid]
        return unpaid(self.label, self.given, references, self.total, self.unpaid[0][1], self.empty)

    @property
    def line(self) -> str:
        """What the reward was given and what it paid."""
        if self.skipped or self.failure:
            return f"not called: {self.skipped}" if self.skipped else f"given {self.given}, {self.failure}"
        paid = f"{_score(self.best[1])} for {short(repr(self.best[0]))}, " if self.best[0] else ""
        return f"given {self.given}, pays {paid}{_score(self.empty)} for an empty completion"


def check_references(stage: Stage, where: str = "rewards") -> list[ReferenceScores]:
    """Return the scores of each reward of a stage; its references are those of the training examples.

    Args:
        stage: With its data sets.
        where: Address of the rewards.

    Raises:
        RecipeError: A reward that compares with gold answers, and is trained on, pays none of them; or the rewards
            only compare text where the data set says that this pays nothing.
    """
    if stage.equation is None:
        return []
    trained = [number for number, reward in enumerate(stage.rewards) if reward.weight]
    compared = [number for number in trained if gold_column_of(stage.rewards[number].part.target)]
    paid_by, names = stage.environment_spec.paid_by, [reward.part.part.name for reward in stage.rewards]
    if paid_by and trained and trained == compared and not {*names} & {*paid_by}:
        problem = f"'{names[trained[0]]}' compares text, and the references of this data set are free text"
        raise RecipeError(problem, where=f"{where}[{trained[0]}]", allowed=", ".join(paid_by))
    found = [score_references(reward, stage) for reward in stage.rewards]
    for number in compared:
        if found[number].total and len(found[number].unpaid) == found[number].total:
            hint = (
                "another reward, or the column of the answers: `columns: {answer: …}`; `rlm reward probe` has details"
            )
            raise RecipeError(found[number].problem, where=f"{where}[{number}]", hint=hint)
    return found


def score_references(reward: Reward, stage: Stage) -> ReferenceScores:
    """Return the scores of one reward, called once, as training will call it.

    Args:
        reward: One of the stage.
        stage: With its data sets.
    """
    spec, gold = stage.environment_spec, gold_column_of(reward.part.target)
    count = COMPARED if gold else CALLED
    examples = _spread(spec.train, count) or _spread(spec.test, count)
    is_chat = bool(examples) and not isinstance(examples[0]["prompt"], str)
    given = "messages" if is_chat and reads_messages(reward) else "text"
    if skipped := _reason(reward, {*examples[0]} if examples else set()):
        return ReferenceScores(reward.label, given, skipped)
    answers = [_references(reward, example, gold) for example in examples]
    columns = [(values or _usual(examples[n]), examples[n]) for n, values in enumerate(answers)]
    rows = [(n, text) for n, pair in enumerate(columns) for text in (*_completions(reward, *pair), "")]
    texts = [text for _, text in rows]
    data = example_data(
        [examples[n] for n, _ in rows],
        as_messages(texts) if is_chat else texts,
        [[*text.encode()] for text in texts],
        episodes=None,
        environments=None,
    )
    strict = replace(reward, on_error="stop", timeout=reward.timeout or SECONDS)
    try:
        scores = compute_scores(trl_reward(strict), data)
    except RlmError as error:
        return ReferenceScores(reward.label, given, failure="; ".join(filter(None, (error.problem, error.hint))))
    return _summary(reward.label, given, answers, list(zip(rows, scores, strict=True)))


def _summary(
    label: str, given: str, answers: Sequence[Sequence[str]], scored: Sequence[tuple[tuple[int, str], float | None]]
) -> ReferenceScores:
    """Return the scores of a call; the last completion of each example is empty."""
    best, unpaid_answers, empty = ("", None), [], None
    for n in reversed(range(len(answers))):
        *paid, (_, empty) = [(text, score) for (number, text), score in scored if number == n]
        text, highest = max(paid, key=_rank, default=("", None))
        best = max((text, highest), best, key=_rank)
        if answers[n] and _rank(("", highest)) <= _rank(("", empty)):
            unpaid_answers.insert(0, (answers[n][0], highest))
    return ReferenceScores(label, given, "", "", best, empty, unpaid_answers, sum(map(bool, answers)))


def _rank(paid: tuple[str, float | None]) -> float:
    return float("-inf") if paid[1] is None else paid[1]


def _reason(reward: Reward, columns: set[str]) -> str:
    """Return why a reward is not called without a need: it asks a model, keeps state, or lacks its data."""
    part, target = reward.part.part, reward.part.target
    missing = [name for name in part.required_data if name not in {*part.sample, *columns}]
    if reward.part.setup_targets or isinstance(target, HoldsMemory | Produces):
        return "it calls a model"
    if reward.part.is_async or inspect.iscoroutinefunction(inspect.unwrap(target)):
        return "it is asynchronous, as one that asks a server"
    if isinstance(target, Stateful):
        return "it keeps state"
    if {"episodes", "environments"} & {*part.required_data}:
        return "it reads the episodes of an environment"
    return f"the examples have no column '{missing[0]}' yet" if missing else ""


def _spread(rows: Any, count: int) -> list[Mapping[str, Any]]:
    """Return examples at equal distances; the first ones of a stream."""
    if not hasattr(rows, "__len__"):
        return list(islice(iter(rows), count))
    return [rows[n] for n in range(0, len(rows), max(len(rows) // count, 1))][:count]


def _references(reward: Reward, example: Mapping[str, Any], gold: str) -> list[str]:
    """Return what may be the reference answer of an example: the gold column, or short values that the reward names."""
    parameters = inspect.signature(reward.part.target).parameters
    named = [name for name in parameters if name in example and name not in (*SAMPLE, *PER_COMPLETION)]
    if not named and any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return _usual(example)
    values = [written(example.get(name)) for name in ([gold] if gold else named)]
    return [text for text in values if text and (gold or len(text) <= LONGEST)]


def _usual(example: Mapping[str, Any]) -> list[str]:
    """Return the reference answer of an example for a reward that does not name its column."""
    texts = [written(example[name]) for name in USUAL if name in example]
    return [text for text in texts if text and len(text) <= LONGEST][:1]


def _completions(reward: Reward, references: Sequence[str], example: Mapping[str, Any]) -> list[str]:
    """Return completions with the reference answer in every form, and the demonstration."""
    tag = reward.part.knobs.get("tag")
    forms = [*FORMS.values(), *([f"<{tag}>{{answer}}</{tag}>"] if isinstance(tag, str) else [])]
    demonstration = example.get("demonstration")
    texts = [form.replace("{answer}", text) for text in references for form in forms]
    return [*texts, demonstration] if isinstance(demonstration, str) else texts


def _score(score: float | None) -> str:
    return "no score" if score is None else f"{score:g}"
