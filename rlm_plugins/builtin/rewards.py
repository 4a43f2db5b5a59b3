"""r: reward functions (hook ``rlm_rewards``). Those of this file use text only: linear time, no model, no torch."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from rlm_plugins import hookimpl
from rlm_plugins.data.answer_extraction import Untagged, final_answers, normalized, parse_number, same_number, same_text
from rlm_plugins.equation.knobs import Count, Natural, Share
from rlm_plugins.errors import PartError, RecipeError, nearest
from rlm_plugins.registry.loading import await_all, call_with_accepted, import_function
from rlm_plugins.specs import Episode

Address = Annotated[str, Field(min_length=3)]
Options = dict[str, Any] | None
Mode = Literal["auto", "exact", "numeric", "normalized"]
Tags = Annotated[Sequence[str], Field(min_length=1)]
Tolerance = Annotated[float, Field(ge=0)]


def accuracy(
    completions: Sequence[str],
    answer: Sequence[object],
    *,
    mode: Mode = "auto",
    tolerance: Tolerance = 0.0,
    casefold: bool = False,
    tag: str = "answer",
    untagged: Untagged = "last_line",
) -> list[float | None]:
    r"""1 if the final answer of the completion is right and unique, else 0.

    The answer is the content of ``<answer>…</answer>`` (`tag` sets the name), after all thinking. Several blocks must
    all be right: two different answers are no answer. Without a block the last line must be the answer and nothing
    else. `untagged` selects instead the content of the last ``\boxed{…}`` ("boxed"), the last word with a digit
    ("last_number": lenient, it also takes "5 or 6" for 6), or none ("wrong"). LaTeX is compared as text.

    `mode` "exact" compares text (`casefold`: ignoring case), "numeric" numbers, exactly or up to an absolute
    `tolerance`; "auto" compares numbers if the data set's answer is one. "normalized" is the exact match of SQuAD:
    without case, punctuation and articles. See `rlm_plugins.data.answer_extraction.parse_number` for the format of
    numbers. If the data set's answer is a list, each of its entries is right. A completion whose example has no answer
    (None, NaN, empty) is not scored: None.

    >>> accuracy(["<think>…</think><answer>1,000</answer>", "<answer>9</answer><answer>1000</answer>"], ["1000"] * 2)
    [1.0, 0.0]
    """
    tests = [_answer_test(gold, row, mode, tolerance, casefold) for row, gold in enumerate(answer)]
    texts = [final_answers(text, tag, untagged) for text in completions]
    return [
        None if is_right is None else float(bool(answers) and all(map(is_right, answers)))
        for is_right, answers in zip(tests, texts, strict=True)
    ]


accuracy.gold_column = "answer"  # type: ignore[attr-defined]


def _answer_test(gold: object, row: int, mode: Mode, tolerance: float, casefold: bool) -> Callable[[str], bool] | None:
    """Return the test of an answer, or None if the data set has no answer."""
    if isinstance(gold, list | tuple):
        tests = [_answer_test(accepted, row, mode, tolerance, casefold) for accepted in gold]
        known = [test for test in tests if test is not None]
        return (lambda answer: any(test(answer) for test in known)) if known else None
    text = "" if gold is None else str(gold).strip()
    if not text or (isinstance(gold, float) and not math.isfinite(gold)):
        return None
    value = None if mode in ("exact", "normalized") else parse_number(text)
    if value is not None:
        return same_number(value, tolerance=tolerance)
    if mode == "numeric":
        raise PartError(
            f"sample {row}: expected a number as the data set's answer, got {text[:80]!r}", hint="mode: auto, or exact"
        )
    if not isinstance(gold, str | int | float):
        raise PartError(
            f"sample {row}: the data set's answer is of type {type(gold).__name__}",
            allowed="text, a number, or a list of accepted ones",
        )
    if mode == "normalized":
        return lambda answer: normalized(answer) == normalized(text)
    return same_text(text, casefold=casefold)


def format(completions: Sequence[str], *, tags: Tags = ("think", "answer"), prefilled: bool = False) -> list[float]:
    """1 if the text is ``<think>…</think><answer>…</answer>`` and nothing else, else 0.

    Each of `tags` must occur exactly once, in this order, around text that is not blank, with at most white space
    between the blocks. `prefilled`: the chat template already contains the opening of the first tag (DeepSeek-R1 and
    other thinking models), so the completion starts inside it.

    >>> format(["<think>2+2</think><answer>4</answer>", "<think></think><answer>4</answer>", "4"])
    [1.0, 0.0, 0.0]
    """
    opened = f"<{tags[0]}>" if prefilled else ""
    return [float(_is_tagged(opened + text, tags)) for text in completions]


def _is_tagged(text: str, tags: Sequence[str]) -> bool:
    marks = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]
    rest = text.strip()
    for tag in tags:
        before, _, inside = rest.partition(f"<{tag}>")
        body, closed, rest = inside.partition(f"</{tag}>")
        if before.strip() or not closed or not body.strip() or any(mark in body for mark in marks):
            return False
    return not rest


def length(completion_ids: Sequence[Sequence[int]], *, limit: Count = 1024, target: Natural = 0) -> list[float]:
    """Penalty for the distance to `target` tokens: r = −min(|n − target| / limit, 1).

    0 at the target, −1 at a distance of `limit` tokens or more. With the default target 0 shorter is better, empty is
    best: combine it with a reward for correctness.

    >>> length([[1, 2, 3], [1], []], limit=4)
    [-0.75, -0.25, 0.0]
    """
    return [max(-abs(len(ids) - target) / limit, -1.0) for ids in completion_ids]


def episode_return(episodes: Sequence[Episode], *, gamma: Share = 1.0) -> list[float]:
    """G = Σₖ γᵏ rₖ over the turns k of an episode: the return of its environment; 0 without turns.

    Sutton and Barto, Reinforcement Learning, eq. 3.8, k counted from 0.

    >>> episode_return([Episode(None, "", turn_rewards=[0.0, 1.0, 2.0])], gamma=0.5)
    [1.0]
    """
    return [_discounted_sum(episode.rewards, gamma) for episode in episodes]


def _discounted_sum(rewards: Sequence[float], gamma: float) -> float:
    return float(sum(gamma**k * reward for k, reward in enumerate(rewards)))


_ARGUMENTS = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments")
"""Arguments that TRL passes to reward functions beside columns."""


def check_trl_columns(function: Callable[..., Any], columns: Sequence[str], *, where: str) -> None:
    """Check that every parameter without default of a reward function of TRL is an argument or a column."""
    available = [name for name in (*_ARGUMENTS, *columns) if name not in ("prompt", "completion")]
    for name, parameter in inspect.signature(function).parameters.items():
        is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if is_named and parameter.default is parameter.empty and name not in available:
            title = getattr(function, "__name__", type(function).__name__)
            problem = f"'{title}' requires the column '{name}', which the training examples lack"
            raise RecipeError(problem, where=where, allowed=", ".join(available), hint=nearest(name, available))


class Trl:
    """A reward function of yours or of TRL, called with `prompts`, `completions`, `completion_ids` and all columns.

    r = function(prompts, completions, **columns), one number or None per completion. `function` is an address,
    ``trl.rewards:accuracy_reward`` or ``./mine.py:reward``; `options` are passed with the columns. (A plugin can
    register such a function directly.) The completions are text, also of a chat. A function whose annotation says
    messages (``completions: list[list[dict[str, str]]]``, as TRL's own), or the key `messages: true`, gets lists of
    messages. `completion_messages` has them beside the text.
    """

    def __init__(self, *, function: Address, options: Options = None) -> None:
        self._function, self._options = import_function(function, where="function"), dict(options or {})
        self.__wrapped__ = self._function  # for `inspect`: whose signature it is

    def check(self, columns: Sequence[str]) -> None:
        """Check that the data set has the columns that the function requires."""
        messages = ("prompt_messages", "completion_messages")
        check_trl_columns(self._function, [*columns, *self._options, *messages], where="function")

    def __call__(self, **columns: Any) -> Any:
        return await_all([call_with_accepted(self._function, {**columns, **self._options})])[0]


@hookimpl
def rlm_rewards() -> dict[str, object]:
    return {"accuracy": accuracy, "format": format, "length": length, "trl": Trl, "episode_return": episode_return}
