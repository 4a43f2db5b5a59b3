"""Scores of each reward for the reference answers of its examples and for an empty completion, before training."""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from rlm_audit.probe_cases import FORMS
from rlm_audit.reward_call import Example, call_reward
from rlm_plugins.data.answer_extraction import final_answers
from rlm_plugins.equation.batch import PER_COMPLETION, SAMPLE
from rlm_plugins.errors import RecipeError, short
from rlm_plugins.registry.protocols import HoldsMemory, Produces, Stateful, gold_column_of
from rlm_plugins.rewards.columns import reads_messages
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage import Reward, Stage

_LOG = logging.getLogger(__name__)
COMPARED, CALLED, QUICK = 16, 2, 0.1
"""Examples of a reward that declares its column of gold answers, of any other, and seconds in which it has as many."""
LONGEST = 200
"""Characters of a value that may be the reference answer of a reward that declares none."""
USUAL = ("answer", "solution", "ground_truth", "target", "reference")
"""Columns of reference answers, for a reward that names no column."""
SECONDS = 60.0
"""Limit of the call, if the reward has no `timeout`."""
_HASHES = re.compile(r"####\s*(\S.{0,79})\s*\Z")
_PATCH = re.compile(r"\A\s*diff --git |^--- .*\n\+\+\+ ", re.M)
_TEST_KEYS = {"inputs", "outputs", "fn_name", "functional", "testtype", "stdin", "asserts"}
_FUNCTION = re.compile(r"^def (check|test\w*)\(", re.M)
WORDS, ALPHABETIC = 12, 0.8
"""Smallest number of words of a free text, and the smallest share of them that has letters alone."""


class Kind(NamedTuple):
    """A kind of references: its plural, and what pays them in place of a comparison with equal text."""

    plural: str
    paid_by: str


FREE_TEXT = Kind("free text", "judge_verify, token_f1")
PATCH = Kind("patches", "none; as the column `demonstration` they train supervised stages")
TESTS = Kind("tests of programs", "code_tests, with the environment `code_table`")


def final_answer(text: str) -> str:
    """Return the answer inside a reference: a JSON list's only entry, the text after ``####``, a box; else the text.

    >>> [final_answer(text) for text in ('["3"]', "48/2 = 24 clips.\\n#### 24", r"so $\\boxed{5}$.", "[1, 2]", "x")]
    ['3', '24', '5', '[1, 2]', 'x']
    """
    listed = _parsed(text)
    if isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], str):
        return listed[0]
    if match := _HASHES.search(text):
        return match[1].strip()
    return (final_answers(text, "answer", "boxed") or [text])[-1]


def kind_of(texts: Sequence[str]) -> Kind | None:
    """Return the kind that more than half of some references have.

    >>> kind_of(["diff --git a/x b/x"] * 2).plural, kind_of(['{"inputs": ["1"], "outputs": ["2"]}']).plural
    ('patches', 'tests of programs')
    >>> kind_of(["Short waves are scattered by the air much more strongly than long waves are."]).plural
    'free text'
    """
    kinds = [_kind_of_text(text) for text in texts]
    return next((kind for kind in {*kinds} - {None} if 2 * kinds.count(kind) > len(kinds)), None)


def _kind_of_text(text: str) -> Kind | None:
    words = text.split()
    if _PATCH.search(text):
        return PATCH
    tests = _parsed(text)
    case = tests[0] if isinstance(tests, list) and tests else tests
    if _FUNCTION.search(text) or (isinstance(case, dict) and _TEST_KEYS & {*case}):
        return TESTS
    alphabetic = sum(word.strip(".,;:!?()'\"").isalpha() for word in words)
    return FREE_TEXT if len(words) >= WORDS and alphabetic >= ALPHABETIC * len(words) else None


def shortened(text: str) -> str:
    """Return a text without its last word."""
    return text.rstrip().rpartition(" ")[0]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def unpaid(label: str, given: str, references: Sequence[str], total: int, paid: Any, empty: Any) -> str:
    """Return the sentence on a reward that pays its own reference answers nothing: the same in every command.

    Args:
        label, given: The reward, and the form of the completions that it received: text or messages.
        references, total: Those that earn no more than an empty completion, of how many.
        paid, empty: Its highest score for the first of them, and that of an empty completion.
    """
    some = f"{len(references)} of {total} reference answers"
    return (
        f"the reward '{label}' pays {'its own reference answer' if len(references) == total else some} nothing: given "
        f"{given}, it pays {_score(paid)} for {short(repr(references[0]))} in every form, and {_score(empty)} for an "
        "empty completion"
    )


@dataclass(frozen=True)
class Scores:
    """Result of one reward: a line on its input and its scores, and a problem (empty: none).

    `is_certain`: it pays none of the gold answers that it declares to compare with.
    """

    label: str
    line: str
    problem: str = ""
    is_certain: bool = False


def check_references(stage: Stage, where: str) -> list[Scores]:
    """Return the scores of each reward of a stage, and warn of problems.

    Args:
        stage: With its data sets.
        where: Address of the rewards.

    Raises:
        RecipeError: A reward pays none of its gold answers, or compares text that no completion equals.
    """
    spec, trained = stage.environment_spec, [n for n, reward in enumerate(stage.rewards) if reward.weight]
    compared = [n for n in trained if gold_column_of(stage.rewards[n].part.target)]
    if not {stage.rewards[n].part.part.name for n in trained} & {*spec.paid_by}:
        for n in compared:
            _refuse_text(stage.rewards[n], spec, f"{where}[{n}]")
    scores = [score_references(reward, spec) for reward in stage.rewards]
    for n, found in enumerate(scores):
        if found.is_certain and n in compared:
            hint = "another reward, or another column: `columns: {answer: …}`; `rlm reward probe` has details"
            raise RecipeError(found.problem, where=f"{where}[{n}]", hint=hint)
        if found.problem:
            _LOG.warning("%s[%d]: %s", where, n, found.problem)
    return scores


def _refuse_text(reward: Reward, spec: EnvironmentSpec, where: str) -> None:
    """Raise RecipeError if the references are a text that no completion equals, and the reward pays nothing else."""
    if kind := FREE_TEXT if spec.paid_by else _kind(reward, spec):
        problem = f"'{reward.label}' compares text, and the references here are {kind.plural}"
        raise RecipeError(problem, where=where, allowed=", ".join(spec.paid_by) or kind.paid_by)


def _kind(reward: Reward, spec: EnvironmentSpec) -> Kind | None:
    """Return the kind of the references, if the reward pays nothing for one without its last word."""
    examples = _spread(spec.train, COMPARED)
    texts = [final_answer(written(example.get(gold_column_of(reward.part.target)))) for example in examples]
    if (kind := kind_of(texts)) is None or _reason(reward, {*examples[0]}):
        return None
    number = next(n for n, text in enumerate(texts) if kind_of([text]) == kind)
    close = [form.replace("{answer}", shortened(texts[number])) for form in FORMS.values()]
    call = call_reward(_bounded(reward), [examples[number]] * (len(close) + 1), [*close, ""])
    *paid, empty = [_rank((score, "")) for score in call.scores or [None]]
    return None if max(paid, default=empty) > empty else kind


def _bounded(reward: Reward) -> Reward:
    return replace(reward, on_error="stop", timeout=reward.timeout or SECONDS)


def score_references(reward: Reward, spec: EnvironmentSpec, called: int = CALLED) -> Scores:
    """Call one reward as training will, on some examples in every form of the answer, and on an empty completion."""
    gold = gold_column_of(reward.part.target)
    count = COMPARED if gold else called
    examples = _spread(spec.train, count) or _spread(spec.test, count)
    if reason := _reason(reward, {*examples[0]} if examples else set()):
        return Scores(reward.label, f"not called: {reason}")
    given = "messages" if reads_messages(reward) and not isinstance(examples[0]["prompt"], str) else "text"
    answers = [_references(reward, example, gold) for example in examples]
    texts = [
        [*_completions(reward, known or _usual(example), example), ""]
        for known, example in zip(answers, examples, strict=True)
    ]
    repeated = [example for example, group in zip(examples, texts, strict=True) for _ in group]
    call = call_reward(_bounded(reward), repeated, [text for group in texts for text in group])
    if call.error:
        problem = f"the reward '{reward.label}', given {given}, failed on a reference answer: {call.error}"
        return Scores(reward.label, f"given {given}, failed: {call.error}", problem)
    if call.seconds < QUICK and count < COMPARED:
        return score_references(reward, spec, COMPARED)
    changing = _changing(reward, examples[0], texts[0])
    scores = iter(call.scores)
    paid = [[(next(scores), text) for text in group] for group in texts]
    best = [max(group[:-1], key=_rank, default=(None, "")) for group in paid]
    empty = [group[-1] for group in paid]
    poor = [n for n, known in enumerate(answers) if known and _rank(best[n]) <= _rank(empty[n])]
    total, (top, text) = sum(map(bool, answers)), max(best, key=_rank)
    line = f"{_score(top)} for {short(repr(text))}, " if text else ""
    line = f"given {given}, pays {line}{_score(empty[0][0])} for an empty completion"
    if changing or not poor:
        return Scores(reward.label, line, changing)
    references = [answers[n][0] for n in poor]
    problem = unpaid(reward.label, given, references, total, best[poor[0]][0], empty[poor[0]][0])
    if gold and (stored := written(examples[poor[0]].get(gold))) != references[0]:
        problem += f"; the column '{gold}' has {short(repr(stored))}"
    return Scores(reward.label, line, problem, is_certain=bool(gold) and len(poor) == total)


def _changing(reward: Reward, example: Example, texts: Sequence[str]) -> str:
    """Return the problem of a reward that scores the same completions differently in a second call; empty if none."""
    calls = [call_reward(_bounded(reward), [example] * len(texts), texts).scores for _ in range(2)]
    pairs = [(*scores, text) for *scores, text in zip(*calls, texts, strict=False) if scores[0] != scores[1]]
    if not pairs:
        return ""
    first, second, text = pairs[0]
    return (
        f"the reward '{reward.label}' pays {_score(first)} and then {_score(second)} for {short(repr(text))}: it "
        "depends on chance, time or earlier calls, not on the completion alone"
    )


def _rank(paid: tuple[float | None, str]) -> float:
    return float("-inf") if paid[0] is None else paid[0]


def _score(score: float | None) -> str:
    return "no score" if score is None else f"{score:g}"


def _reason(reward: Reward, columns: set[str]) -> str:
    """Return why a reward is not called without need: it asks a model, keeps state, or lacks its data."""
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
    return f"the examples have no column '{missing[0]}' yet" if missing or not columns else ""


def _spread(rows: Any, count: int) -> list[Example]:
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
    return [final_answer(text) for text in values if text and (gold or len(text) <= LONGEST)]


def _usual(example: Mapping[str, Any]) -> list[str]:
    texts = [written(example[name]) for name in USUAL if name in example]
    return [text for text in texts if text and len(text) <= LONGEST][:1]


def _completions(reward: Reward, references: Sequence[str], example: Mapping[str, Any]) -> list[str]:
    tag, demonstration = reward.part.knobs.get("tag"), example.get("demonstration")
    forms = [*FORMS.values(), *([f"<{tag}>{{answer}}</{tag}>"] if isinstance(tag, str) else [])]
    texts = [form.replace("{answer}", text) for text in references for form in forms]
    return [*texts, demonstration] if isinstance(demonstration, str) else texts


def written(value: Any) -> str:
    """Return a reference answer as text: of a list of accepted ones the first; empty if it is none.

    >>> written(["Rome", "Roma"]), written(4.0), written({"a": 1})
    ('Rome', '4', '')
    """
    if isinstance(value, list | tuple):
        return written(value[0]) if value else ""
    if isinstance(value, float):
        return "" if value != value else str(int(value) if value.is_integer() else value)
    return str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
