"""Who offers which part: plugins are found, their hooks called once, their names kept apart."""

from rlm_plugins.registry.registry import BUILTIN, Registry

__all__ = ["BUILTIN", "Registry"]
