"""Load of a stage on this machine, its memory, and what follows: gradient checkpointing, smaller micro-batches.

Checkpointing costs a third more arithmetic: it is on only if memory requires it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from rlm_fast.features import StageFeatures, decoding_plans
from rlm_fast.memory_estimate import Estimate, Load, estimate
from rlm_fast.packed_forward import max_packed_length
from rlm_fast.speed_report import size
from rlm_fast.token_budget import budget, full_length_tokens
from rlm_fast.tree_attention import common_length
from rlm_plugins.data.images import images_of, messages_of, without_images
from rlm_plugins.models.pretrained import tokenizer_of
from rlm_plugins.registry.setting import PolicyBytes, Setting
from rlm_plugins.rewards.columns import text_of
from rlm_plugins.run.failures import is_in_generation
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.options import arguments


def micro_batch(features: StageFeatures, prompt_len: int, completion_len: int, common_len: int) -> tuple[int, int]:
    """Return the sequences and the prompts (0: padded) of a micro-batch at full length."""
    args = features.args
    size, group = args.per_device_train_batch_size, args.num_generations
    limit = max_packed_length(features.stage.source.config)
    if not features.padding_free.on or (limit is not None and prompt_len + completion_len > limit):
        return size, 0
    step = size * args.gradient_accumulation_steps
    # Shuffled, a micro-batch may hold completions of every prompt of the generation.
    if not features.group_micro_batches.on:
        return size, min(size, math.ceil(size * args.steps_per_generation / group))
    if features.dynamic_micro_batches.on:
        size = max(1, min(_fitting(features, prompt_len, completion_len, common_len), step))
    return size, math.ceil(size / group)


def _fitting(features: StageFeatures, prompt_len: int, completion_len: int, common_len: int) -> int:
    """Return how many sequences of full length fit the token budget, each prompt and common prefix counted once."""
    args, max_tokens = features.args, features.speed.max_tokens_per_micro_batch
    size = args.per_device_train_batch_size
    full_length = full_length_tokens(size, prompt_len, completion_len)
    most = budget(max_tokens, full_length, features.num_parameters)
    prompt_share = (prompt_len - common_len) / args.num_generations
    tokens_per_sequence = full_length_tokens(1, prompt_len, completion_len) - prompt_len + prompt_share
    fitting = int((most - common_len) / tokens_per_sequence)
    return fitting if max_tokens else max(size, fitting)


EXAMPLES = 500
"""Training examples whose lengths are measured."""
IMAGE_EXAMPLES = 4
"""Training examples whose images are measured, since that takes as long as reading them."""
LOADED_LATER = 96 * 2**20
"""Bytes of libraries and buffers that a run needs after its start: Arrow's, oneDNN's kernels, plots."""
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with the memory limit of a Linux container, of versions 2 and 1 of control groups."""


def workload(stage: Stage, args: Any) -> Load:
    """Return the load of a stage."""
    import torch

    processor = stage.source.processing_class()
    tokenizer = tokenizer_of(processor)
    template = dict(stage.settings.get("chat_template_kwargs") or {})
    examples = list(islice(without_images(stage.environment_spec.train), EXAMPLES))
    prompts = [_prompt_ids(tokenizer, example["prompt"], template) for example in examples]
    prompt_len = max(map(len, prompts))
    if images_of(next(iter(stage.environment_spec.train))):
        prompt_len += max(map(partial(_image_tokens, processor), islice(stage.environment_spec.train, IMAGE_EXAMPLES)))
    common_len = min(common_length(prompts), min(map(len, prompts)) - 1)
    completion_len = _completion_tokens(stage, args, tokenizer, examples, prompt_len)
    micro_batch_size, packed_prompts = args.per_device_train_batch_size * max(1, len(_trained_columns(stage))), 0
    features = None if stage.equation is None else StageFeatures(stage, args)
    if features is not None:
        micro_batch_size, packed_prompts = micro_batch(features, prompt_len, completion_len, common_len)
    plans = decoding_plans(stage, args)
    generated, decoded_prompts = _generated(stage, args)
    return Load(
        generated=generated,
        # A prompt is computed once for its completions, unless transformers decode.
        decoded_prompts=decoded_prompts if plans and not any(reason for reason, _ in plans) else 0,
        common_len=common_len,
        process=process_memory(),
        prompt_len=prompt_len,
        completion_len=completion_len,
        micro_batch_size=micro_batch_size,
        packed_prompts=packed_prompts,
        checkpointing=bool(args.gradient_checkpointing),
        half=bool(args.bf16 or args.fp16),
        optimizer_state=_optimizer_state(args.optim),
        reference=stage.lora is None and stage.equation is not None and stage.equation.requires("ref_logp"),
        triton=torch.cuda.is_available(),
        part_models=sum(
            part.target.memory_bytes(stage) for part in stage.parts() if hasattr(part.target, "memory_bytes")
        ),
        copied_weights=max((copied for _, copied in plans), default=0),
        fused_mlp=features is not None and features.fuses_mlp,
    )


def machine_memory() -> int:
    """Return the bytes of the accelerator's memory; without one those of the machine, or of the container's limit."""
    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.get_device_properties(0).total_memory)
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_limits()])


def _limits() -> Iterator[int]:
    for file in LIMITS:
        with suppress(OSError, ValueError):  # no such file on other systems; "max" if there is no limit
            yield int(Path(file).read_text())


@cache
def process_memory() -> int:
    """Return the bytes of this process, before a model is loaded, and of what a run loads later.

    They are measured once. Beside an accelerator they do not count, since they are in other memory.
    """
    import psutil
    import torch

    return 0 if torch.cuda.is_available() else psutil.Process().memory_info().rss + LOADED_LATER


def _generated(stage: Stage, args: Any) -> tuple[int, int]:
    """Return the completions decoded at once, of a generation of this process or an evaluation, and their prompts.

    vLLM keeps its KV cache in memory of its own.
    """
    decodes = hasattr(args, "num_generations") and not getattr(args, "use_vllm", False)
    generation = args.per_device_train_batch_size * args.steps_per_generation if decodes else 0
    evaluation, held_out = stage.evaluation, len(stage.environment_spec.test)
    # Evaluation decodes held-out prompts in batches of its own.
    evaluated = 0
    if evaluation:
        evaluated = min(evaluation.batch_size, evaluation.rows or held_out, held_out)
    return max((generation, generation // getattr(args, "num_generations", 1)), (evaluated, evaluated))


def _completion_tokens(
    stage: Stage, args: Any, tokenizer: Any, examples: Iterable[Mapping[str, Any]], prompt_len: int
) -> int:
    """Return the longest completion allowed; without generation, the longest one in the data."""
    if limit := getattr(args, "max_completion_length", None):
        return int(limit)
    columns = _trained_columns(stage)
    texts = [text_of(example[name]) for name in columns for example in examples if name in example]
    longest = max((len(tokenizer(text)["input_ids"]) + 1 for text in texts), default=0)  # 1: the EOS token
    max_length = getattr(args, "max_length", None)
    return min(longest, max(max_length - prompt_len, 0)) if max_length else longest


def _trained_columns(stage: Stage) -> Sequence[str]:
    """Return the columns that a trainer takes completions from: a demonstration, or both answers of a pair."""
    return getattr(stage.trainer, "columns", ())


def _prompt_ids(tokenizer: Any, prompt: Any, template: Mapping[str, Any]) -> list[int]:
    if isinstance(prompt, str):
        return list(tokenizer(prompt)["input_ids"])
    text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True, **template)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _image_tokens(processor: Any, example: Mapping[str, Any]) -> int:
    """Return the tokens that the images of an example take."""
    options = {"tokenize": True, "return_dict": True}
    tokens = processor.apply_chat_template([messages_of(example)], **options)["input_ids"][0]
    text = processor.apply_chat_template([messages_of({"prompt": example["prompt"]})], **options)["input_ids"][0]
    return max(0, len(tokens) - len(text))


def _optimizer_state(optim: Any) -> float:
    """Return the bytes of optimizer state per byte of float32 weights; an unknown optimizer counts as Adam."""
    name = str(getattr(optim, "value", optim))
    if name in ("sgd", "adafactor", "rmsprop"):
        return {"sgd": 0.0, "adafactor": 0.0, "rmsprop": 1.0}[name]
    moments = 1 if "lion" in name else 2
    return moments * (0.25 if "8bit" in name else 1.0)


KEY = "gradient_checkpointing"


class Forecast:
    """Load and memory of a stage, computed at first use."""

    def __init__(self, stage: Stage, args: Any, share: float = 0.8) -> None:
        self.stage, self.args, self.share = stage, args, share

    @cached_property
    def _load(self) -> Load:
        return workload(self.stage, self.args)

    @property
    def load(self) -> Load:
        """Sizes of the batches, with gradient checkpointing as the config has it now."""
        return replace(self._load, checkpointing=bool(self.args.gradient_checkpointing))

    @property
    def memory(self) -> Estimate:
        return self._estimate(self.load)

    def needs_checkpointing(self) -> bool:
        """Return True if a step without checkpointing would not fit, or if no estimate can be made."""
        try:
            return self._estimate(replace(self._load, checkpointing=False)).peak > self.share * machine_memory()
        except Exception:  # the estimate does not cover every model; TRL's default is on
            return True

    def checkpointing_decision(self) -> str | None:
        """Return the decision on checkpointing with its reason, or None if the recipe makes it."""
        if KEY in self.stage.settings or not hasattr(self.args, KEY):
            return None
        if self.args.gradient_checkpointing:
            return "gradient checkpointing is on: a step without it might not fit, or its memory is unknown"
        return f"gradient checkpointing is off: a step needs less than {self.share:.0%} of this machine's memory"

    def _estimate(self, load: Load) -> Estimate:
        return estimate(self.stage.source.config, self.stage.lora, load, self.stage.critic, self._of_settings)

    def _of_settings(self, policy: PolicyBytes) -> dict[str, int]:
        """Return the bytes that the settings of packages keep in memory, by name."""
        added: Mapping[str, Setting] = getattr(self.args, "added", {})
        terms = {name: setting.memory_bytes for name, setting in added.items() if setting.memory_bytes is not None}
        return {f"`{name}`": memory_bytes(policy, self.args) for name, memory_bytes in terms.items()}


def halved(stage: Stage) -> Stage | None:
    """Return the stage with smaller micro-batches in the same optimizer steps; None if they hold one sequence."""
    args = arguments(stage)
    count = args.per_device_train_batch_size
    divisor = next((n for n in range(2, count + 1) if count % n == 0), None)
    if divisor is None:
        return None
    changes = {"per_device_train_batch_size": count // divisor}
    changes["gradient_accumulation_steps"] = args.gradient_accumulation_steps * divisor
    if hasattr(args, "steps_per_generation") and "generation_batch_size" not in stage.settings:
        changes["steps_per_generation"] = args.steps_per_generation * divisor
    return _with(stage, changes)


def smaller(stage: Stage, error: Exception) -> Iterator[str]:
    """Yield a line for each setting that lowers the memory of the phase in which it ran out."""
    before = _estimate(stage)
    yield f"rlm check estimates {before} for this stage; to lower it:"
    for changes in _proposals(stage, is_in_generation(error)):
        other = _with(stage, changes)
        text = ", ".join(f"trainer.{name}={value}" for name, value in changes.items())
        yield f"{text}  ({_estimate(other)})"
    if not is_in_generation(error) and halved(stage) is not None:
        yield "`memory: {on_oom: halve}` does the first of these by itself"


def _proposals(stage: Stage, generates: bool) -> Iterator[Mapping[str, Any]]:
    args, other = arguments(stage), halved(stage)
    if not generates and other is not None:
        yield {name: value for name, value in other.settings.items() if stage.settings.get(name) != value}
    if generates and args.steps_per_generation > 1 and args.steps_per_generation % 2 == 0:
        yield {"steps_per_generation": args.steps_per_generation // 2}
    if not generates and not getattr(args, KEY, True):
        yield {KEY: True}
    if (length := getattr(args, "max_completion_length", None)) and length > 1:
        yield {"max_completion_length": length // 2}


def _with(stage: Stage, changes: Mapping[str, Any]) -> Stage:
    return replace(stage, settings={**stage.settings, **changes})


def _estimate(stage: Stage) -> str:
    try:
        return f"about {size(Forecast(stage, arguments(stage)).memory.peak)}"
    except Exception:  # the estimate does not cover every model, and settings may exclude each other
        return "no estimate"
