"""Capsules: one training step as data, and its replay without the model."""

from rlm_plugins.capsule.storage import Capsule, find_capsule, read_capsule, write_capsule

__all__ = ["Capsule", "find_capsule", "read_capsule", "write_capsule"]
