"""Rewards, environments and model files that were written for other programs."""

from __future__ import annotations

from rlm_interop.foreign_rewards import OpenRlhf, Verl
from rlm_interop.gguf_model import gguf
from rlm_interop.verifiers_adapter import Rubric, verifiers
from rlm_plugins import hookimpl

rlm_environments = hookimpl(lambda: {"verifiers": verifiers})
rlm_rewards = hookimpl(lambda: {"verl": Verl, "openrlhf": OpenRlhf, "verifiers": Rubric})
rlm_models = hookimpl(lambda: {"gguf": gguf})
