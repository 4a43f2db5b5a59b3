"""What an environment and a model part hand to the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlm_plugins.environment import Factory

if TYPE_CHECKING:
    import datasets
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


@dataclass
class EnvironmentSpec:
    """Problems to learn from, problems to be judged on, and how the world answers.

    Args:
        train: Rows with a ``prompt`` (text or chat messages) and any columns the rewards name.
        test: Held-out rows for ``rlm eval`` and the learning curve; empty: no evaluation.
        environment: Makes what a row is played with, where the world answers: see :mod:`rlm_plugins.environment`.
        tools: Functions that the model may call on every row, as TRL's ``tools``.
    """

    train: Sequence[Mapping[str, Any]] | datasets.Dataset | datasets.IterableDataset
    test: Sequence[Mapping[str, Any]] | datasets.Dataset = ()
    environment: Factory | None = None
    tools: Sequence[Callable[..., Any]] = ()

    @property
    def multi_turn(self) -> bool:
        """Whether a row has several turns."""
        return self.environment is not None or bool(self.tools)


@dataclass
class ModelSpec:
    """A model that can be described before it is loaded.

    Args:
        config: Its transformers config (for the memory estimate).
        tokenizer: Loads its tokenizer.
        load: Loads or makes its weights; called once per stage, after every check has passed.
        origin: Where its weights come from, for the run's manifest.
    """

    config: PretrainedConfig
    tokenizer: Callable[[], PreTrainedTokenizerBase]
    load: Callable[[], PreTrainedModel]
    origin: str = ""
