"""The one file that knows the inside of TRL's GRPOTrainer.

TRL samples, rewards, pads, reads log-probabilities, accumulates and steps. Three narrow seams put the equation in:
what the rewards were (`_calculate_rewards`), what the batch looks like after scoring
(`_generate_and_score_completions`), what the loss is (`_compute_loss`). `tests/test_seams.py` fails by name when a
release of TRL changes what is relied on here.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from rlm_plugins.ask import teach
from rlm_plugins.batch import Batch
from rlm_plugins.registry.parts import Bound
from rlm_plugins.schedule import Schedule
from rlm_plugins.stage import Reward
from rlm_plugins.step import Equation, compare, objective, sift
from rlm_plugins.training.checkpoint import DurableCheckpoints
from rlm_plugins.training.desk import Desk
from rlm_plugins.training.past import Past, answers_in, distance, stacked
from rlm_plugins.training.prompts import PromptSampler
from rlm_plugins.training.refill import LEFT, Draw, FullBatch
from rlm_plugins.training.sharing import POLICY
from rlm_plugins.training.writing import Rows, Writers
from rlm_plugins.window import window_of

PARTS_FILE = "parts.pt"
logger = logging.getLogger(__name__)
Observer = Callable[[int, Sequence[Any], Sequence[Any], Batch], None]


class EquationTrainer(DurableCheckpoints, GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer whose advantage and loss are the parts of an :class:`Equation`.

    Args:
        equation: The parts. `args.beta` only switches TRL's reference pass on; coefficients live in the parts.
        rewards: The entries of ``rewards:`` in the order of `reward_funcs`.
        writers: Give every row to its writer; None: the policy writes all.
        order: (size, epoch, seed) → the order in which an epoch visits the problems.
        desk: Hands out the problems of each generation; None: the data loader does. (With a desk it is only the clock.)
        observer: Is shown every generation batch of this process, scored: (step, prompts, completions, batch).
        schedules: Name → schedule of a knob, to be logged.
        **trl: Everything GRPOTrainer takes.
    """

    _name = "rlm"
    _tag_names = ("trl", "rlm-plugins")

    def __init__(
        self,
        *,
        equation: Equation,
        rewards: Sequence[Reward],
        writers: Writers | None = None,
        order: Callable[[int, int, int], Sequence[int]],
        desk: Desk | None = None,
        observer: Observer | None = None,
        schedules: Mapping[str, Schedule] | None = None,
        **trl: Any,
    ) -> None:
        self.equation, self._rewards, self._order, self._observer = equation, rewards, order, observer
        self._written: Rows | None = None
        self._writers, self._desk = writers, desk
        self._inputs: Sequence[Any] = ()
        self._schedules = schedules or {}
        self._windows: list[tuple[Batch, torch.Tensor]] = []
        self._accumulated = 0
        self._past = Past() if self._scoring_names("moved") else None
        super().__init__(**trl, rollout_func=None if writers is None else EquationTrainer._rollouts)

    # ---- which problem next

    def _get_train_sampler(self, dataset: Any = None) -> PromptSampler:
        size = len(self.train_dataset if dataset is None else dataset)
        return PromptSampler(
            order=lambda epoch: self._order(size, epoch, self.args.seed),
            size=size,
            prompts=self.args.generation_batch_size // self.num_generations,
            generations=self.num_generations,
            repeats=self.num_iterations * self.args.steps_per_generation,
        )

    def _next_problems(self, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows to write now: what the data loader brings, or what the desk hands out in their stead."""
        if self._desk is None or not self.model.training:
            self._problem = None
            return inputs
        count = self.args.generation_batch_size // self.num_generations
        problems = torch.tensor(self._desk.take(count, self.state.global_step))
        self._problem = problems.repeat_interleave(self.num_generations).to(self.accelerator.device)
        return [dict(self.train_dataset[i]) for i in self._problem[self._mine(len(inputs))].tolist()]

    def _mine(self, rows: int) -> slice:
        """Where the `rows` rows of this process stand among those of all."""
        first = self.accelerator.process_index * rows
        return slice(first, first + rows)

    # ---- who writes

    @property
    def tokenizer(self) -> Any:
        """The tokenizer itself, also where a processor surrounds it."""
        return self._tokenizer

    def prompt_ids(self, prompts: Sequence[Any]) -> list[list[int]]:
        """The prompts as the model reads them: token ids."""
        ids: list[list[int]] = self._tokenize_prompts(list(prompts))[0]
        return ids

    def answer_ids(self, prompt: Any, text: str) -> list[int]:
        """`text` as the policy would have written it after `prompt`: token ids up to the end token.

        Of a chat, what the template adds to the prompt for the assistant's turn; where the template does not write
        a prompt with its answer as it writes the prompt alone, the tokens of the text.
        """
        ids: list[int] = []
        if not isinstance(prompt, str):
            turn, (asked,) = {"role": "assistant", "content": text}, self.prompt_ids([prompt])
            options = {"tools": self.tools or None, "chat_template": self.chat_template, **self.chat_template_kwargs}
            both = self.processing_class.apply_chat_template(
                [*prompt, turn], tokenize=True, return_dict=True, **options
            )["input_ids"]
            ids = both[len(asked) :] if both[: len(asked)] == asked else []
        ids = ids or self._tokenizer(text, add_special_tokens=False)["input_ids"]
        end = next((i for i, token in enumerate(ids) if token in self.eos_token_ids), None)
        return [*ids, self._tokenizer.eos_token_id] if end is None else ids[: end + 1]

    def write(
        self, prompts: Sequence[Any], prefixes: Sequence[Sequence[int]] | None = None, *, greedy: bool = False
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        """The policy writes.

        Args:
            prompts: One per row; none is fine.
            prefixes: Per row, token ids its completion starts with; they are not returned again.
            greedy: The most likely token each time.

        Returns:
            Token ids per row, and their log-probabilities where the engine reports them (vLLM).
        """
        starts = [list(start) for start in prefixes or [[]] * len(prompts)]
        idle = self._idle(len(prompts))
        if not prompts and not idle:
            return [], None
        ids, images, fields = self._tokenize_prompts([*prompts, *(row["prompt"] for row in self._inputs[:idle])])
        with self._sampling(greedy):
            written, logprobs = self._generate_single_turn(
                [[*prompt, *start] for prompt, start in zip(ids, [*starts, *[[]] * idle], strict=True)],
                images,
                fields,
                num_generations=1,
            )
        room = [self.max_completion_length - len(start) for start in starts]
        cut = [row[:most] for row, most in zip(written, room, strict=False)]
        return cut, logprobs and [row[:most] for row, most in zip(logprobs, room, strict=False)]

    def _idle(self, rows: int) -> int:
        """How many rows this process writes for nobody, where all processes must write equally many at a time."""
        sharded = self.is_fsdp_enabled or (
            self.is_deepspeed_enabled and self.accelerator.state.deepspeed_plugin.zero_stage == 3
        )
        shared = self.use_vllm and (self.vllm_mode == "server" or self.args.vllm_tensor_parallel_size > 1)
        if self.accelerator.num_processes == 1 or not (sharded or shared):
            return 0
        most: int = max(gather_object([rows]))
        return most - rows

    @contextmanager
    def _sampling(self, greedy: bool) -> Iterator[None]:
        """While it lasts, the policy writes greedily (or as it always does)."""
        holder, name = (self.vllm_generation, "temperature") if self.use_vllm else (self, "generation_config")
        usual = getattr(holder, name)
        if greedy:
            setattr(holder, name, 0.0 if self.use_vllm else _greedy(usual))
        try:
            yield
        finally:
            setattr(holder, name, usual)

    def set_temperature(self, temperature: float) -> None:
        """From now on the policy writes at this temperature, and is read at it (log-probabilities, entropies)."""
        self.temperature = temperature
        if self.use_vllm:
            self.vllm_generation.temperature = temperature
        else:
            self.generation_config.temperature = self.generation_kwargs["temperature"] = temperature
        for model in (model for model in (self.model, self.ref_model) if model is not None):
            _reading_temperature(self.accelerator.unwrap_model(model)).cell_contents = temperature

    @staticmethod
    def _rollouts(prompts: Sequence[Any], trainer: EquationTrainer) -> dict[str, Any]:
        """TRL's `rollout_func`."""
        first = trainer.accelerator.process_index * len(prompts)
        assert trainer._writers is not None
        rows = trainer._written = trainer._writers(prompts, trainer._inputs, first, trainer)
        logprobs: Any = rows.logprobs
        if all(row is None for row in logprobs):
            logprobs = None
        else:  # TRL takes None for "not known", and weighs such a token by 1
            ids = rows.completion_ids
            logprobs = [[None] * len(ids[i]) if row is None else row for i, row in enumerate(logprobs)]
        return {
            "prompt_ids": rows.prompt_ids,
            "completion_ids": rows.completion_ids,
            "logprobs": logprobs,
            **rows.columns,
        }

    # ---- how good: remember what TRL throws away

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: list[list[int]]
    ) -> torch.Tensor:
        self._texts = prompts, completions
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        self._truncated = [not ids or ids[-1] not in ends for ids in completion_ids_list]
        self._rewards_per_func = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        return self._rewards_per_func

    # ---- how much better than expected: once per generation, over all processes

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        mine = self._mine(len(inputs))
        if self.equation.refill and self.model.training:
            out, batch = self._refilled(inputs, self.equation.refill)
        else:
            out, batch = self._drawn(inputs)
        scored = compare(batch, self.equation)
        if self.model.training:
            for part in self._learners():
                teach(part, scored)
        width = out["completion_ids"].shape[1]
        for name in ("mask", "group", "truncated", "rewards", "returns", "advantages", "expected_logp"):
            value = getattr(scored, name)
            if value is not None:
                out[name] = value[mine][:, :width] if value.dim() == 2 else value[mine]
        out["row"] = torch.arange(mine.start, mine.stop, device=scored.mask.device)
        out["tokens"], out["rows"] = scored.mask.sum().float(), scored.mask.any(1).sum().float()
        out["all_rows"] = torch.tensor(float(len(scored.mask)), device=scored.mask.device)
        self._log_advantages(scored)
        if self._observer is not None:
            self._observer(self.state.global_step, *self._texts, _rows_of(scored, mine))
        return out

    def _drawn(self, inputs: list[dict[str, Any]]) -> tuple[dict[str, Any], Batch]:
        """One generation: TRL's dictionary for the rows of this process, and the rows of all, sifted."""
        inputs = self._next_problems(inputs)
        self._inputs, self._written = inputs, None
        out = super()._generate_and_score_completions(inputs)
        if self._written is not None:
            out |= self._said_of_rows(self._written, out["completion_ids"])
        batch = sift(self._scoring_batch(out), self.equation)
        self._log_sieve(batch)
        if self._desk is not None and self._desk.sampler is not None and self.model.training:
            teach(self._desk.sampler, batch)
        return out, batch

    def _refilled(self, inputs: list[dict[str, Any]], most: int) -> tuple[dict[str, Any], Batch]:
        """The same, of at most `most` generations: until every place is taken by a group that teaches.

        Everything is gathered, and the order of all rows decides: two processes choose what one would.
        """
        pad_token = self._tokenizer.pad_token_id
        full = FullBatch(self.args.generation_batch_size // self.num_generations, pad_token)
        while not full.full and full.draws < most:
            for column in self._table().values():
                column.clear()  # holds one generation: so it is this one
            out, batch = self._drawn(inputs)
            out = {name: self._gather_rows(x, name) if torch.is_tensor(x) and x.dim() else x for name, x in out.items()}
            full.add(Draw(out, batch, {name: list(column) for name, column in self._table().items()}))
        self._log_refill(full)
        whole, mine = full.finish(), self._mine(len(inputs))
        for name, column in self._table().items():
            column.clear()
            column.extend(whole.columns.get(name, ()))
        self._texts = whole.columns["prompt"][mine], whole.columns["completion"][mine]
        out = {name: x[mine] if torch.is_tensor(x) and x.dim() else x for name, x in whole.out.items()}
        out["num_items_in_batch"] = (whole.batch.mask & whole.batch.kept.unsqueeze(1)).sum()
        return out, whole.batch

    def _table(self) -> dict[str, Any]:
        """TRL's table of completions: name → column."""
        nested = {f"{kind}/{name}": x for kind in ("rewards", "extra") for name, x in self._logs[kind].items()}
        return {name: self._logs[name] for name in ("prompt", "completion", "advantages")} | nested

    def _scoring_batch(self, out: dict[str, Any]) -> Batch:
        """Every row of every process, with what the scoring parts named."""
        generations = self.num_generations if self.model.training else self.num_generations_eval
        weights = self.reward_weights.to(self._rewards_per_func.device)
        rewards = (self._rewards_per_func * weights).nansum(1)
        device = rewards.device
        entropy = self._read_before(out)
        return Batch(
            group=torch.arange(len(rewards), device=device) // generations,
            mask=self._gather_rows(_loss_mask(out)).bool(),
            truncated=self._gather_rows(torch.tensor(self._truncated, device=device)),
            problem=self._problem,  # type: ignore[arg-type]
            sources=self._sources(self._gather_rows(out.get("source")), len(rewards)),
            max_completion_length=self.max_completion_length,
            step=self.state.global_step,
            rewards=rewards.masked_fill(self._rewards_per_func.isnan().all(1), torch.nan),
            named_rewards={r.label: self._rewards_per_func[:, i] for i, r in enumerate(self._rewards)},
            old_logp=self._gather_rows(out.get("old_per_token_logps")),
            ref_logp=self._gather_rows(out.get("ref_per_token_logps")),
            moved=self._moved(out) if self._past is not None and self._problem is not None else None,  # type: ignore[arg-type]
            rollout_logp=self._gather_rows(out.get("sampling_per_token_logps")),
            entropy=self._gather_rows(entropy),
        )

    def _moved(self, out: dict[str, Any]) -> torch.Tensor:
        """How far the policy has moved since it last met each problem, (B,) of all rows; then the answers are kept.

        A problem never met stands for itself, at distance 0: so every process reads as much as the others.
        """
        assert self._past is not None
        assert self._problem is not None
        problems = self._problem[self._mine(len(out["prompt_ids"]))].tolist()
        now = answers_in(out, _loss_mask(out))
        last = [self._past.last(problem, answer) for problem, answer in zip(problems, now, strict=True)]
        rows = stacked(last, self._tokenizer.pad_token_id, self.accelerator.device)
        with torch.no_grad():
            logp = self._read(self.model, rows, self.args.per_device_train_batch_size)[0]
        met = torch.tensor([self._past.knows(problem) for problem in problems], device=logp.device)
        moved = distance(logp, rows["logp"], rows["mask"]).where(met, 0.0)
        self._past.remember(gather_object(problems), gather_object(now))
        return self._gather_rows(moved)  # type: ignore[no-any-return]

    def _read_before(self, out: dict[str, Any]) -> torch.Tensor | None:
        """One pass of the policy before the update, where a scoring part names what comes of it; the entropy, if so."""
        reads_old = self.equation.needs("expected_logp") or self._scoring_names("old_logp") or self._past is not None
        lacks_old, reads_entropy = reads_old and "old_per_token_logps" not in out, self._scoring_names("entropy")
        if not (lacks_old or reads_entropy):
            return None
        with torch.no_grad():
            size = self.args.per_device_train_batch_size
            logp, entropy, _ = self._read(self.model, out, size, compute_entropy=reads_entropy)
        if lacks_old:
            out["old_per_token_logps"] = logp
        return entropy

    def _scoring_names(self, name: str) -> bool:
        """Whether a part needs `name` in the scoring room, or to learn from."""
        early = [*self.equation.shapers, *self.equation.filters, self.equation.advantage]
        sampler = [self._desk.sampler] if self._desk is not None and self._desk.sampler is not None else []
        return any(name in p.part.needs for p in early) or any(
            name in p.part.update_needs for p in (*self._learners(), *sampler)
        )

    def _gather_rows(self, x: torch.Tensor | None, name: str = "") -> Any:
        """The rows of all processes, padded to the longest as TRL pads what goes by `name`."""
        if x is None or self.accelerator.num_processes == 1:
            return x
        if x.dim() == 2:
            filling = self._tokenizer.pad_token_id if name in ("prompt_ids", "completion_ids") else 0
            x = self.accelerator.pad_across_processes(x, dim=1, pad_index=filling, pad_first=name in LEFT)
        return self.accelerator.gather(x)

    def _said_of_rows(self, rows: Rows, completion_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Who wrote each row (B,), and which of its tokens are trained on (B, T)."""
        trained = torch.ones_like(completion_ids)
        for i, mask in enumerate(rows.mask):
            if mask is not None:
                trained[i, : len(mask)] = torch.tensor(mask, device=trained.device).to(trained.dtype)
        return {"source": torch.tensor(rows.source, device=trained.device), "trained": trained}

    def _sources(self, source: torch.Tensor | None, rows: int) -> dict[str, torch.Tensor]:
        """Label of a writer → the rows (B,) it wrote."""
        if source is None or self._writers is None:
            return {POLICY: torch.ones(rows, dtype=torch.bool, device=self.accelerator.device)}
        return {label: source == number for number, label in enumerate(self._writers.labels)}

    # ---- how likely, how far, what it costs: once per micro-batch

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        logp, entropy, aux_loss = self._read(
            model, inputs, compute_entropy=True, compute_aux_loss=self.aux_loss_enabled
        )
        batch = self._learning_batch(inputs, logp, entropy)
        if self.equation.needs("window") or self.equation.needs("window_rows"):
            batch.window, batch.window_rows = self._window(batch, inputs)
        processes = self.accelerator.num_processes
        loss = objective(batch, self.equation) * processes  # data parallelism averages over processes: undo it
        if self.aux_loss_enabled:
            loss = loss + self.router_aux_loss_coef * aux_loss / self._accumulation()
        batch.log("entropy", entropy.detach())
        for name, schedule in self._schedules.items():
            self._metrics["train" if self.model.training else "eval"][f"schedule/{name}"].append(
                schedule.at(batch.step)
            )
        return loss

    def _learning_batch(self, inputs: dict[str, Any], logp: torch.Tensor, entropy: torch.Tensor) -> Batch:
        """A micro-batch with everything the learning parts may name."""
        old_logp = inputs.get("old_per_token_logps")
        accumulation = self._accumulation()
        window = accumulation / self.args.steps_per_generation if self.model.training else 1
        return Batch(
            group=inputs["group"],
            mask=inputs["mask"],
            truncated=inputs["truncated"],
            sources=self._sources(inputs.get("source"), len(inputs["group"])),
            max_completion_length=self.max_completion_length,
            step=self.state.global_step,
            rewards=inputs["rewards"],
            advantages=inputs["advantages"],
            returns=inputs.get("returns"),  # type: ignore[arg-type]
            logp=logp,
            old_logp=logp.detach() if old_logp is None else old_logp,
            expected_logp=inputs.get("expected_logp"),  # type: ignore[arg-type]
            ref_logp=inputs.get("ref_per_token_logps"),  # type: ignore[arg-type]
            rollout_logp=inputs.get("sampling_per_token_logps"),  # type: ignore[arg-type]
            rollout_weight=inputs.get("importance_sampling_ratio"),  # type: ignore[arg-type]
            entropy=entropy,
            tokens=inputs["tokens"].clamp(min=1.0) * window,
            rows=inputs["rows"].clamp(min=1.0) * window,
            all_rows=inputs["all_rows"] * window,
            micro_batches=torch.tensor(float(accumulation * self.accelerator.num_processes), device=logp.device),
            log=lambda name, x: self._log_mean(name, x, inputs["mask"]),
        )

    def _accumulation(self) -> int:
        """Micro-batches of one process in this optimiser step."""
        return int(self.current_gradient_accumulation_steps) if self.model.training else 1

    # ---- what only the whole optimiser step can tell

    def _window(self, batch: Batch, inputs: dict[str, Any]) -> tuple[Batch, torch.Tensor]:
        """The window, and where the rows of this micro-batch stand in it; read once, at its first micro-batch."""
        if not self.model.training:
            return self._read_window(batch, [inputs])[0]
        if not self._windows:
            self._windows = self._read_window(batch, self._upcoming())
        self._accumulated = 0 if self.accelerator.sync_gradients else self._accumulated + 1
        return self._windows.pop(0)

    def _upcoming(self) -> list[dict[str, Any]]:
        """This micro-batch and those after it: to the end of the optimiser step, or of what has been written."""
        buffered, generation = self._buffered_inputs, self.args.steps_per_generation * self.num_iterations
        left = min(self._accumulation() - self._accumulated, generation - self._step % generation)
        return [buffered[(self._step + n) % len(buffered)] for n in range(left)]

    def _read_window(self, batch: Batch, upcoming: list[dict[str, Any]]) -> list[tuple[Batch, torch.Tensor]]:
        """For each of the upcoming micro-batches its window; the first is `batch`, read already."""
        pieces = [batch]
        for inputs in upcoming[1:]:
            with torch.no_grad():
                logp, entropy, _ = self._read(self.model, inputs, compute_entropy=True)
            pieces.append(self._learning_batch(inputs, logp, entropy))
        places = [inputs["row"] for inputs in upcoming]
        window, rows = window_of(pieces, places, self._gather_rows, self.accelerator.process_index)
        return [(window, numbers) for numbers in rows]

    def _read(self, model: Any, inputs: dict[str, Any], batch_size: int | None = None, **options: Any) -> Any:
        """Log-probabilities (and entropies) of the completions under `model`, by TRL's own pass."""
        known = inspect.signature(self._get_per_token_logps_and_entropies).parameters
        return self._get_per_token_logps_and_entropies(
            model,
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
            torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
            inputs["completion_ids"].shape[1],
            batch_size=batch_size,
            **{name: inputs[name] for name in known if name in inputs},
            **options,
        )

    # ---- ledger

    def _log_mean(self, name: str, x: torch.Tensor, mask: torch.Tensor) -> None:
        """The mean of `x` over the trained tokens of all processes."""
        total = torch.stack([(x * mask).sum(), mask.sum().to(x.dtype)])
        total = self.accelerator.reduce(total.detach(), reduction="sum")
        mode = "train" if self.model.training else "eval"
        self._metrics[mode][name].append((total[0] / total[1].clamp(min=1.0)).item())

    def _log_sieve(self, batch: Batch) -> None:
        metrics = self._metrics["train" if self.model.training else "eval"]
        if self.equation.shapers:
            metrics["shapers/reward"].append(batch.rewards.nanmean().item())
        if self.equation.filters:
            live = batch.mask.any(1)
            metrics["filters/kept"].append(((live & batch.kept).sum() / live.sum().clamp(min=1)).item())
        if self._writers is not None:
            self._log_sources(batch, metrics)

    def _log_refill(self, full: FullBatch) -> None:
        self._metrics["train"]["refill/draws"].append(full.draws)
        self._metrics["train"]["refill/full"].append(full.filled / full.groups)
        if not full.full and self.accelerator.is_main_process:
            found = f"{full.filled} of {full.groups} groups teach after {full.draws} draws"
            logger.warning("%s: the step is taken on those (step %d)", found, self.state.global_step + 1)

    def _log_advantages(self, scored: Batch) -> None:
        metrics = self._metrics["train" if self.model.training else "eval"]
        live = scored.advantages.expand(scored.mask.shape)[scored.mask]
        metrics["advantage/abs_mean"].append(live.abs().mean().item() if live.numel() else 0.0)
        metrics["advantage/nonzero"].append((live != 0).float().mean().item() if live.numel() else 0.0)
        table = self._logs["advantages"]
        for _ in range(min(len(table), len(scored.advantages))):
            table.pop()  # TRL's own, which nobody trains on
        table.extend(scored.advantages.mean(1).tolist())

    def _log_sources(self, batch: Batch, metrics: Any) -> None:
        """Per source its share of the rows, their mean reward, and how many of them were cut."""
        for label, own in batch.sources.items():
            metrics[f"sources/{label}/share"].append(own.float().mean().item())
            if own.any():
                metrics[f"sources/{label}/reward"].append(batch.rewards[own].nanmean().item())
                metrics[f"sources/{label}/truncated"].append(batch.truncated[own].float().mean().item())

    # ---- memory of parts that have one

    def _stateful(self) -> dict[str, Any]:
        sampler = self._desk.sampler if self._desk is not None else None
        parts = [*self._learners(), *([sampler] if sampler is not None else [])]
        found = {f"{i}:{p.part.full_name}": p.target for i, p in enumerate(parts) if hasattr(p.target, "state_dict")}
        own = {"desk": self._desk, "past": self._past}
        return found | {name: memory for name, memory in own.items() if memory is not None}

    def _learners(self) -> list[Bound]:
        """Every part that may have a memory, but the sampler, which learns draw by draw."""
        sources = self._writers.sources if self._writers is not None else ()
        return [*(reward.part for reward in self._rewards), *self.equation.parts(), *sources]

    def _write_extras(self, folder: Path) -> None:
        if parts := self._stateful():
            torch.save({name: part.state_dict() for name, part in parts.items()}, folder / PARTS_FILE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        parts = self._stateful()
        if checkpoint and parts:
            memory = torch.load(Path(checkpoint) / PARTS_FILE, weights_only=True)
            for name, part in parts.items():
                part.load_state_dict(memory[name])


def _loss_mask(out: dict[str, Any]) -> torch.Tensor:
    mask: torch.Tensor = out["completion_mask"]
    for name in ("tool_mask", "trained"):
        mask = mask * out[name] if name in out else mask
    return mask


def _greedy(usual: Any) -> Any:
    config = copy.deepcopy(usual)
    config.do_sample = False
    config.temperature = config.top_p = config.top_k = config.min_p = None
    return config


def _reading_temperature(model: Any) -> Any:
    """The cell in which TRL's pass over `model` keeps the temperature that it divides the logits by."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    forward = getattr(base, "_original_forward", base.forward).__func__  # accelerate may have wrapped it
    return forward.__closure__[forward.__code__.co_freevars.index("temperature")]


def _rows_of(batch: Batch, rows: slice) -> Batch:
    return Batch(
        rewards=batch.rewards[rows],
        advantages=batch.advantages[rows],
        named_rewards={name: x[rows] for name, x in batch.named_rewards.items()},
        sources={name: x[rows] for name, x in batch.sources.items()},
        mask=batch.mask[rows],
        truncated=batch.truncated[rows],
    )
