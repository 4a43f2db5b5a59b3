"""rlm-plugins: every symbol of the reinforcement-learning equation for reasoning models is a plugin.

Importing this package costs a few milliseconds: no torch, no TRL. A plugin needs one name from it::

    from rlm_plugins import hookimpl
"""

from pluggy import HookimplMarker

__all__ = ["__version__", "hookimpl"]
__version__ = "0.1.0"

hookimpl = HookimplMarker("rlm")
"""Decorator of a plugin's function that implements a hook of :mod:`rlm_plugins.hookspecs`."""
