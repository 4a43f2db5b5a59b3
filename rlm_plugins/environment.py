"""A world that answers: the contract of an environment, and what an episode in it leaves behind.

It is the Markov decision process of multi-turn learning, in these words:

- **state** s: the attributes of an environment object, together with what has been said so far;
- **action** a: one turn of the model, up to its end token; at a finer grain, each of its tokens;
- **transition** s′ = T(s, a): `step`, or the tools a turn calls. It draws nothing at random: what happens is a function
  of the row that `reset` was given and of the actions, so that an episode can be played again, on any process;
- **observation**: what the model is told of s′. Its tokens stand in the row, are read, and are never trained on;
- **reward** r: what a turn is paid. **Return** G = Σₖ γᵏ rₖ over the turns k of an episode (reward `episode_return`).

Three grains of credit: the **token** (every token of a row has its place in the equation), the **step** or turn (r,
which the shaper `by_turn` puts on the turn's last token), the **trajectory** (G, one number per row).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlm_plugins.errors import RlmError

Message = Mapping[str, Any]
Factory = Callable[[], Any]
"""Makes an environment: mostly its class. It is called once per episode."""


class Environment:
    """One episode of a world. Write `reset`, and then either `step` or tools.

    A world of words answers every turn by ``step(action: str) -> (observation, reward, done)``::

        class Halving(Environment):
            def reset(self, secret):                 # the columns it names
                self.secret = int(secret)
                return "Which number from 0 to 9?"   # ends the prompt; None: nothing is added

            def step(self, action):
                if action.strip() == str(self.secret):
                    return "", 1.0, True
                return "smaller" if action.strip() > str(self.secret) else "larger", 0.0, False

    A world of tools has public methods with annotations and a docstring instead: the model calls them by name, as its
    chat template says, and is told what they return (or raise). Its episode ends with the first turn that calls none,
    or when its attribute `done` is true; ``get_reward() -> float``, where there is one, pays the last turn. That is
    the contract of TRL's ``environment_factory``: a class written for it can be used as it is, without this base.

    Attributes:
        turns: How many actions an episode has at most.
        seconds: How long one call may take.
    """

    turns: int = 32
    seconds: float = 60.0

    def reset(self, *_: Any, **columns: Any) -> str | None:  # as type checkers let any signature take its place
        """Begins the episode of a row; yours names the columns it wants, or takes all by ``**columns``."""
        return None


@dataclass
class Episode:
    """What happened on one row.

    Args:
        environment: The object it was played with; None where it could not be made, or did not answer in time.
        prompt: What the model read first, the observation of `reset` included.
        messages: What was said after it, by the model (role ``assistant``) and to it (``user``, ``tool``).
        ends: Per turn of the model, the place of its last token in the completion.
        paid: Per turn, its reward.
        done: Whether the world said that it was over.
        cut: Whether there was no room left for another token.
        calls: How many tools were called; ``failures``: and how many of them failed.
        fault: What the environment raised; `rewards` then raises it.
    """

    environment: Any
    prompt: Any
    messages: list[Message] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    paid: list[float] = field(default_factory=list)
    done: bool = False
    cut: bool = False
    calls: int = 0
    failures: int = 0
    fault: RlmError | None = None

    @property
    def rewards(self) -> Sequence[float]:
        """Per turn, what it was paid.

        Raises:
            RlmError: The environment failed: so the `on_error` of the reward that asks says what then.
        """
        if self.fault is not None:
            raise self.fault
        return self.turn_rewards

    @property
    def written(self) -> str:
        """What the model wrote, turn under turn."""
        return "\n".join(str(m["content"]) for m in self.messages if m["role"] == "assistant")

    @property
    def told(self) -> str:
        """Everything that was said, for a reader; what the world said stands behind a ``>``."""
        return "\n".join(_line(message) for message in self.messages)


def _line(message: Message) -> str:
    if message["role"] != "assistant":
        return f"> {message['content']}"
    calls = [call.get("function", call) for call in message.get("tool_calls") or ()]
    called = [f"{call['name']}({', '.join(f'{k}={v!r}' for k, v in call['arguments'].items())})" for call in calls]
    return "\n".join(filter(None, (message["content"], *called)))


def has_step(environment: Any) -> bool:
    """Whether it answers by `step`, and not by tools."""
    return callable(getattr(environment, "step", None))
