"""What a stage asks of the machine it would run on: the longest rows of its data, the settings that cost memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from rlm_plugins.data.tokenizer_check import check_fit
from rlm_plugins.estimate.fast_paths import writing
from rlm_plugins.estimate.memory import Load
from rlm_plugins.estimate.micro_batch import micro_batch
from rlm_plugins.rewards.columns import text_of
from rlm_plugins.stage import Stage

ROWS = 500
"""Training rows whose length is looked at."""
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux says how many bytes a container may take, by the second and the first version of its control groups."""


def workload(stage: Stage, args: Any) -> Load:
    """The load of a stage.

    Args:
        stage: With its world and its source built.
        args: The engine's config.

    Raises:
        RecipeError: The tokenizer cannot write the rows.
    """
    import torch

    tokenizer = stage.source.tokenizer()
    check_fit(tokenizer, next(iter(stage.environment_spec.train)))
    template = dict(stage.settings.get("chat_template_kwargs") or {})
    rows = list(islice(stage.environment_spec.train, ROWS))
    prompt = max(_tokens(tokenizer, row["prompt"], template) for row in rows)
    completion = _completion(stage, args, tokenizer, rows, prompt)
    micro_rows, trees = args.per_device_train_batch_size * max(1, len(_learned_from(stage))), 0
    if stage.equation is not None:
        micro_rows, trees = micro_batch(stage, args, prompt, completion)
    return Load(
        rows=_written(stage, args),
        prompt=prompt,
        completion=completion,
        micro_rows=micro_rows,
        trees=trees,
        checkpointing=bool(args.gradient_checkpointing),
        half=bool(args.bf16 or args.fp16),
        state=_optimiser_state(args.optim),
        reference=stage.lora is None and stage.equation is not None and stage.equation.needs("ref_logp"),
        fused=torch.cuda.is_available(),
        others=sum(part.target.memory_bytes(stage) for part in stage.parts() if hasattr(part.target, "memory_bytes")),
        copies=max((held for _, held in writing(stage, args)), default=0),
    )


def machine_memory() -> int:
    """Bytes of the accelerator's memory; without one, of the machine's, or of what a container may take of it."""
    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.get_device_properties(0).total_memory)
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_limits()])


def _limits() -> Iterator[int]:
    for file in LIMITS:
        with suppress(OSError, ValueError):  # another kind of system; no limit, which is the word "max"
            yield int(Path(file).read_text())


def _written(stage: Stage, args: Any) -> int:
    """Rows written at once: a generation of this process (vLLM keeps its own memory), or an evaluation."""
    own = hasattr(args, "num_generations") and not getattr(args, "use_vllm", False)  # the policy, beside any source
    generated = args.per_device_train_batch_size * args.steps_per_generation if own else 0
    how, held_out = stage.evaluation, len(stage.environment_spec.test)
    evaluated = min(how.batch_size, how.rows or held_out, held_out) if how else 0
    return max(generated, evaluated)


def _completion(stage: Stage, args: Any, tokenizer: Any, rows: Iterable[Mapping[str, Any]], prompt: int) -> int:
    """The longest completion allowed; where none are written, the longest that is learned from."""
    if limit := getattr(args, "max_completion_length", None):
        return int(limit)
    texts = [text_of(row[name]) for row in rows for name in _learned_from(stage) if name in row]
    longest = max((len(tokenizer(text)["input_ids"]) + 1 for text in texts), default=0)  # 1: the end token
    room = getattr(args, "max_length", None)
    return min(longest, max(room - prompt, 0)) if room else longest


def _learned_from(stage: Stage) -> Sequence[str]:
    """The columns an engine reads: each is a row of its own (a demonstration; both answers of a pair)."""
    return getattr(stage.engine, "columns", ())


def _tokens(tokenizer: Any, prompt: Any, template: Mapping[str, Any]) -> int:
    if isinstance(prompt, str):
        return len(tokenizer(prompt)["input_ids"])
    text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True, **template)
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _optimiser_state(optimiser: Any) -> float:
    """Bytes per byte of float32 weights: Adam's two moments, or its 8-bit ones, where nothing else is known."""
    name = str(getattr(optimiser, "value", optimiser))
    if name in ("sgd", "adafactor", "rmsprop"):
        return {"sgd": 0.0, "adafactor": 0.0, "rmsprop": 1.0}[name]
    moments = 1 if "lion" in name else 2
    return moments * (0.25 if "8bit" in name else 1.0)
