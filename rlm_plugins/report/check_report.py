"""``rlm check``: everything a stage needs to run, as plain data and as text, without loading weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.recipe.checks.part_needs import TEACHER, provided_data, unavailable_data, warnings_of
from rlm_plugins.recipe.part_lookup import HOOK_OF
from rlm_plugins.recipe.ranges import Generation, generation
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.registry.protocols import columns_of
from rlm_plugins.report import objective_text
from rlm_plugins.report.objective_text import about
from rlm_plugins.report.text_layout import fitted, plain, report, short
from rlm_plugins.rollout.group_layout import POLICY, assign_sources, label
from rlm_plugins.stage import Stage
from rlm_plugins.trainer import options
from rlm_plugins.trainer.passes import VOCAB_STATISTICS


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
        number = steps / self.steps_per_epoch if self.steps_per_epoch else 1
        epochs = f": {number:.3g} epoch{'' if number == 1 else 's'} of {self.examples}" if self.steps_per_epoch else ""
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
    """Return the plan of a trainer's config and of ``trainer:`` of the recipe."""
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


def sources(rollouts: Sequence[Bound], num_generations: int) -> list[str]:
    """Return a line with the completions that each source contributes to a group; empty without sources."""
    if not rollouts:
        return []
    owned = assign_sources(rollouts, num_generations)
    names = [POLICY, *map(label, rollouts)]
    completions: dict[str, int] = {}
    for number, name in enumerate(names):
        completions[name] = completions.get(name, 0) + owned.count(number)
    shown = {POLICY: "the policy"}
    shares = " + ".join(f"{count} by {shown.get(name, name)}" for name, count in completions.items() if count)
    fallback = "; the policy generates what a source lacks" if set(completions) != {POLICY} else ""
    return [f"{num_generations} completions per prompt = {shares}{fallback}"]


def dynamic_sampling(filters: Sequence[Bound], completions: int) -> list[str]:
    """Return a line with the cost of dynamic sampling of so many completions; empty if no filter has `refill`."""
    refilling = [bound for bound in filters if bound.options.get("refill")]
    if not refilling:
        return []
    rounds = min(bound.options["refill"] for bound in refilling)
    names = " and ".join(bound.part.name for bound in refilling)
    cost = f"up to {rounds} sampling rounds, {completions} to {rounds * completions} completions"
    return [f"dynamic sampling: {cost}, until the batch is full of groups that {names} keeps"]


Entry = dict[str, Any]
LINES = 8
"""Lines of the brief report, if there is no warning."""

SUPPLIERS = {
    **dict.fromkeys(("prompts", "inputs"), "the data set"),
    "rewards": "the rewards, weighted, summed and shaped",
    "named_rewards": "the rewards",
    "token_rewards": "the rewards, spread over tokens by shapers",
    **dict.fromkeys(("turn_rewards", "observation_mask"), "the environment, turn by turn"),
    "dense_rewards": "the shapers with per-token rewards",
    "logprobs_of": "a forward pass of the policy over sequences that the part supplies",
    "generate": "the policy, from prompts and prefixes that the part supplies",
    "rewards_of": "the rewards, on completions that the part supplies",
    **dict.fromkeys(("advantages", "returns"), "the advantage part"),
    **dict.fromkeys(("log_ratio", "ratio"), "the importance part"),
    "loss": "policy loss, token weights and penalties",
    "old_logp": "the policy, before the update",
    **dict.fromkeys(VOCAB_STATISTICS, "the policy, before the update, from all its logits"),
    "expected_logp": "the policy, before the update, over whole groups",
    **dict.fromkeys(TEACHER, "the teacher, for each generation batch"),
    **dict.fromkeys(("logp", "entropy", "top_logp"), "the policy, now"),
    "divergence_of": "policy and teacher, now, in chunks of the vocabulary",
    "ref_logp": "the frozen reference, by one more forward pass over each generation batch",
    **dict.fromkeys(("rollout_logp", "rollout_weight"), "the inference engine"),
    "policy_version": "the inference engine, or the trainer",
    "values": "the critic",
    "old_values": "the critic, before the update",
    "sources": "the rollout sources, and the policy",
    "policy_drift": "the policy, now, on its last completion of each prompt",
    "prompt_index": "the prompt source",
    "step_batch": "the policy, by one more forward pass over the micro-batches of a step (if it has several)",
}
"""Field of the batch → its supplier; all other fields come from the trainer."""


def examine(stage: Stage, registry: Registry) -> Entry:
    """Return everything that ``rlm check`` reports on a stage.

    Returns:
        ``name``; ``model`` (origin and license); ``parts`` (slot, name, plugin, origin, file); ``data`` (name,
        needed_by, supplied_by); ``batch`` (lines of text); ``objective`` and ``legend`` (symbol, meaning, part);
        ``warnings`` (lines of text); what each section of a package reports under its key, as lines of text under
        ``sections``, and in one line under ``brief``.
    """
    args = options.arguments(stage)
    parts, trainer = list(_parts(stage, registry)), {**vars(args), **stage.settings}
    return {
        "name": stage.name,
        "model": str(stage.source.notice()) if stage.source.notice is not None else stage.source.origin,
        "parts": [_part(slot, part, registry) for slot, part in parts],
        "data": list(data_of_parts(stage, parts)),
        "batch": batch_lines(stage, args),
        **_objective(stage, dict(parts)["trainer"]),
        **_sections(stage, args),
        "warnings": [
            *(warnings_of(vars(stage.equation), trainer) if stage.equation is not None else ()),
            *(line for section in stage.sections.values() for line in section.warnings(stage)),
        ],
    }


def _sections(stage: Stage, args: Any) -> Entry:
    """Return what the sections of packages report, by their keys, as text under ``sections``, and in brief."""
    data: Entry = {}
    lines: dict[str, list[str]] = {}
    brief: dict[str, str] = {}
    for key, section in stage.sections.items():
        data[key] = section.check_data(stage, args)
        lines[key] = list(section.check_lines(data[key]))
        brief |= {key: text} if (text := section.check_brief(data[key])) else {}
    return {**data, "sections": lines, "brief": brief}


def _part(slot: str, part: Part, registry: Registry) -> Entry:
    origin = registry.plugins[part.plugin].origin
    return {"slot": slot, "name": part.name, "plugin": part.plugin, "origin": origin, "file": part.file}


def _objective(stage: Stage, trainer: Part) -> Entry:
    if stage.equation is None:
        return {"objective": f"that of its trainer: {about(trainer)}", "legend": []}
    rewards = " + ".join(f"{reward.weight:g} {reward.label}" for reward in stage.rewards)
    slots = vars(stage.equation)
    legend = [*objective_text.legend(slots), ("r", rewards, "")]
    return {"objective": objective_text.objective(slots), "legend": legend}


def _parts(stage: Stage, registry: Registry) -> Iterator[tuple[str, Part]]:
    """Yield recipe key and part of everything that the stage uses, in batch order."""
    algorithm = registry.find("rlm_algorithms", stage.body["algorithm"]["name"])
    trainer = registry.find("rlm_trainers", algorithm.target.trainer)
    used = [algorithm, trainer, *(bound.part for bound in stage.parts())]
    for key in ("environment", "model"):
        if name := (stage.body.get(key) or {}).get("name"):
            used.append(registry.find(HOOK_OF[key], name))
    for hook, info in HOOKS.items():
        yield from ((info.key, part) for part in used if part.hook == hook)


def data_of_parts(stage: Stage, parts: Sequence[tuple[str, Part]]) -> Iterator[dict[str, Any]]:
    """Yield the data that the parts name, with the parts and the supplier of each."""
    column = f"column of {stage.body['environment']['name']}"
    users_of: dict[tuple[str, str], list[str]] = {}
    for slot, part in parts:
        for name in _data_names(stage, slot, part):
            is_column = slot == "trainer" or (slot == "rewards" and name not in part.sample)
            supplier = column if is_column else SUPPLIERS.get(name, "the trainer")
            users_of.setdefault((name, supplier), []).append(part.name)
    for (name, supplier), part_names in users_of.items():
        yield {"name": name, "needed_by": list(dict.fromkeys(part_names)), "supplied_by": supplier}


def _data_names(stage: Stage, slot: str, part: Part) -> list[str]:
    """Return the data that a part is given in this stage."""
    if slot == "trainer":
        return list(columns_of(part.target))
    if slot == "rewards":
        return list(part.data)
    for_update = list(part.update_data)
    if stage.equation is None or slot not in vars(stage.equation):
        return for_update
    unavailable = unavailable_data(
        slot,
        has_importance=stage.equation.importance is not None,
        has_shapers=bool(stage.equation.shapers),
        provided=provided_data(
            [*stage.extensions.settings.values(), *stage.sections.values()], stage.settings, stage.rollouts
        ),
    )
    names = (*part.data, *for_update)
    return [name for name in names if name not in unavailable and name != "log"]


def render(stage: Entry) -> str:
    """Return an entry of :func:`examine` as text."""
    parts = ((p["slot"], p["name"], f"{p['plugin']} ({p['origin']})", short(p["file"])) for p in stage["parts"])
    data = ((d["name"], f"for {', '.join(d['needed_by'])}", f"from {d['supplied_by']}") for d in stage["data"])
    values = ((s["path"], plain(s["value"]), s["origin"]) for s in stage.get("settings", ()))
    sections = {
        "model": stage["model"],
        "parts": parts,
        "data": data,
        "batch": "\n".join(stage["batch"]),
        "objective": objective_text.with_legend(stage["objective"], stage["legend"]),
        **{key: "\n".join(lines) for key, lines in stage["sections"].items()},
        "settings": values,
        "warnings": "\n".join(stage["warnings"]),
    }
    return report(stage["name"], sections)


def summary(stages: Sequence[Entry], width: int) -> str:
    """Return all stages in at most eight lines of `width` columns (one each at least), the warnings and a verdict."""
    ranked = [list(_summary_rows(stage)) for stage in stages]
    code = [f"{entry['name']} ({entry['kind']})" for entry in stages[0].get("code", ())]
    ending = [("code", f"runs {', '.join(code)}")] if code else []
    warnings = [("warning", line) for stage in stages for line in stage["warnings"]]
    free = max(LINES - 1 - len(ending) - len(warnings), len(stages))
    by_rank = sorted((rank, number) for number, rows in enumerate(ranked) for rank in range(len(rows)))[:free]
    shown = {(number, rank) for rank, number in by_rank}
    rows = [row for n, part in enumerate(ranked) for rank, row in enumerate(part) if (n, rank) in shown] + ending
    margin = max(len(key) for key, _ in rows + warnings)
    lines = [f"{key:{margin}}  {text}" for key, text in rows]
    cut = [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]
    count = len(warnings)
    verdict = f"ok, with {count} warning{'s' * (count > 1)}" if count else "ok"
    more = "all parts, data, values and their origins: --full"
    return "\n".join([*cut, *(fitted(warnings, width) if warnings else ()), f"{verdict} ({more})"])


def _summary_rows(stage: Entry) -> Iterator[tuple[str, str]]:
    """Yield rows on a stage, most important first."""
    environment = ", ".join(part["name"] for part in stage["parts"] if part["slot"] == "environment")
    rewards = [meaning for symbol, meaning, _ in stage["legend"] if symbol == "r" and meaning]
    yield stage["name"], "; ".join([stage["model"], environment, *rewards])
    first, *_, last = stage["batch"] if len(stage["batch"]) > 1 else [*stage["batch"], ""]
    total = next((line for line in reversed(stage["batch"]) if "optimizer step" in line), last)
    yield "batch", "; ".join(dict.fromkeys([first.partition(" (")[0], total]))
    if stage["legend"]:
        yield "loss", stage["objective"].removeprefix("loss = ")
    yield from ((key, line) for key, line in stage["brief"].items())
