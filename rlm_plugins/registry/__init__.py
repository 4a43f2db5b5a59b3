"""Registry of parts: discovery of plugins, names, validation, and binding of knobs."""

from rlm_plugins.registry.registry import BUILTIN, Registry

__all__ = ["BUILTIN", "Registry"]
