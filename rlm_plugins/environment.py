"""Multi-turn environments: their contract, and the record of an episode.

This is the Markov decision process of multi-turn learning, in these terms:

- **state** s: the attributes of an environment object, together with the conversation so far;
- **action** a: one turn of the model, up to its end token; at a finer level, each of its tokens;
- **transition** s′ = T(s, a): `step`, or the tools that a turn calls. It is deterministic, a function of the example
  passed to `reset` and of the actions, so that an episode can be replayed on any rank;
- **observation**: the text that the model receives of s′. Its tokens are part of the completion but never trained on;
- **reward** r: the reward of a turn. **Return** G = Σₖ γᵏ rₖ over the turns k of an episode (reward `episode_return`).

Three levels of credit: the **token** (every token has its own term in the equation); the **step** or turn (r, which
the shaper `by_turn` puts on the turn's last token); the **trajectory** (G, one number per completion).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlm_plugins.errors import RlmError

Message = Mapping[str, Any]
Factory = Callable[[], Any]
"""Factory of an environment, usually its class; called once per episode."""


class Environment:
    """Base class of environments. Implement `reset`, and then either `step` or tools.

    A text environment responds to every turn with ``step(action: str) -> (observation, reward, done)``::

        class Halving(Environment):
            def reset(self, secret):                 # the columns that it names
                self.secret = int(secret)
                return "Which number from 0 to 9?"   # appended to the prompt; None: nothing

            def step(self, action):
                if action.strip() == str(self.secret):
                    return "", 1.0, True
                return "smaller" if action.strip() > str(self.secret) else "larger", 0.0, False

    A tool environment has public methods with annotations and a docstring instead. The model calls them by name, in
    the format of its chat template; the observation is their return value (or error). The episode ends with the first
    turn without a tool call, or when the attribute `done` is true. ``get_reward() -> float``, if defined, is the reward
    of the last turn. This is the contract of TRL's ``environment_factory``: such classes work without this base class.

    Attributes:
        turns: Maximum number of turns of an episode.
        seconds: Timeout of one call.
    """

    turns: int = 32
    seconds: float = 60.0

    def reset(self, *_: Any, **columns: Any) -> str | None:  # so that type checkers accept any override
        """Start the episode of an example; an override names the columns it needs, or takes ``**columns``."""
        return None


@dataclass
class Episode:
    """The record of one episode.

    Args:
        environment: The environment object; None if its creation failed or timed out.
        prompt: The first input of the model, including the observation of `reset`.
        messages: The messages after it, of the model (role ``assistant``) and to it (``user``, ``tool``).
        turn_ends: Per turn of the model, the index of its last token in the completion.
        turn_rewards: Per turn, its reward.
        done: True if the environment ended the episode.
        truncated: True if the length limit left no room for another token.
        tool_calls: Number of tool calls.
        tool_failures: Number of tool calls that failed.
        fault: The error that the environment raised; `rewards` then raises it.
    """

    environment: Any
    prompt: Any
    messages: list[Message] = field(default_factory=list)
    turn_ends: list[int] = field(default_factory=list)
    turn_rewards: list[float] = field(default_factory=list)
    done: bool = False
    truncated: bool = False
    tool_calls: int = 0
    tool_failures: int = 0
    fault: RlmError | None = None

    @property
    def rewards(self) -> Sequence[float]:
        """Reward of each turn.

        Raises:
            RlmError: The environment failed. The `on_error` of the reward that reads this property applies.
        """
        if self.fault is not None:
            raise self.fault
        return self.turn_rewards

    @property
    def completion_text(self) -> str:
        """The text that the model generated, one turn after another."""
        return "\n".join(str(m["content"]) for m in self.messages if m["role"] == "assistant")

    @property
    def transcript(self) -> str:
        """All messages as text for people; observations are prefixed with ``>``."""
        return "\n".join(_line(message) for message in self.messages)


def _line(message: Message) -> str:
    if message["role"] != "assistant":
        return f"> {message['content']}"
    calls = [call.get("function", call) for call in message.get("tool_calls") or ()]
    return "\n".join(filter(None, (message["content"], *map(_call_text, calls))))


def _call_text(call: Mapping[str, Any]) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in call["arguments"].items())
    return f"{call['name']}({arguments})"


def has_step(environment: Any) -> bool:
    """Return True if the environment responds by `step` rather than by tools."""
    return callable(getattr(environment, "step", None))
