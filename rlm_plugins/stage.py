"""One stage of a run with everything resolved: what an engine is handed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.parts import Bound
from rlm_plugins.world import ModelSource, World

if TYPE_CHECKING:
    from rlm_plugins.step import Equation


@dataclass(frozen=True)
class Reward:
    """One entry of ``rewards:``.

    Args:
        label: The name it is logged under (``as:`` in the recipe, else the part's name).
        part: The reward part with its knobs.
        weight: Its coefficient in the sum.
    """

    label: str
    part: Bound
    weight: float = 1.0


@dataclass(frozen=True)
class Evaluation:
    """How a model is judged on held-out rows.

    Args:
        metric: Label of the reward that is the score.
        every: Steps between evaluations while training; 0: only before and after.
        rows: How many held-out rows at most; 0: all.
        batch_size: Rows generated at once.
    """

    metric: str
    every: int = 0
    rows: int = 0
    batch_size: int = 64


@dataclass
class Stage:
    """A stage, checked and bound; no weight is loaded yet.

    Args:
        name: ``01-sft``: position and name; also its folder in the run.
        body: The resolved recipe of the stage as plain data.
        engine: The instance of the ``rlm_trainers`` class that runs it.
        settings: ``trainer:`` of the recipe, checked against the engine's config class.
        world: The environment, built.
        source: Where the weights come from; for a later stage the machine replaces it by the last one's result.
        lora: Fields of ``peft.LoraConfig``, or None to train all weights.
        rewards: In the order of the recipe; empty for a supervised stage.
        evaluation: None when nothing can be evaluated (no rewards, or no held-out rows).
        equation: The parts of the algorithm row; None for an engine that has a loss of its own.
        sampler: Order of the problems; None: the engine's shuffle.
        rollouts: Who writes the rows; None: the policy.
        callbacks: Parts that make `TrainerCallback`s.
        folder: Where it writes; set when a run starts.
    """

    name: str
    body: Mapping[str, Any]
    engine: Any
    settings: Mapping[str, Any]
    world: World
    source: ModelSource
    lora: Mapping[str, Any] | None = None
    rewards: Sequence[Reward] = ()
    evaluation: Evaluation | None = None
    equation: Equation | None = None
    sampler: Bound | None = None
    rollouts: Bound | None = None
    callbacks: Sequence[Bound] = ()
    folder: Path = field(default_factory=lambda: Path("runs"))
