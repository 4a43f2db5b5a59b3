"""A part: a function whose signature says what it needs and what may be turned.

Before the star: data, by the names of the batch (default ``None``: optional). After the star: knobs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pydantic
import pydantic_core

from rlm_plugins.batch import LEARNING, SCORING, words
from rlm_plugins.errors import PluginError, RecipeError, nearest
from rlm_plugins.hookspecs import HOOKS

_KINDS = inspect.Parameter
_STRICT = pydantic.ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Part:
    """One entry of the registry: who offers which function under which name.

    Args:
        hook: The hook it came through (``rlm_rewards``).
        name: Its bare name (``accuracy``).
        plugin: The plugin that offers it; ``plugin/name`` is its full name.
        target: The function, or the class where the maths has memory.
    """

    hook: str
    name: str
    plugin: str
    target: Any

    @property
    def full_name(self) -> str:
        """``plugin/name``, which is never ambiguous."""
        return f"{self.plugin}/{self.name}"

    @cached_property
    def file(self) -> str:
        """The source file it stands in, for error messages and ``rlm explain``."""
        try:
            return inspect.getsourcefile(inspect.unwrap(self.target)) or "?"
        except TypeError:
            return "?"

    @cached_property
    def _data(self) -> list[inspect.Parameter]:
        call = self.target.__call__ if inspect.isclass(self.target) else self.target
        parameters = list(inspect.signature(call).parameters.values())
        if inspect.isclass(self.target):
            parameters = parameters[1:]
        return [p for p in parameters if p.kind is not _KINDS.KEYWORD_ONLY]

    @cached_property
    def _knobs(self) -> list[inspect.Parameter]:
        parameters = inspect.signature(self.target).parameters.values()
        return [p for p in parameters if p.kind is _KINDS.KEYWORD_ONLY]

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the data it cannot do without."""
        plain = (p for p in self._data if p.kind is not _KINDS.VAR_KEYWORD)
        return tuple(p.name for p in plain if p.default is _KINDS.empty)

    @property
    def welcomes(self) -> tuple[str, ...]:
        """Names of the data it uses when something supplies them."""
        return tuple(p.name for p in self._data if p.default is None)

    @property
    def takes_everything(self) -> bool:
        """Whether it ends in ``**kwargs``: a reward written for TRL."""
        return any(p.kind is _KINDS.VAR_KEYWORD for p in self._data)

    @cached_property
    def knobs(self) -> type[pydantic.BaseModel]:
        """The knobs as a pydantic model: types from the annotations, unknown names forbidden.

        Raises:
            PluginError: An annotation that means nothing.
        """
        scope = getattr(inspect.unwrap(self._knob_owner), "__globals__", {})
        fields: dict[str, Any] = {}
        for knob in self._knobs:
            try:
                kind = eval(knob.annotation, scope) if isinstance(knob.annotation, str) else knob.annotation
            except Exception as error:
                raise PluginError(
                    f"knob '{knob.name}' is annotated '{knob.annotation}', which cannot be read ({error})",
                    where=self._where,
                    hint="annotate knobs with builtin types, or import the type at the top of the file",
                ) from error
            fields[knob.name] = (kind, ... if knob.default is _KINDS.empty else knob.default)
        try:
            return pydantic.create_model(self.name, __config__=_STRICT, **fields)
        except (pydantic.errors.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError) as error:
            raise PluginError(f"its knobs make no schema: {error}", where=self._where) from error

    @property
    def _knob_owner(self) -> Any:
        return self.target.__init__ if inspect.isclass(self.target) else self.target

    @property
    def _where(self) -> str:
        return f"plugin '{self.plugin}', {self.hook} '{self.name}' ({self.file})"

    def check(self) -> None:
        """Holds the signature against the contract of its hook.

        Raises:
            PluginError: A target that cannot be called, ``*args``, ``**kwargs``, a knob without annotation, or a
                data name the hook does not know.
        """
        if not callable(self.target):
            raise PluginError(f"{type(self.target).__name__} is not a function", where=self._where)
        room = HOOKS[self.hook].data
        known = words(room) if room in (SCORING, LEARNING) else room
        for p in self._data:
            free = p.kind is _KINDS.VAR_KEYWORD and self.hook == "rlm_rewards"
            if p.kind in (_KINDS.VAR_POSITIONAL, _KINDS.VAR_KEYWORD) and not free:
                raise PluginError(
                    f"takes *{p.name}",
                    where=self._where,
                    hint="name every piece of data before the star and every knob after it",
                )
            if known is not None and p.name not in known and not free:
                knob_like = p.default is not _KINDS.empty
                raise PluginError(
                    f"asks for '{p.name}', which {HOOKS[self.hook].key} is never given",
                    where=self._where,
                    allowed=", ".join(known) or "no data, only knobs after the star",
                    hint=nearest(p.name, known) or ("is it a knob? put it behind `*,`" if knob_like else ""),
                )
        for knob in self._knobs:
            if knob.annotation is _KINDS.empty:
                raise PluginError(
                    f"knob '{knob.name}' has no annotation",
                    where=self._where,
                    hint=f"write `{knob.name}: float = …`: the annotation is what recipes are checked against",
                )
        self.knobs.model_rebuild()

    def bind(self, settings: Mapping[str, Any], *, where: str = "") -> Bound:
        """Checks the knobs and makes the part ready to be called.

        Args:
            settings: Knob name → value, as the recipe gives them.
            where: Recipe path, for the error.

        Raises:
            RecipeError: An unknown knob or a value of the wrong type.
        """
        try:
            # As JSON, because a recipe has lists and text where a knob may want a tuple, a set or a path.
            model = self.knobs.model_validate_json(pydantic_core.to_json(dict(settings), fallback=repr))
        except pydantic.ValidationError as error:
            raise knob_error(error, self, where or self.full_name) from None
        knobs = {name: getattr(model, name) for name in self.knobs.model_fields}
        target: Any = self.target(**knobs) if inspect.isclass(self.target) else self.target
        return Bound(part=self, knobs=knobs, target=target)


@dataclass(frozen=True)
class Bound:
    """A part with its knobs turned. Called with a record, it takes from it what it named.

    Args:
        part: Where it comes from.
        knobs: Every knob with its value, defaults included.
        target: The function, or the instance that keeps the memory.
        beta: The coefficient in front of a penalty; 1 for everything else.
    """

    part: Part
    knobs: dict[str, Any]
    target: Callable[..., Any]
    beta: float = field(default=1.0, kw_only=True)

    def __call__(self, record: object) -> Any:
        """Calls the part with the fields of `record` that it names."""
        given = {name: getattr(record, name) for name in (*self.part.needs, *self.part.welcomes)}
        if given.get("log") is not None:
            write, key = given["log"], HOOKS[self.part.hook].key
            given["log"] = lambda name, x: write(f"{key}/{name}", x)
        return self.call(given)

    def call(self, given: Mapping[str, Any]) -> Any:
        """Calls the part with `given` data and its knobs (an instance has taken its knobs already)."""
        return self.target(**given) if self.stateful else self.target(**given, **self.knobs)

    @property
    def stateful(self) -> bool:
        """Whether the part is a class, made once per run."""
        return inspect.isclass(self.part.target)


def knob_error(error: pydantic.ValidationError, part: Part, where: str) -> RecipeError:
    """The first complaint of pydantic, as a sentence that names the place, the finding and the remedy."""
    first = error.errors()[0]
    knob = str(first["loc"][0])
    names = list(part.knobs.model_fields)
    if first["type"] == "extra_forbidden":
        return RecipeError(
            f"'{part.name}' has no knob '{knob}'",
            where=f"{where}.{knob}",
            allowed=", ".join(names) or "no knobs",
            hint=nearest(knob, names),
        )
    if first["type"] == "missing":
        return RecipeError(f"'{part.name}' needs the knob '{knob}'", where=f"{where}.{knob}")
    path = ".".join([where, *map(str, first["loc"])])
    return RecipeError(
        f"found {first['input']!r}: {first['msg'].lower()}", where=path, hint=text_number(first["input"])
    )


def text_number(value: object) -> str:
    """A hint for numbers that were written as text.

    >>> text_number("1e-6")
    'this is text that looks like a number: remove the quotes'
    >>> text_number("grpo")
    ''
    """
    try:
        float(value) if isinstance(value, str) else int("")
    except ValueError:
        return ""
    return "this is text that looks like a number: remove the quotes"
