"""The batches of a stage as text: completions and their sources, micro-batches, optimizer steps, epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rlm_plugins.recipe.ranges import Generation, generation
from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.group_layout import POLICY, assign_sources, label
from rlm_plugins.stage import Stage


@dataclass(frozen=True)
class BatchPlan:
    """The work of a trainer, counted as transformers and TRL count it.

    Args:
        micro_batch: Sequences of one backward pass of one process.
        processes: Number of processes.
        accumulation: Micro-batches per process in one optimizer step.
        examples: Number of training examples; None for a stream of unknown length.
        epochs: ``num_train_epochs``.
        max_steps: ``max_steps``; 0 or less: as many as `epochs` take.
        generation: The generation batch; None for a supervised stage.
        splits: Micro-batches per process in one generation batch.
        iterations: Passes over each generation batch (``num_iterations``).
        stale: Optimizer steps by which the policy that generates is older than the one that is trained.
        generation_device: Device of the process that generates during the update; None: the trainer generates.
        target_kl: KL at which the remaining optimizer steps on a generation batch are skipped; None: never.
    """

    micro_batch: int
    processes: int
    accumulation: int
    examples: int | None
    epochs: float
    max_steps: int
    generation: Generation | None = None
    splits: int = 1
    iterations: int = 1
    stale: int = 0
    generation_device: str | None = None
    target_kl: float | None = None

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps of one epoch, without the incomplete generation batch at its end; None for a stream."""
        if self.examples is None:
            return None
        if self.generation is None:
            micro_batches = math.ceil(self.examples / (self.micro_batch * self.processes))
        else:
            micro_batches = self.examples // self.generation.prompts * self.splits * self.iterations
        return max(math.ceil(micro_batches / self.accumulation), 1)

    @property
    def steps(self) -> int | None:
        """Optimizer steps of the stage; None if unbounded."""
        if self.max_steps > 0:
            return self.max_steps
        return None if self.steps_per_epoch is None else math.ceil(self.epochs * self.steps_per_epoch)

    @property
    def steps_per_generation(self) -> Fraction:
        """Optimizer steps per generation batch."""
        return Fraction(self.splits * self.iterations, self.accumulation)

    def lines(self) -> list[str]:
        """Return the arithmetic as lines of text.

        >>> plan = Generation(16, 1, 4, 8, "gradient_accumulation_steps")
        >>> for line in BatchPlan(16, 1, 4, 1000, 1.0, 0, plan, splits=4).lines()[1:]: print(line)
        64 completions = 4 micro-batches of 16 = 1 optimizer step
        125 optimizer steps = 125 generation batches = 1000 prompts: 1 epoch of 1000
        """
        batches = self._supervised() if self.generation is None else self._generated(self.generation)
        return [*batches, self._total()]

    def _supervised(self) -> list[str]:
        examples = self.micro_batch * self.processes * self.accumulation
        across = f" × {_count(self.processes, 'process')}" if self.processes > 1 else ""
        micro_batches = f"{_count(self.accumulation, 'micro-batch')} of {self.micro_batch}{across}"
        return [f"{micro_batches} = {examples} examples per optimizer step"]

    def _generated(self, plan: Generation) -> list[str]:
        across = f" on each of {self.processes} processes" if self.processes > 1 else ""
        iterations = f", {self.iterations} iterations" if self.iterations > 1 else ""
        micro_batches = f"{_count(self.splits, 'micro-batch')} of {self.micro_batch}{across}{iterations}"
        fewer = f", or fewer (target_kl {self.target_kl:g})" if self.target_kl is not None else ""
        steps = _count(self.steps_per_generation, "optimizer step")
        behind = f"; sampled by the policy of {_count(self.stale, 'optimizer step')} before" if self.stale else ""
        behind += f", in a second process on {self.generation_device}" if self.generation_device else ""
        return [str(plan), f"{plan.completions} completions = {micro_batches} = {steps}{fewer}{behind}"]

    def _total(self) -> str:
        steps = self.steps
        if steps is None:
            return "unbounded: the training data is a stream; set `max_steps`"
        if self.generation is None:
            examples = _count(steps * self.micro_batch * self.processes * self.accumulation, "example")
        else:
            batches = math.ceil(steps / self.steps_per_generation)
            prompts = _count(batches * self.generation.prompts, "prompt")
            examples = f"{_count(batches, 'generation batch')} = {prompts}"
        epochs = "" if self.steps_per_epoch is None else f": {_epochs(steps / self.steps_per_epoch)} of {self.examples}"
        return f"{_count(steps, 'optimizer step')} = {examples}{epochs}"


def batch_lines(stage: Stage, args: Any) -> list[str]:
    """Return the lines of ``rlm check`` on batches, rollout sources and dynamic sampling."""
    examples = stage.environment_spec.train
    lines = batch_plan(args, len(examples) if hasattr(examples, "__len__") else None, stage.settings).lines()
    if stage.equation is None or not hasattr(args, "num_generations"):
        return lines
    rounds = dynamic_sampling(stage.equation.filters, args.generation_batch_size)
    return [*lines, *sources(stage.rollouts, args.num_generations), *rounds]


def batch_plan(args: Any, examples: int | None, settings: Mapping[str, Any]) -> BatchPlan:
    """Return the plan of a trainer's config.

    Args:
        args: A ``transformers.TrainingArguments``, or TRL's subclass.
        examples: Number of training examples, if it is known.
        settings: ``trainer:`` of the recipe.
    """
    exclusive = ("generation_batch_size", "steps_per_generation")  # TRL fills in the one that the recipe lacks
    plan = generation({**vars(args), **{key: settings.get(key) for key in exclusive}})
    return BatchPlan(
        micro_batch=args.per_device_train_batch_size,
        processes=args.world_size,
        accumulation=args.gradient_accumulation_steps,
        examples=examples,
        epochs=args.num_train_epochs,
        max_steps=args.max_steps,
        generation=plan,
        splits=args.steps_per_generation if plan else 1,
        iterations=args.num_iterations if plan else 1,
        stale=getattr(args, "stale", 0),
        generation_device=getattr(args, "generation_device", None),
        target_kl=getattr(args, "target_kl", None),
    )


def _count(number: float | Fraction, noun: str) -> str:
    """Return a count with its noun: ``1 optimizer step``, ``4 micro-batches``, ``1/4 optimizer step``."""
    plural = f"{noun}es" if noun.endswith(("ch", "s")) else f"{noun}s"
    return f"{number} {plural if number > 1 else noun}"


def _epochs(number: float) -> str:
    return f"{number:.3g} epoch{'' if number == 1 else 's'}"


def sources(rollouts: Sequence[Bound], num_generations: int) -> list[str]:
    """Return a line with the completions that each source contributes to a group; empty without sources."""
    if not rollouts:
        return []
    owned = assign_sources(rollouts, num_generations)
    names = [POLICY, *map(label, rollouts)]
    completions: dict[str, int] = {}
    for number, name in enumerate(names):
        completions[name] = completions.get(name, 0) + owned.count(number)
    shares = " + ".join(f"{count} by {_source_name(name)}" for name, count in completions.items() if count)
    fallback = "; the policy generates what a source lacks" if set(completions) != {POLICY} else ""
    return [f"{num_generations} completions per prompt = {shares}{fallback}"]


def _source_name(name: str) -> str:
    return "the policy" if name == POLICY else name


def dynamic_sampling(filters: Sequence[Bound], completions: int) -> list[str]:
    """Return a line with the cost of dynamic sampling; empty if no filter has `refill`.

    Args:
        filters: Filters of the algorithm.
        completions: Completions of one generation batch.
    """
    refilling = [bound for bound in filters if bound.options.get("refill")]
    if not refilling:
        return []
    rounds = min(bound.options["refill"] for bound in refilling)
    names = " and ".join(bound.part.name for bound in refilling)
    cost = f"up to {rounds} sampling rounds, {completions} to {rounds * completions} completions"
    return [f"dynamic sampling: {cost}, until the batch is full of groups that {names} keeps"]
