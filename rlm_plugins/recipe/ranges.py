"""Ranges of the numbers in a recipe, and their order: values outside are valid for their types, but are typing errors.

TRL, transformers and PEFT document some of these limits and check few of them: a run with ``adam_beta2: 1.48`` trains.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from rlm_plugins.algorithm import SLOTS
from rlm_plugins.errors import RecipeError
from rlm_plugins.messages import expected
from rlm_plugins.recipe.paths import Path, format_path
from rlm_plugins.recipe.sections import SECTIONS


@dataclass(frozen=True)
class Range:
    """An interval of plausible values.

    Args:
        low, high: Its ends.
        above: True if `low` itself is excluded.
        below: True if `high` itself is excluded.
        also: A value outside it with a meaning of its own.
        reason: Why values outside are refused, where that is not obvious.
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False
    also: float | None = None
    reason: str = ""

    def contains(self, value: float) -> bool:
        """Return True if a value is in the range; False for NaN."""
        from_low = value > self.low if self.above else value >= self.low
        to_high = value < self.high if self.below else value <= self.high
        return value == self.also or (from_low and to_high)

    def limit_text(self, value: float) -> str:
        """Return the limit that a value violates, as a phrase.

        >>> Range(0, 1, below=True).limit_text(1.5), Range(1, also=-1).limit_text(-5)
        ('less than 1', '-1, or 1 or more')
        """
        if math.isnan(value):
            return "a finite number"
        if value > self.high or (self.below and value == self.high):
            return f"less than {_text(self.high)}" if self.below else f"{_text(self.high)} or less"
        low = f"more than {_text(self.low)}" if self.above else f"{_text(self.low)} or more"
        return f"{self.also:g}, or {low}" if self.also is not None else low


def _text(number: float) -> str:
    return f"{number:,.0f}" if 1e6 <= abs(number) < 1e15 and number % 1 == 0 else f"{number:g}"


_COUNT = Range(1, 1_000_000)
_STEPS = Range(0, 1_000_000_000)
_INTERVAL = Range(0, 1_000_000_000, above=True, reason="below 1 it is a share of all steps")
_TOKENS = Range(1, 10_000_000)
_EXAMPLES = Range(0, 1_000_000_000)
_SHARE = Range(0, 1)
_SEED = Range(0, 2**32 - 1, reason="NumPy takes seeds of 32 bits")
_PORT = Range(1, 65_535)
_SIZE = Range(1, 1_000_000)
_AVERAGE = Range(0, 1, below=True, reason="an average over past gradients with this decay never converges at 1 or more")
_WEIGHT = Range(-1e6, 1e6, reason="the sum of rewards would be this term alone")
_RATIO = Range(0, 1e4, reason="ratios this far from 1 do not occur; `null` or a large value in the range turns it off")
_RATE = Range(0, 100, reason="the weights would diverge in the first step")

_GENERATED = Range(1, 10_000_000, reason="examples are generated in memory")
_FEW = Range(1, 10_000, reason="each of them is generated on its own")
_INTEGER = Range(-1e12, 1e12, reason="no count or size is that large")
_FLOAT = Range(-3e38, 3e38, reason="it does not fit into float32")
"""The ranges of every other number."""

RANGES: dict[str, Range] = {
    # optimizer
    "learning_rate": _RATE,
    "weight_decay": Range(0, 100, reason="weights shrink by learning rate × this in every step"),
    "adam_beta1": _AVERAGE,
    "adam_beta2": _AVERAGE,
    "adam_epsilon": Range(0, 1, above=True, reason="it is added to the root of the average squared gradient"),
    "max_grad_norm": Range(0),
    "warmup_steps": _STEPS,
    "label_smoothing_factor": Range(0, 1, below=True),
    "neftune_noise_alpha": Range(0, 1000),
    "router_aux_loss_coef": Range(0, 100),
    "center_rewards_coefficient": Range(0, 1000),
    # length of a run, and what happens every so often
    "max_steps": Range(1, 1_000_000_000, also=-1, reason="-1: `num_train_epochs` counts"),
    "num_train_epochs": Range(0, 1_000_000, above=True),
    "logging_steps": _INTERVAL,
    "save_steps": _INTERVAL,
    "eval_steps": _INTERVAL,
    "eval_delay": _STEPS,
    "eval_accumulation_steps": _COUNT,
    "save_total_limit": _COUNT,
    "torch_empty_cache_steps": _COUNT,
    "ref_model_sync_steps": _COUNT,
    "ref_model_mixup_alpha": _SHARE,
    "every": _STEPS,
    "rows": _EXAMPLES,
    "samples": Range(0, 10_000, reason="each prompt is completed so often in an evaluation"),
    # batch
    "per_device_train_batch_size": _COUNT,
    "per_device_eval_batch_size": _COUNT,
    "gradient_accumulation_steps": _COUNT,
    "generation_batch_size": Range(1, 100_000_000),
    "steps_per_generation": _COUNT,
    "num_iterations": Range(1, 10_000),
    "num_generations": Range(1, 100_000),
    "num_generations_eval": Range(1, 100_000),
    "num_completions": Range(1, 100_000),
    "batch_size": _COUNT,
    "refill": Range(1, 10_000),
    # generation
    "max_completion_length": _TOKENS,
    "max_new_tokens": _TOKENS,
    "max_length": _TOKENS,
    "max_tokens_per_micro_batch": Range(1, 1_000_000_000),
    "temperature": Range(0, 100, above=True, reason="tokens would be drawn almost uniformly from the whole vocabulary"),
    "top_p": Range(0, 1, above=True),
    "top_k": Range(0, 10_000_000, reason="0 keeps all tokens"),
    "min_p": _SHARE,
    "repetition_penalty": Range(0, 100, above=True, reason="1 is none"),
    "max_tool_calling_iterations": Range(0, 10_000),
    "num_completions_to_print": Range(0, 1_000_000),
    "pad_to_multiple_of": Range(1, 65_536),
    # LoRA
    "r": Range(1, 16_384, reason="a rank above the width of the model adds nothing"),
    "lora_alpha": Range(1, 1_000_000, reason="the adapter is scaled by lora_alpha / r"),
    "rank_pattern": Range(1, 16_384),
    "alpha_pattern": Range(1, 1_000_000),
    "lora_dropout": Range(0, 1, below=True, reason="at 1 the adapter has no gradient"),
    "qalora_group_size": _COUNT,
    "layers_to_transform": Range(0, 10_000),
    # machine
    "seed": _SEED,
    "data_seed": _SEED,
    "dataloader_num_workers": Range(0, 1024),
    "dataloader_prefetch_factor": Range(1, 10_000),
    "dataset_num_proc": Range(1, 1024),
    "ddp_timeout": Range(1, 100_000_000),
    "ddp_bucket_cap_mb": _COUNT,
    "vllm_gpu_memory_utilization": Range(0, 1, above=True),
    "vllm_tensor_parallel_size": Range(1, 1024),
    "vllm_max_model_length": Range(1, 100_000_000),
    "vllm_server_port": _PORT,
    "vllm_group_port": _PORT,
    "vllm_server_timeout": Range(0, 1_000_000, above=True),
    "vllm_importance_sampling_clip_max": Range(0, above=True),
    "vllm_importance_sampling_clip_min": Range(0),
    "vllm_importance_sampling_cap": Range(0, above=True),
    "local_rank": Range(-1, 100_000, reason="a launcher sets it"),
    "timeout": Range(0, 2_592_000, above=True, reason="seconds: at most 30 days"),
    # knobs of parts
    "weight": _WEIGHT,
    "beta": Range(-1e4, 1e4, reason="the loss would be this term alone"),
    "eps": Range(0, 100, reason="it only keeps a division by a standard deviation finite"),
    "epsilon": _RATIO,
    "epsilon_low": _RATIO,
    "epsilon_high": Range(-1, 1e4, above=True, reason=f"{_RATIO.reason}; below 0 it is a cap of `cispo` below 1"),
    "hidden": _SIZE,
    "intermediate": _SIZE,
    "layers": Range(1, 10_000),
    "heads": Range(1, 10_000),
    "max_positions": Range(1, 100_000_000),
    "train_rows": _GENERATED,
    "games": _GENERATED,
    "test_games": _GENERATED,
    **dict.fromkeys(
        ("attempts", "branches", "continuations", "forks", "opponents", "peers", "trunks", "wordings"), _FEW
    ),
    "test_rows": _EXAMPLES,
    "max_rows": _EXAMPLES,
}
"""Key of a recipe → its range, wherever the key stands: field of TRL or PEFT, key of a section, or knob of a part."""


def problem(key: str, value: object) -> tuple[str, str]:
    """Return the problem of a value, and a hint; both are empty if it is in its range or not a number."""
    limits = RANGES.get(key, _INTEGER if isinstance(value, int) else _FLOAT)
    if not is_number(value) or limits.contains(value):
        return "", ""
    return expected(limits.limit_text(value), value), limits.reason


def is_number(value: object) -> TypeGuard[float]:
    """Return True for an integer or a float, False for a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


_SECTIONS = {*SECTIONS, *SLOTS, "lora", "generation_kwargs"}
ORDERED = (
    ("low", "high"),
    ("lowest", "highest"),
    ("minimum", "maximum"),
    ("min_decay", "max_decay"),
    ("min_digits", "digits"),
    ("min_carries", "max_carries"),
)
"""Pairs of knobs of one part of which the first is not larger than the second."""


def check_values(body: Mapping[str, Any], stage_path: Path) -> None:
    """Check every number of a resolved stage.

    Args:
        body: The stage as plain data, defaults included.
        stage_path: Its address in the recipe.

    Raises:
        RecipeError: The first number that is out of range.
    """
    for path, keyed in _mappings(body, stage_path):
        for key, value in keyed.items():
            for inner_path, number in _numbers(key, value, (*path, key)):
                text, hint = problem(key, number)
                if text:
                    raise RecipeError(text, where=format_path(inner_path), hint=hint)
        for first, second in ORDERED:
            low, high = keyed.get(first), keyed.get(second)
            if is_number(low) and is_number(high) and low > high:
                allowed = f"`{first}` not larger than `{second}`"
                raise RecipeError(f"expected {allowed}, got {low} and {high}", where=format_path((*path, first)))


def _mappings(body: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield sections, parts and the adapter; not the values of knobs, whose keys are labels of the user."""
    yield path, body
    for key, value in body.items():
        entries = enumerate(value) if isinstance(value, list) else [(None, value)]
        for number, inner in entries if key in _SECTIONS else ():
            if isinstance(inner, Mapping):
                yield from _mappings(inner, (*path, key) if number is None else (*path, key, number))


def _numbers(key: str, value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield a number, those of a list, the ends of a schedule, or the values of a pattern of modules."""
    if isinstance(value, list):
        yield from (((*path, number), inner) for number, inner in enumerate(value))
    elif isinstance(value, Mapping):
        is_pattern = key.endswith("_pattern")
        yield from (((*path, name), inner) for name, inner in value.items() if is_pattern or name in ("from", "to"))
    else:
        yield path, value
