"""Load of a stage on this machine: the longest prompts and completions of its data, and settings that cost memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from rlm_fast.decoding_plans import decoding_plans
from rlm_fast.load import Load
from rlm_fast.micro_batch import micro_batch
from rlm_fast.prefix_tree import common_length
from rlm_fast.stage_features import StageFeatures
from rlm_plugins.data.images import images_of, messages_of, without_images
from rlm_plugins.models.pretrained import tokenizer_of
from rlm_plugins.rewards.columns import text_of
from rlm_plugins.stage import Stage

EXAMPLES = 500
"""Training examples whose lengths are measured."""
IMAGE_EXAMPLES = 4
"""Training examples whose images are measured, since that takes as long as reading them."""
LOADED_LATER = 96 * 2**20
"""Bytes of libraries and buffers that a run needs after its start: Arrow's, oneDNN's kernels, plots."""
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with the memory limit of a Linux container, of versions 2 and 1 of control groups."""


def workload(stage: Stage, args: Any) -> Load:
    """Return the load of a stage.

    Args:
        stage: With its environment and model specification.
        args: Config of the trainer.
    """
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
    """Yield the memory limits of the container."""
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
