"""Return values of environment and model parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlm_plugins.environment import Factory

if TYPE_CHECKING:
    import datasets
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

    from rlm_plugins.models.notice import WeightsNotice


@dataclass(frozen=True)
class Successes:
    """Completions that an earlier stage of the same run kept (`callbacks: [keep_successes]`).

    Args:
        stage: Name of that stage.
        per_prompt: Largest number of them per prompt, the latest first.
        at_least: Smallest reward of a kept completion.
    """

    stage: str
    per_prompt: int = 1
    at_least: float = 1.0


@dataclass
class EnvironmentSpec:
    """Training examples, held-out examples and, for multi-turn tasks, the environment or tools.

    Args:
        train: Examples with a ``prompt`` (text or chat messages) and any columns that rewards name.
        test: Held-out examples for ``rlm eval`` and the learning curve; empty: no evaluation.
        environment: Returns the environment of one episode (multi-turn): see :mod:`rlm_plugins.environment`.
        tools: Functions that the model may call in every episode, as TRL's ``tools``.
        successes: The training examples are those of an earlier stage that it answered, with its answers as the column
            ``demonstration``; they replace `train` when the stage starts.
    """

    train: Sequence[Mapping[str, Any]] | datasets.Dataset | datasets.IterableDataset
    test: Sequence[Mapping[str, Any]] | datasets.Dataset = ()
    environment: Factory | None = None
    tools: Sequence[Callable[..., Any]] = ()
    successes: Successes | None = None

    @property
    def multi_turn(self) -> bool:
        """True if a completion may have several turns."""
        return self.environment is not None or bool(self.tools)


@dataclass
class ModelSpec:
    """A model that can be described before it is loaded.

    Args:
        config: The transformers config (for the memory estimate).
        tokenizer: Loads the tokenizer.
        load: Loads or initializes the weights; called once per stage, after every check has passed.
        origin: Path or description of the weights.
        notice: Returns name, source and license of the weights for reports and model cards; None: they are
            new.
        processor: Loads the processor of a vision-language model; None: it has no images.
        runs_code: True if code of the checkpoint may be run (`trust_remote_code`).
    """

    config: PretrainedConfig
    tokenizer: Callable[[], PreTrainedTokenizerBase]
    load: Callable[[], PreTrainedModel]
    origin: str = ""
    notice: Callable[[], WeightsNotice] | None = None
    processor: Callable[[], ProcessorMixin] | None = None
    runs_code: bool = False

    def processing_class(self) -> PreTrainedTokenizerBase | ProcessorMixin:
        """Load what TRL calls the processing class: the processor of a vision-language model, else the tokenizer."""
        return self.tokenizer() if self.processor is None else self.processor()
