"""A reward part as TRL calls it: hands over what the part named, and lets nothing impossible come back.

TRL trains on a dict's keys, turns NaN and infinity into "no training" without a word, and ends with exit code 0 when
a reward calls `sys.exit`. Here each of these is an error that names the plugin, the step and the sample.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlm_plugins.batch import SAMPLE
from rlm_plugins.errors import PartError
from rlm_plugins.stage import Reward, Stage

LARGEST = 3.4e38
"""Beyond this a reward is infinite in the float32 that TRL keeps it in."""


def introduce(stage: Stage, policy: Any) -> None:
    """Shows a policy, about to be trained or judged, to the rewards of its stage that have a method `meet`."""
    for reward in stage.rewards:
        if hasattr(reward.part.target, "meet"):
            reward.part.target.meet(policy, stage.results)


def trl_reward(reward: Reward) -> Callable[..., Any]:
    """`reward` as a function TRL accepts; named by its label, asynchronous when the part is."""
    bound = reward.part

    def given(columns: Mapping[str, Any]) -> dict[str, Any]:
        if bound.part.takes_everything:
            return dict(columns)
        wanted = (*bound.part.needs, *bound.part.welcomes)
        return {name: _datum(name, columns) for name in wanted if name in SAMPLE or name in columns}

    def call(**columns: Any) -> list[float | None]:
        with _Named(reward, columns):
            return _checked(reward, bound.call(given(columns)), columns)

    async def call_async(**columns: Any) -> list[float | None]:
        with _Named(reward, columns):
            return _checked(reward, await bound.call(given(columns)), columns)

    target = bound.target if inspect.isfunction(bound.target) else type(bound.target).__call__
    function = call_async if inspect.iscoroutinefunction(target) else call
    function.__name__ = reward.label
    return function


def text_of(message: Any) -> str:
    """A prompt or completion as plain text: of a conversation, what the last speaker's side said.

    >>> text_of("4"), text_of([{"role": "assistant", "content": "4"}])
    ('4', '4')
    """
    if isinstance(message, str):
        return message
    role = message[-1]["role"] if message else ""
    role = "assistant" if role == "tool" else role
    return "\n".join(_content(m.get("content")) for m in message if m["role"] == role)


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(block.get("text", "") for block in content if isinstance(block, Mapping))
    return content or ""


def _datum(name: str, columns: Mapping[str, Any]) -> Any:
    """One named piece of data; lists are copied, so that a part cannot change what TRL goes on to use."""
    if name in ("prompts", "completions"):
        return [text_of(message) for message in columns[name]]
    value = columns[{"prompt_messages": "prompts", "completion_messages": "completions"}.get(name, name)]
    return list(value) if isinstance(value, list) else value


def _checked(reward: Reward, scores: Any, columns: Mapping[str, Any]) -> list[float | None]:
    count = len(columns["completions"])
    allowed = f"a list of {count} numbers (None: does not apply)"
    if hasattr(scores, "tolist"):
        scores = scores.tolist()
    if not isinstance(scores, Sequence) or isinstance(scores, str):
        raise PartError(f"returned {type(scores).__name__}", allowed=allowed)
    if len(scores) != count:
        raise PartError(f"returned {len(scores)} scores for {count} completions", allowed=allowed)
    return [_number(score, row, columns, allowed) for row, score in enumerate(scores)]


def _number(score: Any, row: int, columns: Mapping[str, Any], allowed: str) -> float | None:
    if score is None:
        return None
    if hasattr(score, "item"):
        score = score.item()
    if not isinstance(score, int | float):
        raise PartError(f"returned {score!r} ({type(score).__name__}) for sample {row}", allowed=allowed)
    if not math.isfinite(score) or abs(score) > LARGEST:
        text = text_of(columns["completions"][row])
        raise PartError(f"returned {score} for sample {row}, whose completion begins {text[:80]!r}", allowed=allowed)
    return float(score)


class _Named:
    """Whatever a reward raises leaves with the reward's name, file and step; `sys.exit` cannot end a run quietly."""

    def __init__(self, reward: Reward, columns: Mapping[str, Any]) -> None:
        state = columns.get("trainer_state")
        step = f", step {state.global_step}" if state is not None else ""
        part = reward.part.part
        self._where = f"reward '{reward.label}' (plugin '{part.plugin}', {part.file}){step}"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PartError) and not error.where:
            raise PartError(
                error.problem, where=self._where, allowed=error.allowed, hint=error.hint
            ) from error.__cause__
        if isinstance(error, Exception | SystemExit) and not isinstance(error, PartError):
            raise PartError(f"raised {type(error).__name__}: {error}", where=self._where) from error
