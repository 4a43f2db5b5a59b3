"""Return values of parts: algorithms, environments with their episodes, and models.

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

import dataclasses
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import RlmError

if TYPE_CHECKING:
    import datasets
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

    from rlm_plugins.models.pretrained import WeightsNotice


Spec = str | Mapping[str, Any] | None
"""A part by name, a part with knobs (``{"name": "clip", "epsilon": 0.2}``), or no part."""


@dataclass(frozen=True)
class Algorithm:
    """One published algorithm, or yours.

    Args:
        about: A description of one or two sentences.
        source: The definition (arXiv number, equation).
        pitfalls: Known failure modes, and differences between libraries.
        trainer: The trainer that runs it (hook ``rlm_trainers``).
        family: Its class in surveys; `rlm explain algorithms` groups by it, families in the order of :data:`FAMILIES`.
        names: Slot, or part of a slot that has several → the source's name for it and for its knobs.

    ``file`` and ``line`` are the place of its definition. The other fields are the slots of the equation; each names
    a part of the hook with the same recipe key. Keys that a hook keeps beside the knobs (``beta`` of a penalty,
    ``num_completions`` of a rollout source) are given there as well.
    """

    about: str
    source: str
    pitfalls: str = ""
    trainer: str = "grpo"
    family: str = "critic-free policy gradient"
    names: Mapping[str, str] = field(default_factory=dict)
    sampler: Spec = None
    rollouts: Sequence[Spec] = ()
    shapers: Sequence[Spec] = ()
    filters: Sequence[Spec] = ()
    advantage: Spec = None
    importance: Spec = None
    policy_loss: Spec = None
    token_weights: Sequence[Spec] = ()
    penalties: Sequence[Spec] = ()
    aggregator: Spec = None

    file: str = field(init=False, repr=False, compare=False)
    line: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        frame = sys._getframe(1)
        while frame.f_back and frame.f_code.co_filename in ("<string>", __file__, dataclasses.__file__):
            frame = frame.f_back  # a dataclass's own __init__ has no file
        object.__setattr__(self, "file", frame.f_code.co_filename)
        object.__setattr__(self, "line", frame.f_lineno)

    def slots(self) -> dict[str, Spec | Sequence[Spec]]:
        """Return recipe key → the choice of this algorithm.

        >>> Algorithm(about="", source="", advantage="gae").slots()["advantage"]
        'gae'
        """
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name in SLOTS}


def variant(algorithm: Algorithm, *, about: str, source: str, pitfalls: str = "", **slots: Any) -> Algorithm:
    """Return `algorithm` as a library implements it: with other `slots`, and the paper's names for the rest."""
    parts = [part for slot in slots for part in getattr(algorithm, slot) or ()]
    replaced = {*slots, *(part["name"] if isinstance(part, Mapping) else part for part in parts)}
    names = {key: name for key, name in algorithm.names.items() if key not in replaced}
    return dataclasses.replace(algorithm, about=about, source=source, pitfalls=pitfalls, names=names, **slots)


def read_algorithms(*tables: Path) -> dict[str, Algorithm]:
    """Return name → algorithm of tables of TOML, each with its place there.

    An entry has the arguments of :class:`Algorithm`; the text "null" stands for None. An entry ``NAME@LIBRARY`` has
    those of :func:`variant`, for the algorithm ``NAME`` of the same tables.

    Args:
        tables: Files, an algorithm before its variants.
    """
    algorithms: dict[str, Algorithm] = {}
    for file in tables:
        text = file.read_text(encoding="utf-8")
        for name, entry in tomllib.loads(text).items():
            values = _values(entry)
            algorithm = variant(algorithms[base_name(name)], **values) if "@" in name else Algorithm(**values)
            object.__setattr__(algorithm, "file", str(file))
            object.__setattr__(algorithm, "line", text[: text.index(f'["{name}"]')].count("\n") + 1)
            algorithms[name] = algorithm
    return algorithms


def _values(table: Any) -> Any:
    """Return a table of TOML with tuples in place of lists, and None for "null", which TOML does not have."""
    if isinstance(table, dict):
        return {key: _values(value) for key, value in table.items()}
    if isinstance(table, list):
        return tuple(map(_values, table))
    return None if table == "null" else table


def base_name(name: str) -> str:
    """Return the name of the algorithm that an implementation variant belongs to: the part before the ``@``.

    >>> base_name("grpo@trl"), base_name("acme/grpo@mine"), base_name("grpo")
    ('grpo', 'acme/grpo', 'grpo')
    """
    return name.partition("@")[0]


_TEXT = ("about", "source", "pitfalls", "trainer", "family", "names")
SLOTS: tuple[str, ...] = tuple(f.name for f in fields(Algorithm) if f.init and f.name not in _TEXT)
"""The recipe keys under ``algorithm:``, in the order in which a batch passes through them."""

FAMILIES = ("with a critic", "critic-free policy gradient", "with a teacher", "off-policy and supervised")
"""Families in the order of the survey (arXiv 2509.08827); an unlisted family comes last."""


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


@dataclass(frozen=True)
class Successes:
    """Completions that an earlier stage of the same run kept (`callbacks: [keep_successes]`).

    Args:
        stage: Name of that stage.
        per_prompt: Largest number of them per prompt, the latest first.
        at_least: Smallest reward of a kept completion.
    """

    stage: str
    per_prompt: int = 1
    at_least: float = 1.0


@dataclass
class EnvironmentSpec:
    """Training examples, held-out examples and, for multi-turn tasks, the environment or tools.

    Args:
        train: Examples with a ``prompt`` (text or chat messages) and any columns that rewards name.
        test: Held-out examples for ``rlm eval`` and the learning curve; empty: no evaluation.
        environment: Returns the environment of one episode (multi-turn): see :mod:`rlm_plugins.specs`.
        tools: Functions that the model may call in every episode, as TRL's ``tools``.
        successes: The training examples are those of an earlier stage that it answered, with its answers as the column
            ``demonstration``; they replace `train` when the stage starts.
        paid_by: Rewards for the references of the data set, where a comparison of text pays nothing; empty: any.
    """

    train: Sequence[Mapping[str, Any]] | datasets.Dataset | datasets.IterableDataset
    test: Sequence[Mapping[str, Any]] | datasets.Dataset = ()
    environment: Factory | None = None
    tools: Sequence[Callable[..., Any]] = ()
    successes: Successes | None = None
    paid_by: Sequence[str] = ()

    @property
    def multi_turn(self) -> bool:
        """True if a completion may have several turns."""
        return self.environment is not None or bool(self.tools)


@dataclass
class ModelSpec:
    """A model that can be described before it is loaded.

    Args:
        config: The transformers config (for the memory estimate).
        tokenizer: Loads the tokenizer.
        load: Loads or initializes the weights; called once per stage, after every check has passed.
        origin: Path or description of the weights.
        notice: Returns name, source and license of the weights for reports and model cards; None: they are
            new.
        processor: Loads the processor of a vision-language model; None: it has no images.
        runs_code: True if code of the checkpoint may be run (`trust_remote_code`).
    """

    config: PretrainedConfig
    tokenizer: Callable[[], PreTrainedTokenizerBase]
    load: Callable[[], PreTrainedModel]
    origin: str = ""
    notice: Callable[[], WeightsNotice] | None = None
    processor: Callable[[], ProcessorMixin] | None = None
    runs_code: bool = False

    def processing_class(self) -> PreTrainedTokenizerBase | ProcessorMixin:
        """Load what TRL calls the processing class: the processor of a vision-language model, else the tokenizer."""
        return self.tokenizer() if self.processor is None else self.processor()
