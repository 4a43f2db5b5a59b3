"""Choice of kernels and sizes by measurement: once per machine, then read from the user's cache.

A choice is a constant of a module whose best value depends on the processor. No value changes more than rounding. The
candidates are timed on a small workload without random numbers; the default is kept unless another is clearly faster.
A run records the values in its manifest, and a resumed run uses those.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from filelock import FileLock
from torch.backends.cpu import get_cpu_capability

from rlm_fast import linear_layers, sampling, tree_attention
from rlm_fast.fused_layers import fused_logprobs
from rlm_fast.linear_layers import PackedLinear, fast_linear
from rlm_fast.packed_attention import TreeAttention
from rlm_fast.speed import Speed
from rlm_fast.tree_attention import SharedPrefix, attend, attend_all, sharing_pays
from rlm_plugins.durable.files import write_file
from rlm_plugins.durable.lock import cache_folder
from rlm_plugins.errors import RlmError
from rlm_plugins.run.manifest import processor

NEVER = 2**40
"""Threshold that is never reached."""
SECONDS, ROUNDS = 0.05, 3
"""Time for a choice, and the least repetitions of each candidate; the shortest counts."""
GAIN = 0.03
"""Share of the time that a candidate must save to replace the default."""
FILE = "tuning.json"
"""File of the cache: machine → values."""
OFF = "RLM_TUNING"
"""Environment variable that turns measuring off if it is ``off``."""
Work = Callable[[], Sequence[torch.Tensor]]


def numbers(*shape: int) -> torch.Tensor:
    """Return a tensor of different numbers between -1 and 1."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).cos_().view(shape)


def products_of_layers() -> Work:
    """Products of 8 to 256 tokens with a layer's weight, forward and backward."""
    weight = numbers(768, 768)
    inputs = [numbers(n, 768) for n in (256, 64, 32, 32, 16, 16, 8, 8)]
    return lambda: [fast_linear(x, w) for x in inputs for w in (weight, weight.T)]


def products_of_few() -> Work:
    """Products of 8 to 128 tokens with weights in place, as in decoding without copies."""
    weights = numbers(1536, 576), numbers(576, 1536)
    pairs = [(numbers(n, weight.shape[1]), weight) for weight in weights for n in (128, 80, 48, 32, 16, 8)]
    return lambda: [fast_linear(x, weight) for x, weight in pairs]


def packed_products() -> Work:
    """Products of 1 to 16 sequences with layers of three sizes, as in decoding."""
    sizes = (192, 384, 768)
    calls = [(PackedLinear(numbers(size, size), None), numbers(n, size)) for size in sizes for n in (1, 4, 16)]
    return lambda: [layer(x) for layer, x in calls]


def logprob_head() -> Work:
    """Log-probs of 256 tokens over 8192 words, with their gradient."""
    hidden, weight = numbers(256, 64).requires_grad_(), numbers(8192, 64)
    target = torch.arange(256)
    return lambda: torch.autograd.grad(fused_logprobs(hidden, weight, None, target)[0].sum(), hidden)


def packed_attention() -> Work:
    """Attention over a prompt with eight completions, with its gradient."""
    sizes, heads = [48, *[24] * 8], 6
    attention = TreeAttention(tuple(sizes), (-1, *[0] * 8), torch.device("cpu"))
    query, key, value = (numbers(1, n, sum(sizes), 64).requires_grad_() for n in (heads, 2, 2))
    return lambda: torch.autograd.grad(attention(query, key, value, None).square().sum(), (query, key, value))


def small_micro_batches() -> Work:
    """Half of a layer over 4096 tokens, in the micro-batches of a model with four such layers."""
    size, model_size = 128, 4 * 4 * 128**2
    up, down = numbers(size, size).requires_grad_(), numbers(size, size)
    inputs = numbers(4096, size).split(linear_layers.PRODUCTS // model_size)

    def work() -> list[torch.Tensor]:
        gradient = torch.zeros_like(up)
        for x in inputs:
            hidden = torch.nn.functional.silu(torch.nn.functional.rms_norm(x, (size,)) @ up)
            gradient += torch.autograd.grad((x + hidden @ down).sum(), up)[0]
        return [gradient]

    return work


def token_argmax() -> Work:
    """Return the argmax over the vocabulary of 16 sequences."""
    scores = numbers(16, 2**15)
    return lambda: [sampling.argmax(scores)]


def shared_prefix() -> Work:
    """Return the attention of 16 sequences of two prompts, for prompts of four lengths, shared or copied."""
    sequences, heads, d = 16, 3, 64
    query, own = numbers(sequences, heads, 3, d), numbers(sequences, heads, 8, d)
    prefix_of = torch.arange(sequences) // 8
    pieces: list[tuple[SharedPrefix | None, torch.Tensor]] = []
    for tokens in (8, 24, 72, 216):
        keys = numbers(2, heads, tokens, d)
        if sharing_pays(sequences - 2, keys):
            pieces.append((SharedPrefix([(keys, keys)], prefix_of, None), own))
        else:
            pieces.append((None, torch.cat([keys[prefix_of], own], 2)))

    def attention(prefix: SharedPrefix | None, keys: torch.Tensor) -> torch.Tensor:
        if prefix is None:
            return attend(query.transpose(1, 2), keys, keys, None, 0.125)[0].transpose(1, 2)
        return attend_all([prefix], 0, query, keys, keys, None, 0.125)

    return lambda: [attention(*piece) for piece in pieces]


@dataclass(frozen=True)
class Choice:
    """A constant of a module that is chosen by measurement.

    Args:
        module, name: The constant; its value is the default.
        candidates: Values to compare with the default.
        workload: Returns a call that is timed, built anew for each value.
        text: Its meaning, which the value follows.
    """

    module: ModuleType
    name: str
    candidates: tuple[int, ...]
    workload: Callable[[], Work]
    text: str

    @property
    def value(self) -> int:
        return int(getattr(self.module, self.name))

    def set(self, value: int) -> None:
        setattr(self.module, self.name, value)


CHOICES = {
    "onednn_tokens": Choice(
        linear_layers, "MIN_TOKENS", (16, 32, 128, NEVER), products_of_layers, "tokens from which oneDNN is used:"
    ),
    "swapped_tokens": Choice(
        linear_layers, "MAX_SWAPPED", (0, 32, 96, 192), products_of_few, "tokens below which a product is transposed:"
    ),
    "packed_weight": Choice(
        linear_layers,
        "MIN_WEIGHT",
        (2**15, 2**19, NEVER),
        packed_products,
        "numbers of a weight from which it is packed:",
    ),
    "head_logits": Choice(linear_layers, "LOGITS", (2**18, 2**19, 2**20), logprob_head, "logits at a time:"),
    "attention_pairs": Choice(
        linear_layers,
        "PAIRS",
        (2**8, 2**10, 2**14, 2**16),
        packed_attention,
        "masked pairs up to which attention calls are joined:",
    ),
    "merged_products": Choice(
        linear_layers,
        "PRODUCTS",
        (2**28, 2**29),
        small_micro_batches,
        "products up to which micro-batches are merged:",
    ),
    "argmax_piece": Choice(
        sampling, "PIECE", (64, 256, NEVER), token_argmax, "logits in which argmax searches at a time:"
    ),
    "shared_keys": Choice(
        tree_attention,
        "MIN_SHARED_KEYS",
        (2**14, 2**15, 2**18, NEVER),
        shared_prefix,
        "keys that sharing a prompt must save:",
    ),
}
"""All choices by their name in the manifest."""


def measure() -> dict[str, int]:
    """Return the fastest value of each choice, by key, in a fraction of a second; all values stay as they are."""
    return {key: _fastest(choice) for key, choice in CHOICES.items()}


def _fastest(choice: Choice) -> int:
    # CPU time of this thread: other processes may share the cores.
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    default, workloads = choice.value, {}
    try:
        for value in (default, *choice.candidates):
            choice.set(value)
            workloads[value] = choice.workload()
        seconds = dict.fromkeys(workloads, float("inf"))
        end, rounds = time.perf_counter() + SECONDS, 0
        while rounds < ROUNDS or time.perf_counter() < end:
            for value, workload in workloads.items():
                choice.set(value)
                start = clock()
                workload()
                seconds[value] = min(seconds[value], clock() - start)
            rounds += 1
    finally:
        choice.set(default)
    fastest = min(seconds, key=seconds.__getitem__)
    return fastest if seconds[fastest] < (1 - GAIN) * seconds[default] else default


@contextlib.contextmanager
def applied(values: Mapping[str, int]) -> Iterator[None]:
    """Use these values inside the context; a key that no choice has is ignored."""
    original = {key: choice.value for key, choice in CHOICES.items() if key in values}
    try:
        for key in original:
            CHOICES[key].set(values[key])
        yield
    finally:
        for key, value in original.items():
            CHOICES[key].set(value)


def values(*speeds: Speed) -> dict[str, int]:
    """Return the values for a run, by key; empty (the defaults) if no stage has `tune_kernels`, or on a GPU."""
    is_enabled = any(speed.tune_kernels and not speed.portable for speed in speeds) and os.environ.get(OFF) != "off"
    return tuned() if is_enabled and not torch.accelerator.is_available() else {}


def tuned() -> dict[str, int]:
    """Return the values for this processor, number of threads and version of PyTorch; measured at the first call."""
    file, key = cache_folder() / FILE, _machine()
    cache = _read(file)
    if key in cache:
        return cache[key]
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # without a cache every run measures
            file.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(f"{file}.lock"))  # runs that start at once use one measurement
        cache = _read(file)
        if key not in cache:
            cache[key] = measure()
            with contextlib.suppress(RlmError):
                write_file(file, json.dumps(cache, indent=1) + "\n")
    return cache[key]


def line(speed: Speed) -> str:
    """Return the line of ``rlm check`` on the values of a stage."""
    measured, texts = values(speed), []
    for key, choice in CHOICES.items():
        value = measured.get(key, choice.value)
        texts.append(f"{choice.text} {'never' if value == NEVER else f'{value:,}'}")
    return f"kernels: {'; '.join(texts)} ({f'measured on {processor()}' if measured else 'defaults, not measured'})"


def _machine() -> str:
    """Return the cache key: processor, threads, version of torch, and candidates."""
    choices = [(key, choice.value, *choice.candidates) for key, choice in CHOICES.items()]
    digest = hashlib.sha256(json.dumps(sorted(choices)).encode()).hexdigest()[:8]
    chip = f"{processor()}; {get_cpu_capability()}"
    return f"{chip}; {torch.get_num_threads()} threads; torch {torch.__version__}; choices {digest}"


def _read(file: Path) -> dict[str, dict[str, int]]:
    """Return the cache; empty if there is none, or if it is damaged."""
    try:
        cache = json.loads(file.read_text())
        return {machine: {key: int(x) for key, x in values.items()} for machine, values in cache.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
