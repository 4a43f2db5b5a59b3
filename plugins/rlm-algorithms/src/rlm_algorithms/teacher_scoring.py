"""Scores of the teachers for each generation batch, and the policy's at the same tokens."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback

from rlm_algorithms.teacher import GROUP_BEST, ON_POLICY_BASE, Teacher, is_adapter
from rlm_algorithms.teacher_sources import Checkpoint, Ids, Part, SameBase, trunk_of
from rlm_algorithms.vocabulary import likeliest, logprobs_at, vocabulary_divergence
from rlm_plugins.durable.files import make_folder, whole
from rlm_plugins.errors import RlmError
from rlm_plugins.evaluation.completions import unpadded
from rlm_plugins.rewards.columns import text_of
from rlm_plugins.rollout.dynamic_sampling import pad_to_width
from rlm_plugins.trainer.observer import StepObserver
from rlm_plugins.trainer.passes import prompt_completion

logger = logging.getLogger(__name__)
Columns = dict[str, torch.Tensor]
PROBES = 8
"""Sequences on which `same_as` compares two teachers."""
TOLERANCE = 0.05
"""Mean difference in nats, per token, that `same_as` allows."""


class TeacherScoring(StepObserver, TrainerCallback):  # type: ignore[misc]
    """Scores the completions of this process after each generation.

    Args:
        teacher: The section of the recipe.
        folder: Folder for the scores of teachers that do not change, so that a run resumes without them.
        held_out: Examples on which a teacher is compared with the policy before the first step.
    """

    name = "teacher"

    def __init__(
        self, teacher: Teacher, folder: Path | None = None, held_out: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self._teacher, self._folder, self._held_out = teacher, folder, held_out
        self._sources: list[Any] = []
        self._examples: Sequence[Mapping[str, Any]] = ()
        self._texts: Sequence[Any] = ()
        self._stored: list[Path] = []
        self._before: list[Path] = []
        self._states: torch.Tensor | None = None
        self._unchecked: set[int] = set()

    def attach(self, trainer: Any) -> None:
        """Create the teachers beside the policy."""
        self._trainer = trainer
        self._sources = [self._source(one, one.model, f"teacher{n}") for n, one in enumerate(self._teacher.teachers())]
        self._unchecked = {n for n, one in enumerate(self._teacher.teachers()) if one.same_as}
        if self._teacher.top:
            context = trainer.components.context
            context.refuse_sharding("policy and teacher cannot be compared at several tokens", "teacher.top")
            self._policy = SameBase(trainer, "live", "")
            trunk_of(self._policy.policy).register_forward_hook(self._capture)

    def _source(self, teacher: Teacher, model: str, name: str) -> Any:
        if teacher.part is not None and model == teacher.model:
            return Part(self._trainer, teacher.part)
        if model in ON_POLICY_BASE or is_adapter(model):
            return SameBase(self._trainer, model, name, teacher.ema)
        return Checkpoint(self._trainer, model)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Log a warning for a teacher whose greedy answers to held-out prompts earn no more than the policy's."""
        if state.global_step or not self._held_out:
            return
        tools = self._trainer.components.scoring.tools
        for one, source in zip(self._teacher.teachers(), self._sources, strict=True):
            value = next((x for x, other in self._teacher.of.items() if other is one), None)
            examples = [x for x in self._held_out if value is None or str(x.get(str(self._teacher.by))) == value]
            readable = all(name in example for example in examples for name in one.own_columns)
            if not examples or not readable or one.reads_group or not hasattr(source, "generate"):
                continue
            prompts = [example["prompt"] for example in examples]
            answers = source.generate([_prompt(one, x, "") for x in examples]), tools.generate(prompts, greedy=True)
            score, of_policy = (
                torch.tensor(tools.reward_table(prompts, x, examples)).nanmean().item() for x in answers
            )
            if not score > of_policy and self._trainer.accelerator.is_main_process:
                result = f"earn {score:.3g}, the policy's {of_policy:.3g}: it may have nothing to teach"
                logger.warning("teacher %s: its answers to %d held-out prompts %s", one.model, len(prompts), result)
        self._evict()

    def _evict(self) -> None:
        """Free the weights of models that are not resident."""
        for one, source in zip(self._teacher.teachers(), self._sources, strict=True):
            if not one.resident and isinstance(source, Checkpoint):
                source.release()

    # -- a generation batch

    def completions(self, inputs: Sequence[Mapping[str, Any]], view: Any) -> None:
        """Keep the examples and the texts of this process for the teacher's prompts."""
        self._examples, self._texts = inputs, view.completions

    def sampled(self, out: Mapping[str, torch.Tensor]) -> Columns:
        """Return `teacher_logp` (B, T), `has_teacher` (B,) and, by `top`, further columns."""
        completion_ids = unpadded(out["completion_ids"], out["completion_mask"])
        prompt_ids = unpadded(out["prompt_ids"], out["prompt_mask"])
        count, width = out["completion_ids"].shape
        has_teacher = torch.zeros(count, dtype=torch.bool, device=out["completion_ids"].device)
        result: Columns = {}
        for number, (one, rows) in enumerate(zip(self._teacher.teachers(), self._rows(), strict=True)):
            prompts = self._prompts(one, rows)
            rows = [row for row in rows if row in prompts]
            if one.prompt is not None and rows:
                own = self._trainer.prompt_ids([prompts[row] for row in rows])
                for row, ids in zip(rows, own, strict=True):
                    prompt_ids[row] = ids
            if rows:
                has_teacher[rows] = True
                scores = self._scores(number, [prompt_ids[row] for row in rows], [completion_ids[row] for row in rows])
                for name, x in scores.items():
                    x = pad_to_width(x[:, :width], width)
                    result.setdefault(name, x.new_zeros(count, *x.shape[1:]))[rows] = x
        self._evict()
        result = result or {"teacher_logp": torch.zeros(count, width, device=has_teacher.device)}
        logp = result["teacher_logp"] = result["teacher_logp"].where(out["completion_mask"].bool(), 0.0)
        if not logp.isfinite().all() or (logp > 1e-4).any():
            problem = "a teacher returned log-probabilities that are not finite or above 0"
            raise RlmError(problem, where="teacher", hint="check its weights, and that its tokenizer is the policy's")
        return {**result, "has_teacher": has_teacher}

    def _rows(self) -> list[list[int]]:
        """Return the completions of each teacher."""
        rows = list(range(len(self._examples)))
        if not self._teacher.of:
            return [rows]
        return [[row for row in rows if str(self._examples[row][str(self._teacher.by)]) == x] for x in self._teacher.of]

    def _scores(self, number: int, prompt_ids: Ids, completion_ids: Ids) -> Columns:
        """Return the columns of some completions, from the folder if they were scored before."""
        one, source = self._teacher.teachers()[number], self._sources[number]
        is_fixed = one.model not in ("base", "live", "ema") and self._teacher.top != "all"
        if not is_fixed or self._folder is None:
            return self._computed(source, prompt_ids, completion_ids)
        content = [
            one.model,
            _version(one.model),
            self._teacher.top,
            self._trainer.temperature,
            list(prompt_ids),
            list(completion_ids),
        ]
        path = self._folder / f"{hashlib.sha256(json.dumps(content).encode()).hexdigest()}.pt"
        self._stored.append(path)
        if path.is_file():
            device = self._trainer.accelerator.device
            stored: Columns = torch.load(path, weights_only=True, map_location=device)
            return stored
        columns = self._computed(source, prompt_ids, completion_ids)
        if number in self._unchecked:
            self._check_same(one, prompt_ids[:PROBES], completion_ids[:PROBES], columns["teacher_logp"])
            self._unchecked.remove(number)
        make_folder(self._folder)
        with whole(path) as staged:
            torch.save({name: x.cpu() for name, x in columns.items()}, staged)
        return columns

    def _computed(self, source: Any, prompt_ids: Ids, completion_ids: Ids) -> Columns:
        """Return the columns of some completions."""
        if not self._teacher.top:
            return {"teacher_logp": source.logp(prompt_ids, completion_ids)}
        size, width, chunks = self._trainer.args.per_device_train_batch_size, max(map(len, completion_ids)), []
        for first in range(0, len(prompt_ids), size):
            rows = slice(first, first + size)
            columns = self._at_top(source, prompt_ids[rows], completion_ids[rows])
            chunks.append({name: pad_to_width(x, width) for name, x in columns.items()})
        return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}

    @torch.no_grad()
    def _at_top(self, source: Any, prompt_ids: Ids, completion_ids: Ids) -> Columns:
        """Return the log-probs of the sampled tokens and of the likeliest; of `top: all` the hidden states."""
        hidden, temperature = source.states(prompt_ids, completion_ids), self._trainer.temperature
        tokens = torch.zeros(*hidden.shape[:2], 1, dtype=torch.long, device=hidden.device)
        for row, ids in enumerate(completion_ids):
            tokens[row, : len(ids), 0] = torch.tensor(ids)
        columns = {"teacher_logp": logprobs_at(hidden, source.head, tokens, temperature).squeeze(-1)}
        if self._teacher.top == "all":
            return {**columns, "teacher_states": hidden}
        of_policy = self._teacher.support == "policy"
        chooser = self._policy if of_policy else source
        states = chooser.states(prompt_ids, completion_ids) if of_policy else hidden
        top_ids = likeliest(states, chooser.head, int(self._teacher.top))
        return {
            **columns,
            "teacher_top_ids": top_ids,
            "teacher_top_logp": logprobs_at(hidden, source.head, top_ids, temperature),
        }

    def _check_same(self, one: Teacher, prompt_ids: Ids, completion_ids: Ids, logp: torch.Tensor) -> None:
        """Raise RlmError if local weights give other log-probs than the teacher."""
        local = self._source(one, str(one.same_as), "same_as").logp(prompt_ids, completion_ids)
        gaps = [(local[n, : len(ids)] - logp[n, : len(ids)]).abs() for n, ids in enumerate(completion_ids)]
        gap = torch.cat(gaps).mean().item()
        if not gap <= TOLERANCE:
            problem = f"the teacher {one.model} differs from {one.same_as} by {gap:.2g} nats per token"
            raise RlmError(problem, where="teacher.same_as", hint="it serves other weights, or another tokenizer")

    # -- the policy in the loss phase

    def _capture(self, module: Any, inputs: Any, output: Any) -> None:
        self._states = output.last_hidden_state

    def portion(self, inputs: Mapping[str, Any], batch: Any, *, has_old_logp: bool) -> None:
        """Add the policy's log-probs at the teacher's tokens, or the divergence, from the states of this pass."""
        states, self._states = self._states, None
        needed = [x for x in ("top_logp", "divergence_of") if self._trainer.equation.requires(x)]
        if not needed or not self._teacher.top:
            return
        temperature, head = self._trainer.temperature, self._policy.head
        assert states is not None  # of the pass that has just run
        passes = self._trainer.components.passes
        states = passes.of_hidden(lambda x: x, states, prompt_completion(dict(inputs)))
        if self._teacher.top != "all":
            batch.top_logp = logprobs_at(states, head, batch.teacher_top_ids, temperature)
            return
        of_teacher, other = inputs["teacher_states"][:, : states.shape[1]], self._sources[0].head

        def divergence_of(beta: float) -> torch.Tensor:
            return vocabulary_divergence(states, head, of_teacher, other, beta=beta, temperature=temperature)

        batch.divergence_of = divergence_of

    # -- prompts

    def _prompts(self, teacher: Teacher, rows: Sequence[int]) -> dict[int, Any]:
        """Return row → the teacher's prompt; without those that have none."""
        best = self._group_best(teacher.success) if teacher.reads_group else [""] * len(self._examples)
        shown = {row: best[row] for row in rows}
        return {row: _prompt(teacher, self._examples[row], text) for row, text in shown.items() if text is not None}

    def _group_best(self, success: float) -> list[str | None]:
        """Return for each completion the first other one of its group with the reward `success` or more."""
        components = self._trainer.components
        context, rewards = components.context, components.rewards.total().tolist()
        texts = gather_object([text_of(text) for text in self._texts])
        size = context.group_size
        local = context.local_rows(len(self._texts))
        shown: list[str | None] = []
        for row in range(local.start, local.stop):
            first = row - row % size
            others = [j for j in range(first, first + size) if j != row and rewards[j] >= success]
            shown.append(texts[others[0]] if others else None)
        return shown

    # -- steps and checkpoints

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        for source in self._sources:
            if isinstance(source, SameBase):
                source.step()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Delete the scores of batches before the last checkpoint but one, which no run resumes at."""
        old, self._before, self._stored = self._before, self._stored, []
        for path in old:
            path.unlink(missing_ok=True)

    def state_dict(self) -> dict[str, Any]:
        averages = [(n, x.state_dict()) for n, x in enumerate(self._sources) if isinstance(x, SameBase)]
        return {f"{n}.{name}": x for n, state in averages for name, x in state.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for n, source in enumerate(self._sources):
            if isinstance(source, SameBase):
                own = {name.partition(".")[2]: x for name, x in state.items() if name.startswith(f"{n}.")}
                source.load_state_dict(own)


def _version(model: str) -> list[Any]:
    """Return names, sizes and times of the files of a folder."""
    folder = Path(model)
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _prompt(teacher: Teacher, example: Mapping[str, Any], shown: str) -> Any:
    template, prompt = teacher.prompt, example["prompt"]
    if template is None:
        return prompt
    columns = {name: example[name] for name in teacher.own_columns} | {GROUP_BEST: shown}
    if isinstance(prompt, str):
        return template.format(prompt=prompt, **columns)
    last = {**prompt[-1], "content": template.format(prompt=prompt[-1]["content"], **columns)}
    return [*prompt[:-1], last]
