"""Optional members of parts, one `Protocol` per capability.

A part declares a capability by having its members: a class as methods and attributes, a function as attributes. The
core tests for them with `isinstance` alone. A member that is nearly spelled like one of :data:`MEMBERS` is an error
(:mod:`rlm_plugins.registry.contract`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class ChecksItself(Protocol):
    """Checks its knobs against data and adapter before any weight is loaded.

    It is called with those of `lora`, `columns`, `rewards` and (for a rollout source) `prompts` that it names.
    """

    check: Callable[..., None]


@runtime_checkable
class Updates(Protocol):
    """Updates its state from the data of the scoring phase, after each generation batch."""

    update: Callable[..., None]


@runtime_checkable
class UsesPolicy(Protocol):
    """Is set up with the policy before its first call: `setup(policy, results)`, and `tokenizer` if named."""

    setup: Callable[..., None]


@runtime_checkable
class ValidatesConfig(Protocol):
    """Validates its knobs against the trainer's config: `validate(config, **knobs)`."""

    validate: Callable[..., None]


@runtime_checkable
class Warns(Protocol):
    """Returns a warning, or an empty string, about valid settings: `warn(trainer, **knobs)`, `trainer` a mapping."""

    warn: Callable[..., str]


@runtime_checkable
class HoldsMemory(Protocol):
    """Reports the bytes of its own models to the memory estimate."""

    def memory_bytes(self, stage: Any, /) -> int:
        """Return the bytes that stay allocated while `stage` runs."""


@runtime_checkable
class Stateful(Protocol):
    """Keeps state between steps, saved in every checkpoint."""

    def state_dict(self) -> Any:
        """Return the state as plain values and tensors."""

    def load_state_dict(self, state: Any, /) -> object:
        """Restore a state that `state_dict` returned."""


@runtime_checkable
class ReadsColumns(Protocol):
    """Requires columns of the data set: a rollout source or a trainer."""

    columns: Sequence[str]


@runtime_checkable
class NeedsWholeGroups(Protocol):
    """Requires all completions of a group on one process: a rollout source."""

    whole_groups: bool


@runtime_checkable
class PlaysEpisodes(Protocol):
    """Generates episodes by `trainer.play`, so it requires a multi-turn environment: a rollout source."""

    plays_episodes: bool


@runtime_checkable
class SetsTrainer(Protocol):
    """Fixes fields of the trainer's config: a generator."""

    trainer_settings: Mapping[str, Any]


@runtime_checkable
class DryRuns(Protocol):
    """Predicts on a model without weights whether it is supported, and its memory: a generator.

    `dry_run(model, config, **knobs)` returns why it falls back to transformers (or None), and bytes.
    """

    dry_run: Callable[..., tuple[str | None, int]]


@runtime_checkable
class Produces(Protocol):
    """Leaves or requires something else than a policy, such as `reward_model` or `successes`.

    A trainer or a callback leaves it; a reward or an environment requires it of an earlier stage.
    """

    produces: str


@runtime_checkable
class ComparesColumn(Protocol):
    """Compares completions with a column of gold answers, of text or numbers: a reward."""

    gold_column: str


@runtime_checkable
class HasGranularity(Protocol):
    """Has one value per `sequence` (a ratio), or weights a completion by each `token` (an aggregator)."""

    granularity: str


@runtime_checkable
class PreparesExamples(Protocol):
    """Converts examples of a data set format into the columns that it requires: a trainer."""

    def prepare(self, rows: Any, /) -> Any:
        """Return the examples to train on."""


@runtime_checkable
class Measures(Protocol):
    """Has metrics of its own in place of rewards: a trainer."""

    metrics: Sequence[str]


@runtime_checkable
class Evaluates(Protocol):
    """Evaluates its own result on held-out examples instead of generating: a trainer."""

    def evaluate(self, stage: Any, rows: Sequence[Mapping[str, Any]], /, model: Any = None) -> Any:
        """Return the report of `model` on `rows`; None means the saved result."""


@runtime_checkable
class RefusesSettings(Protocol):
    """Names the fields of its config that a recipe cannot set, each with the reason: a trainer."""

    refused: Mapping[str, str]


@runtime_checkable
class NeedsEquation(Protocol):
    """Requires an algorithm with an equation: a trainer."""

    needs_equation: bool


@runtime_checkable
class Trainer(Protocol):
    """Builds the Hugging Face trainer of a stage from a dataclass of settings: a trainer."""

    def config_class(self) -> type:
        """Return the dataclass that `trainer:` of a recipe fills."""

    def build(self, stage: Any, run: Any, /) -> Any:
        """Return a transformers `Trainer`, which the run trains."""


@runtime_checkable
class CompletesResults(Protocol):
    """Writes further files into the folder of the result, on every process: a trainer."""

    def complete(self, trainer: Any, stage: Any, folder: Any, /) -> None:
        """Write the files."""


@runtime_checkable
class PinsKnobs(Protocol):
    """Pins what its knobs leave open: `pin(knobs)` returns a model's knobs with versions and hashes."""

    pin: Callable[[dict[str, Any]], Mapping[str, Any]]


MEMBERS: dict[str, type] = {
    member: kind
    for kind in list(globals().values())
    if isinstance(kind, type) and kind.__module__ == __name__
    for member in (*kind.__annotations__, *vars(kind))
    if not member.startswith("_")
}
"""Optional member of a part → the protocol that declares it."""


def columns_of(target: Any) -> tuple[str, ...]:
    """Return the columns of the data set that a rollout source or a trainer requires."""
    return tuple(target.columns) if isinstance(target, ReadsColumns) else ()


def refused_by(trainer: Any) -> Mapping[str, str]:
    """Return the fields of its config that a trainer refuses, each with a reason."""
    return trainer.refused if isinstance(trainer, RefusesSettings) else {}


def needs_equation(trainer: Any) -> bool:
    """Return True if a trainer cannot run an algorithm without an equation."""
    return isinstance(trainer, NeedsEquation) and trainer.needs_equation


def product_of(trainer: Any) -> str:
    """Return the kind of model that a trainer leaves: `policy` unless it declares another."""
    return trainer.produces if isinstance(trainer, Produces) else "policy"


def gold_column_of(reward: Any) -> str:
    """Return the column of gold answers that a reward compares completions with; empty if it compares none."""
    return reward.gold_column if isinstance(reward, ComparesColumn) else ""


def granularity_of(part: Any) -> str:
    """Return the granularity of a ratio or an aggregator; empty if it declares none."""
    return part.granularity if isinstance(part, HasGranularity) else ""


def capabilities(part: Any) -> list[tuple[str, str]]:
    """Return the optional members of a part, bound or not, each with one sentence.

    >>> from types import SimpleNamespace
    >>> capabilities(SimpleNamespace(target=SimpleNamespace(columns=("steps",))))
    [('columns', 'Requires columns of the data set: a rollout source or a trainer.')]
    """
    declared = {name for kind in getattr(part.target, "__mro__", ()) for name in getattr(kind, "__annotations__", ())}
    return [
        (name, (protocol.__doc__ or "").partition("\n")[0])
        for name, protocol in MEMBERS.items()
        if isinstance(part.target, protocol) or name in declared
    ]
