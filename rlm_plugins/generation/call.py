"""Former name; removed once the trainer uses the interface."""

from rlm_plugins.generation.generator_call import generate as written

__all__ = ["written"]
