"""TRL's config with groups of one completion, and with the settings of packages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import trl

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.registry.setting import Setting

_FIELDS = frozenset(f.name for f in dataclasses.fields(trl.GRPOConfig))


class _SingleGeneration(int):
    """1, which passes TRL's check `num_generations < 2`."""

    def __lt__(self, other: object) -> bool:
        return False


class GRPOConfig(trl.GRPOConfig):  # type: ignore[misc]
    """``trl.GRPOConfig`` in which `num_generations` may be 1, with the settings of packages (hook ``rlm_settings``).

    TRL requires groups because the advantage of GRPO is 0 in a singleton group. Here the advantage is a part, and a
    tracked or learned baseline needs no group.

    Args:
        *fields: Fields of ``trl.GRPOConfig``, in its order.
        added: Settings of packages, by name; None: those of installed packages that `values` names.
        **values: Fields of ``trl.GRPOConfig``, and settings.

    Raises:
        RecipeError: An unknown name; a value of another type, outside its range, or in conflict with another one.

    Attributes:
        added: Settings of packages that have a value.
    """

    def __init__(self, *fields: Any, added: Mapping[str, Setting] | None = None, **values: Any) -> None:
        names = [name for name in values if name not in _FIELDS]
        known = _installed(names) if added is None else added
        self.added: dict[str, Setting] = {}
        for name in names:
            if name not in known:
                hint = nearest(name, [*_FIELDS, *known])
                raise RecipeError(f"unknown field '{name}' of GRPOConfig", where=name, hint=hint)
            self.added[name] = known[name]
            known[name].check_value(name, values[name])
            setattr(self, name, values.pop(name))
        super().__init__(*fields, **values)
        for setting in self.added.values():
            if setting.check is not None:
                setting.check(self)

    def __post_init__(self) -> None:
        generations = int(self.num_generations)
        self.num_generations: int = _SingleGeneration(1) if generations == 1 else generations
        super().__post_init__()
        self.num_generations = generations

    def __getstate__(self) -> dict[str, Any]:
        """Return its state with the names of the settings: checkpoints pickle a config, and functions may be local."""
        return {**vars(self), "added": list(self.added)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, added=_installed(state["added"]))

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and settings as plain data."""
        return {**super().to_dict(), **{name: getattr(self, name) for name in self.added}}


def _installed(names: list[str]) -> dict[str, Setting]:
    """Return the settings of these names that a package or the core registers."""
    if not names:
        return {}
    from rlm_plugins.registry import Registry  # a config without such settings needs no registry

    registry = Registry()
    return {name: registry.find("rlm_settings", name).target for name in names if registry.offers("rlm_settings", name)}
