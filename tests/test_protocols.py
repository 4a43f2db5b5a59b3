"""Optional members of parts: declared in one file, and a misspelled one is an error."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.errors import PluginError
from rlm_plugins.registry import Registry, protocols
from rlm_plugins.registry.part import Part
from rlm_plugins.registry.protocols import MEMBERS, capabilities

REGISTRY = Registry()


def reward_with(member: str) -> Part:
    """Return a reward class with one additional method."""

    class Extra:
        def __call__(self, completions):  # type: ignore[no-untyped-def]
            return [0.0 for _ in completions]

    setattr(Extra, member, lambda self, **knobs: None)
    return Part("rlm_rewards", "extra", "guest", Extra)


def filter_with(member: str, hook: str = "rlm_filters") -> Part:
    """Return a filter function with one additional attribute."""

    def extra(rewards):  # type: ignore[no-untyped-def]
        return rewards > 0

    setattr(extra, member, lambda config: None)
    return Part(hook, "extra", "guest", extra)


MISSPELLED = {
    "chck": "check",
    "setupp": "setup",
    "valdate": "validate",
    "validates": "validate",
    "memorybytes": "memory_bytes",
    "load_sate_dict": "load_state_dict",
    "evalute": "evaluate",
}


@pytest.mark.parametrize(("name", "meant"), MISSPELLED.items())
@pytest.mark.parametrize("make", [reward_with, filter_with])
def test_a_misspelled_member_is_an_error(name: str, meant: str, make: Any) -> None:
    with pytest.raises(PluginError, match=rf"has a member '{name}', which is never used(.|\n)*did you mean `{meant}`"):
        make(name).check()


def test_every_optional_member_belongs_to_a_protocol_and_every_protocol_has_a_sentence() -> None:
    declared = {
        value for value in vars(protocols).values() if inspect.isclass(value) and hasattr(value, "_is_protocol")
    }
    assert {kind for kind in declared if kind.__module__ == protocols.__name__} == set(MEMBERS.values())
    for name, protocol in MEMBERS.items():
        assert name in {**vars(protocol), **protocol.__annotations__}
        assert (protocol.__doc__ or "").partition("\n")[0].endswith((".", ":")), protocol


FOUND = {
    ("rlm_samplers", "curriculum"): {"update", "state_dict", "load_state_dict"},
    ("rlm_generators", "fast"): {"dry_run"},
    ("rlm_filters", "keep_k"): {"validate"},
    ("rlm_rewards", "reward_model"): {"check", "setup", "memory_bytes", "produces"},
    ("rlm_trainers", "reward_model"): {
        "config_class",
        "build",
        "complete",
        "columns",
        "prepare",
        "produces",
        "metrics",
        "evaluate",
        "refused",
    },
}


@pytest.mark.parametrize(("hook", "name"), FOUND)
def test_capabilities_of_a_part_are_explained(hook: str, name: str) -> None:
    part = REGISTRY.find(hook, name)
    assert {member for member, _ in capabilities(part)} == FOUND[hook, name]
    assert all(sentence for _, sentence in capabilities(part))
    assert hook in HOOKS
