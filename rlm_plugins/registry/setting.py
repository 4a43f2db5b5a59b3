"""Settings under ``trainer:`` and sections of a recipe that a package adds, and the messages for their wrong values.

Knobs of parts, sections of a recipe and fields of a trainer's config are all validated by pydantic in strict mode.
The callers write the messages of unknown and missing keys, which differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pydantic
import pydantic_core

from rlm_plugins.errors import RecipeError, either, expected, nearest, text_number

if TYPE_CHECKING:
    from rlm_plugins.registry.registry import Registry
    from rlm_plugins.stage import Stage
    from rlm_plugins.trainer.observer import StepObserver


Address = tuple[str | int, ...]

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")
_EXPECTED = {
    "bool_type": "true or false",
    "dataclass_type": "a mapping",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "list_type": "a list",
    "model_type": "a mapping",
    "none_required": "null",
    "set_type": "a list",
    "string_too_short": "a string of at least one character",
    "string_type": "a string",
    "too_long": "at most {max_length} entries",
    "too_short": "{min_length} or more entries",
    "tuple_type": "a list",
}
"""Type of pydantic's error → the phrase after "expected"."""


@dataclass(frozen=True)
class FieldError:
    """The most useful one of pydantic's errors.

    Args:
        kind: ``unknown`` (a key), ``missing`` (a key) or ``value``.
        address: Keys and positions from the top of the data, without the branches of unions.
        value: The value there; of a missing key, the mapping that lacks it.
        problem: "expected …, got …"; of a key, empty.
        hint: What to do about a value.
    """

    kind: str
    address: Address
    value: Any
    problem: str = ""
    hint: str = ""


def most_specific_error(errors: Sequence[Any], data: Any) -> FieldError:
    """Return the first error, or a deeper one: that of the branch of a union that matched furthest."""
    first = errors[0]
    address, value = _address(data, first), first["input"]
    if first["type"] in _MISSING and isinstance(address[-1], int):  # an entry of a tuple
        return FieldError("value", address[:-1], value, expected(f"{address[-1] + 1} or more entries", value))
    if first["type"] in (*_UNKNOWN, *_MISSING):
        return FieldError("unknown" if first["type"] in _UNKNOWN else "missing", address, value)
    located = [(_address(data, error), error) for error in errors if error["type"] not in (*_UNKNOWN, *_MISSING)]
    deeper = [other for other, _ in located if other[: len(address)] == address and other != address]
    address = deeper[0] if deeper else address
    at_address = [error for other, error in located if other == address]
    value = at_address[0]["input"]
    phrases = list(dict.fromkeys(map(_expected, at_address)))
    return FieldError("value", address, value, expected(either(phrases), value), _hint(value, at_address))


def address_text(address: Address) -> str:
    """Return an address as a recipe path: ``.k.every[1]``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in address)


def _expected(error: Mapping[str, Any]) -> str:
    error_type, context = error["type"], error.get("ctx", {})
    if error_type in ("literal_error", "enum"):
        return str(context["expected"])
    if error_type in ("value_error", "assertion_error"):
        return f"a valid value ({context['error']})"
    limits = {name: f"{limit:g}" if isinstance(limit, float) else limit for name, limit in context.items()}
    if error_type in _EXPECTED:
        return _EXPECTED[error_type].format(**limits)
    return str(error["msg"]).removeprefix("Input should be ")


def _address(data: Any, error: Mapping[str, Any]) -> Address:
    """Return pydantic's address without the branches of unions that it tried on the way."""
    steps: Sequence[str | int] = error["loc"]
    address: Address = ()
    for step in steps:
        in_list = isinstance(data, list | tuple) and isinstance(step, int) and step < len(data)
        if in_list or (isinstance(data, Mapping) and step in data):
            data, address = data[step], (*address, step)
    return (*address, steps[-1]) if error["type"] in _MISSING else address


def _hint(value: object, errors: Sequence[Mapping[str, Any]]) -> str:
    types = [error["type"] for error in errors]
    if value is None:
        return "it is empty: add a value, or remove it"
    if isinstance(value, dict) and types == ["list_type"]:
        return "write a list: `- {name: …}`"
    if isinstance(value, float) and "int_type" in types:
        return f"{value // 1:.0f} or {value // 1 + 1:.0f}"
    listed = " ".join(str(error["ctx"]["expected"]) for error in errors if error["type"] in ("literal_error", "enum"))
    choices = [choice for choice in re.findall(r"'([^']*)'", listed) if choice != value]
    return text_number(value) or nearest(str(value), choices)


_STRICT = pydantic.ConfigDict(strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class PolicyBytes:
    """Bytes of the trained weights of the policy, and of a further process that generates with a copy of it."""

    trained: int
    copy: int


@dataclass(frozen=True)
class Setting:
    """A setting of the trainer of an algorithm with an equation, beside the fields of ``trl.GRPOConfig``.

    Args:
        annotation: Its type, with its range: ``Annotated[int, Field(ge=0)]``.
        about: Its effect and unit.
        check: Called with the config, with it set; raises a `RecipeError` where it contradicts another setting.
        check_stage: Called with a stage, before any weight is loaded, and the address of ``trainer:``; raises a
            `RecipeError`.
        observer: Called with the config; returns the observer of the training steps that does what the setting says.
        memory_bytes: Called with the memory of the policy and the config; returns the bytes that it keeps in memory.
        provides: Data of the batch that it provides: ``rollout_logp``.
        metrics: Logged number → its meaning.
    """

    annotation: Any
    about: str
    check: Callable[[Any], None] | None = None
    check_stage: Callable[[Any, Any, str], None] | None = None
    observer: Callable[[Any], StepObserver | None] | None = None
    memory_bytes: Callable[[PolicyBytes, Any], int] | None = None
    provides: Sequence[str] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)

    def check_value(self, name: str, value: Any, where: str = "") -> None:
        """Check type and range of the value of the setting `name` at the address `where`."""
        fields: Any = {name: (self.annotation, ...)}
        model = pydantic.create_model("Settings", __config__=_STRICT, **fields)
        try:
            model.model_validate_json(pydantic_core.to_json({name: value}))
        except pydantic.ValidationError as error:
            wrong = most_specific_error(error.errors(), {name: value})
            raise RecipeError(wrong.problem, where=where or f"trainer.{name}", hint=wrong.hint or self.about) from None


class Section:
    """Section of a stage. The keyword-only arguments of `__init__` are its keys; every other member is optional.

    Attributes:
        on_by_default: A stage without the section has it with its defaults; ``none`` in the recipe turns it off.
        needs_equation: A stage whose trainer has a loss of its own cannot have it.
        environment: Variables that `rlm train` sets before torch is loaded: no number depends on the processor then.
        provides: Data of the batch that its observers provide: ``teacher_logp``.
        columns: Columns of the data set that it reads.
        passes: Called with the :class:`~rlm_plugins.trainer.context.TrainerContext` and TRL's forward pass; returns the
            :class:`~rlm_plugins.trainer.passes.ForwardPasses` of a trainer. None: the passes are TRL's, or those of
            another section.
    """

    on_by_default: bool = False
    needs_equation: bool = False
    environment: Mapping[str, str] | None = None
    provides: Sequence[str] = ()
    columns: Sequence[str] = ()
    passes: Callable[..., Any] | None = None

    def find_parts(self, registry: Registry, where: str) -> None:
        """Find parts that its keys name, at the address `where`."""

    def settings(self, stage: Stage, args: Any) -> Mapping[str, Any]:
        """Return settings under ``trainer:`` for a stage whose recipe does not set them.

        Args:
            stage: The stage.
            args: The config of its trainer without these settings.
        """
        return {}

    def check_stage(self, stage: Stage, where: str) -> None:
        """Check a stage that is to be trained, with its data sets, before any weight is loaded.

        Args:
            stage: The stage.
            where: Address of its rewards.
        """

    def training(self, stage: Stage, run: Any) -> AbstractContextManager[Any]:
        """Return a context in which the trainer of a stage is built and trained, in the run `run`."""
        return nullcontext()

    def retry(self, stage: Stage, error: Exception) -> Stage | None:
        """Return the stage to go on with from the last checkpoint after an error ended this one; None: the run ends."""
        return None

    def smaller(self, stage: Stage, error: Exception) -> Sequence[str]:
        """Return settings of a stage that need less memory, a line for each, after an error for want of memory."""
        return ()

    def observers(self, stage: Stage) -> Sequence[StepObserver]:
        """Return observers of the training steps of a stage."""
        return ()

    def callbacks(self, stage: Stage, run: Any, console: Any) -> Sequence[Any]:
        """Return transformers callbacks of a stage, in the run `run`, that print on the `rich` console."""
        return ()

    def warnings(self, stage: Stage) -> Sequence[str]:
        """Return the lines that ``rlm check`` prints as warnings."""
        return ()

    def check_data(self, stage: Stage, args: Any) -> Any:
        """Return what ``rlm check --json`` prints of the section: plain data, a list of lines for example."""
        return []

    def check_lines(self, data: Any) -> Sequence[str]:
        """Return the lines of ``rlm check``, of the result of `check_data`."""
        return list(data)

    def check_brief(self, data: Any) -> str:
        """Return the line of ``rlm check`` without ``--full``, of the result of `check_data`; empty: none."""
        return ""
