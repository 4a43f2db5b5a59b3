"""Signatures as schemas: valid parts, and the knobs that a recipe may set."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from rlm_plugins.equation.batch import names
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.errors import PluginError, RecipeError, text_number
from rlm_plugins.registry.part import Part


class Colour(enum.Enum):
    red = "red"


Mode = Literal["group", "batch"]


def part(target: Any, hook: str = "rlm_advantages", name: str = "mine") -> Part:
    return Part(hook, name, "guest", target)


def knob(annotation: Any, default: Any = ...) -> Part:
    """Return a part with one knob, `k`, of this type."""

    def target(rewards: Any, *, k: Any = None) -> Any:
        return k

    target.__annotations__["k"] = annotation
    assert target.__kwdefaults__ is not None
    target.__kwdefaults__ = {} if default is ... else {"k": default}
    return part(target)


def test_positional_arguments_are_data_and_keywords_knobs() -> None:
    def target(rewards: Any, group: Any, ratio: Any = None, *, eps: float = 1e-4, scale: Mode) -> None: ...

    found = part(target)
    assert found.required_data == ("rewards", "group")
    assert found.optional_data == ("ratio",)
    assert not found.takes_kwargs
    assert list(found.knobs.model_fields) == ["eps", "scale"]
    assert found.full_name == "guest/mine"
    assert found.file == __file__


def test_class_declares_data_in_call_and_update() -> None:
    class Running:
        def __init__(self, *, decay: float = 0.9) -> None:
            self.decay, self.mean = decay, 0.0

        def __call__(self, rewards: float, values: Any = None) -> float:
            self.mean = self.decay * self.mean + (1 - self.decay) * rewards
            return self.mean

    found = part(Running)
    found.check()
    assert (found.required_data, found.optional_data, list(found.knobs.model_fields)) == (
        ("rewards",),
        ("values",),
        ["decay"],
    )
    one, other = found.bind({"decay": 0.5}), found.bind({})
    assert one.stateful
    assert isinstance(one.target, Running)
    assert [one.call({"rewards": 1.0}), one.call({"rewards": 1.0})] == [0.5, 0.75], "it remembers"
    assert other.target.mean == 0.0, "and shares nothing with the next"
    assert other.knobs == {"decay": 0.9}
    assert found.file == __file__


@pytest.mark.parametrize("kind", ["partial", "object", "method", "lambda", "decorated"])
def test_other_callables_are_parts(kind: str) -> None:
    class Thing:
        def __call__(self, rewards: Any, *, k: Mode = "group") -> Any:
            return (rewards, k)

        def method(self, rewards: Any, *, k: Mode = "group") -> Any:
            return (rewards, k)

    def plain(rewards: Any, *, k: Mode = "group") -> Any:
        return (rewards, k)

    @functools.wraps(plain)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    lambda_ = lambda rewards: (rewards, "group")  # noqa: E731
    targets = {"partial": functools.partial(plain, k="group"), "object": Thing(), "method": Thing().method}
    found = part({**targets, "lambda": lambda_, "decorated": decorated}[kind])
    found.check()
    assert found.bind({}).call({"rewards": 1}) == (1, "group")
    assert found.file == __file__
    if kind != "lambda":
        assert found.bind({"k": "batch"}).call({"rewards": 1}) == (1, "batch")


def test_call_passes_only_requested_data() -> None:
    def target(rewards: Any, values: Any = None, *, scale: float = 2.0) -> Any:
        return rewards * scale, values

    record = SimpleNamespace(rewards=3.0, values=None, group="never touched")
    assert part(target).bind({"scale": 1}).__call__(record) == (3.0, None)


def test_logged_values_are_prefixed_with_the_recipe_key() -> None:
    def target(ratio: Any, log: Any = None) -> None:
        if log is not None:
            log("clipped", ratio)

    written: list[Any] = []
    bound = part(target, "rlm_policy_losses").bind({})
    bound(SimpleNamespace(ratio=1.5, log=lambda *entry: written.append(entry)))
    bound(SimpleNamespace(ratio=1.5, log=None))
    assert written == [("policy_loss/clipped", 1.5)]


class HalfMemory:
    """Class with `state_dict` but without `load_state_dict`."""

    def __call__(self, rewards: Any) -> None: ...

    def state_dict(self) -> dict[str, float]: ...


class NoCall:
    pass


class Positional:
    def __init__(self, decay: float = 0.9) -> None: ...

    def __call__(self, rewards: Any) -> None: ...


class Swallows:
    def __init__(self, **knobs: Any) -> None: ...

    def __call__(self, rewards: Any) -> None: ...


class KnobInCall:
    def __call__(self, rewards: Any, *, decay: float = 0.9) -> None: ...


def unannotated(rewards: Any, *, k=1): ...  # type: ignore[no-untyped-def]


def unreadable(rewards: Any, *, k: flaot = 1.0) -> None: ...  # type: ignore[name-defined]  # noqa: F821


async def later(rewards: Any) -> None: ...


WRONG: dict[str, tuple[Any, list[str]]] = {
    "no function": (3, ["is of type int", "a function or a class"]),
    "unknown data": (lambda reward: 0, ["requires 'reward', which advantage never gets", "did you mean 'rewards'?"]),
    "data of the other room": (lambda logp: 0, ["requires 'logp'", "allowed: group, mask"]),
    "a knob before the star": (lambda rewards, eps=1e-4: 0, ["requires 'eps'", "`*, eps: float = 0.0001`"]),
    "data with a default": (lambda rewards, group=3: 0, ["gives 'group' a default", "`*, group: int = 3`"]),
    "star args": (lambda *args: 0, ["takes '*args'", "name every piece of data"]),
    "star kwargs": (lambda rewards, **kwargs: 0, ["takes '**kwargs'"]),
    "knob without annotation": (unannotated, ["knob 'k' has no annotation", "`k: int = 1`"]),
    "annotation that cannot be read": (unreadable, ["knob 'k' is annotated 'flaot'", "did you mean 'float'?"]),
    "annotation that is no type": (knob(3).target, ["its knobs have no schema"]),
    "constraint that does not fit": (knob(Annotated[int, Field(min_length=2)], 3).target,
        ["the constraint of a knob does not fit its type"]),
    "default of another type": (knob(int, 0.5).target,
        ["expected a whole number, got the number 0.5", "a whole number"]),
    "default infinite": (knob(float, math.inf).target, ["expected a finite number, got the number inf", "finite"]),
    "class with half a memory": (HalfMemory, ["the class has state_dict without its counterpart"]),
    "class without call": (NoCall, ["the class has no __call__"]),
    "class with positional knobs": (Positional, ["__init__ takes 'decay: ", "before the star"]),
    "class with knobs in call": (KnobInCall, ["__call__ takes 'decay: ", "those of its __init__"]),
    "asynchronous": (later, ["is asynchronous, which only rewards may be"]),
    "no signature": (max, ["has no readable signature"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_part_is_an_error_that_names_it(kind: str) -> None:
    target, expected = WRONG[kind]
    with pytest.raises(PluginError) as caught:
        part(target).check()
    for text in [*expected, "plugin 'guest', rlm_advantages 'mine' ("]:
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("hook", "name"),
    [("rlm_rewards", "weight"), ("rlm_penalties", "beta"), ("rlm_models", "lora"), ("rlm_filters", "name")],
)
def test_knobs_hidden_by_recipe_keys_are_rejected(hook: str, name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def target(*, {name}: float = 1.0): ...", namespace)
    with pytest.raises(PluginError, match=f"a knob is called '{name}'"):
        part(namespace["target"], hook).check()


def test_only_rewards_may_be_asynchronous_or_take_everything() -> None:
    async def slow(completions: Any, *, k: int = 1) -> None: ...

    def written_for_trl(prompts: Any, completions: Any, solution: Any = "none", **kwargs: Any) -> None: ...

    part(slow, "rlm_rewards").check()
    found = part(written_for_trl, "rlm_rewards")
    found.check()
    assert found.takes_kwargs
    assert found.required_data == ("prompts", "completions")


def test_a_reward_may_name_any_column_but_keeps_its_knobs_behind_the_star() -> None:
    part(lambda completions, any_column_of_my_data: 0, "rlm_rewards").check()
    with pytest.raises(PluginError, match="gives 'limit' a default"):
        part(lambda completions, limit=200: 0, "rlm_rewards").check()


OBJECTS = "rlm_algorithms rlm_trainers rlm_engines rlm_observers rlm_settings rlm_sections rlm_commands"
"""Hooks whose entries are classes or objects, not functions of data."""


@pytest.mark.parametrize("hook", [h for h in HOOKS if HOOKS[h].data is not None and h not in OBJECTS.split()])
def test_every_batch_name_of_a_phase_is_accepted_and_no_other(hook: str) -> None:
    data = HOOKS[hook].data
    known = names(data) if isinstance(data, str) else list(data or ())
    namespace: dict[str, Any] = {}
    apart = ("count", "draw") if hook == "rlm_samplers" else ()  # called before every generation: no epoch
    exec(f"def every({', '.join(w for w in known if w not in apart)}): ...\ndef other(never_heard_of): ...", namespace)
    part(namespace["every"], hook).check()
    with pytest.raises(PluginError, match="never_heard_of"):
        part(namespace["other"], hook).check()


@pytest.mark.parametrize(
    ("words", "right"),
    [("size, count", True), ("size, seed, count, draw", True), ("size, count, epoch", False), ("size, draw", False)],
)
def test_sampler_is_called_per_epoch_or_per_generation(words: str, right: bool) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def sampler({words}): ...", namespace)
    with nullcontext() if right else pytest.raises(PluginError, match=r"(?s)requires .*`epoch`"):
        part(namespace["sampler"], "rlm_samplers").check()


class Learner:
    """Part with an `update`."""

    def __call__(self, rewards: Any) -> Any:
        return rewards

    def update(self, prompt_index: Any, named_rewards: Any, ref_logp: Any = None) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def test_update_declares_scoring_data() -> None:
    bound = part(Learner, "rlm_advantages")
    bound.check()
    assert bound.update_required_data == ("prompt_index", "named_rewards")
    assert bound.update_optional_data == ("ref_logp",)
    assert part(lambda rewards: rewards, "rlm_advantages").update_required_data == ()


def test_part_with_update_requires_state_dict() -> None:
    class Forgetful:
        def __call__(self, rewards: Any) -> Any: ...
        def update(self, rewards: Any) -> None: ...

    with pytest.raises(PluginError, match=r"(?s)would be lost in a resumed run.*define state_dict"):
        part(Forgetful, "rlm_advantages").check()


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ("self, rewrads", "its `update` requires 'rewrads'.*rewards"),
        ("self, logp", "its `update` requires 'logp'"),
        ("self, rewards=3", "its `update` gives 'rewards' a default"),
        ("self, **anything", "its `update` takes"),
    ],
)
def test_update_with_unknown_data_is_rejected(update: str, words: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"class Part:\n    def __call__(self, ratio): ...\n    def update({update}): ...", namespace)
    with pytest.raises(PluginError, match=f"(?s){words}"):
        part(namespace["Part"], "rlm_policy_losses").check()


RIGHT: list[tuple[Any, Any, Any]] = [
    (float, 1, 1.0),
    (float, -0.5, -0.5),
    (int, 3, 3),
    (bool, True, True),
    (str, "1e-6", "1e-6"),
    (float | None, None, None),
    (Mode, "batch", "batch"),
    (list[str], ["a"], ["a"]),
    (dict[str, float], {"a": 1}, {"a": 1.0}),
    (dict[int, str], {1: "a"}, {1: "a"}),
    (tuple[float, float], [0.9, 1], (0.9, 1.0)),
    (set[str], ["a", "a"], {"a"}),
    (Sequence[int], [1, 2], [1, 2]),
    (Path, "a/b", Path("a/b")),
    (Colour, "red", Colour.red),
    (int | str, "x", "x"),
    (Annotated[int, Field(ge=1)], 1, 1),
    (Any, {"a": [1, None]}, {"a": [1, None]}),
]


@pytest.mark.parametrize(("annotation", "given", "expected"), RIGHT)
def test_a_right_value(annotation: Any, given: Any, expected: Any) -> None:
    value = knob(annotation).bind({"k": given}).knobs["k"]
    assert value == expected
    assert type(value) is type(expected)


class Count(BaseModel):
    """Knob with keys."""

    model_config = ConfigDict(extra="forbid")
    every: Annotated[int, Field(ge=1)]


def nowhere(text: str) -> str:
    raise PydanticCustomError("address", "an address ('{said}' is no address)", {"said": text})


REFUSED: list[tuple[Any, Any, str, str]] = [
    (float, "1e-6", "k: expected a number, got the string '1e-6'", "remove the quotes"),
    (float, True, "k: expected a number, got true", ""),
    (int, 1.0, "k: expected a whole number, got the number 1.0", ""),
    (bool, 1, "k: expected true or false, got the number 1", ""),
    (Mode, "bach", "k: expected 'group' or 'batch', got the string 'bach'", "did you mean 'batch'?"),
    (list[int], [1, "a"], "k[1]: expected a whole number, got the string 'a'", ""),
    (list[int], {"name": 1}, "k: expected a list, got a mapping", "write a list"),
    (dict[str, list[float]], {"a": [1, "x"]}, "k.a[1]: expected a number, got the string 'x'", ""),
    (tuple[float, float], [1, 2, 3], "k: expected at most 2 entries, got a list", ""),
    (Annotated[float, Field(gt=0, lt=1)], 2, "k: expected less than 1, got the number 2", ""),
    (Annotated[float, Field(ge=0.5)], 0, "k: expected 0.5 or more, got the number 0", ""),
    (Mode | Count, {"every": 0}, "k.every: expected 1 or more, got the number 0", ""),
    (Mode | Count, "grup", "k: expected 'group' or 'batch' or a mapping, got the string 'grup'",
        "did you mean 'group'?"),
    (Mode | Annotated[str, AfterValidator(nowhere)], "elsewhere",
        "k: expected 'group' or 'batch' or an address ('elsewhere' is no address), got the string 'elsewhere'", ""),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "given", "problem", "remedy"), REFUSED)
def test_a_wrong_value(annotation: Any, given: Any, problem: str, remedy: str) -> None:
    with pytest.raises(RecipeError) as caught:
        knob(annotation).bind({"k": given}, where="algorithm.advantage")
    assert str(caught.value).startswith(f"algorithm.advantage.{problem}")
    assert remedy in caught.value.hint


def test_unknown_missing_and_no_knobs() -> None:
    def two(rewards: Any, *, epsilon: float, cap: int = 1) -> None: ...

    with pytest.raises(RecipeError) as caught:
        part(two).bind({"epsilonn": 0.2, "epsilon": 0.1}, where="here")
    assert str(caught.value).splitlines() == [
        "here.epsilonn: unknown knob 'epsilonn' of 'mine'",
        "  allowed: epsilon, cap",
        "  hint: did you mean 'epsilon'?",
    ]
    with pytest.raises(RecipeError, match=r"^here.epsilon: 'mine' requires the knob 'epsilon'$"):
        part(two).bind({}, where="here")
    with pytest.raises(RecipeError, match="unknown knob 'rewards'"):
        part(two).bind({"epsilon": 1, "rewards": 1})
    with pytest.raises(RecipeError, match="allowed: no knobs"):
        part(lambda rewards: 0).bind({"x": 1})


def test_class_may_reject_its_knobs() -> None:
    class Refuses:
        def __init__(self, *, low: int = 1, high: int = 0) -> None:
            if low > high:
                raise ValueError("low must not exceed high")

        def __call__(self, rewards: Any) -> None: ...

    with pytest.raises(
        RecipeError, match="here: 'mine' refuses its knobs: ValueError: low must not exceed high"
    ) as caught:
        part(Refuses).bind({}, where="here")
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("text", "is_number"), [("1e-6", True), ("3", True), ("nan", True), ("grpo", False), ("", False)]
)
def test_text_number(text: str, is_number: bool) -> None:
    assert bool(text_number(text)) is is_number
    assert text_number(3) == ""
