"""The fast paths on a GPU, ``make gpu``: first that they equal the plain ones, then the time of a step beside TRL.

The arms, workloads and meters are those of `grpo_speed.py`. In float32, completions must be those of stock TRL, and
gradients and weights equal but for rounding. In bfloat16, the errors of gradients and of log-probs in decoding are
compared with those of TRL and of transformers. Only then seconds are measured: wall-clock time of a step and peak
memory, with the weights. It becomes the page gpu.md of the results.

``--device cpu`` runs the same with tiny models and writes nothing. Without a GPU the exit status is 2.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
if "cpu" in sys.argv:  # before torch looks for a GPU
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
from peft import LoraConfig, get_peft_model
from rlm_fast import fused_layers
from rlm_fast.fast import fast_generate
from rlm_fast.pack import layouts
from rlm_fast.packed_forward import packed_logprobs, prepare
from speed_arms import ARMS, DEFAULT, EVERY, FASTEST, OURS, STOCK, Arm
from speed_gate import GRADIENT_REAL, check, half_precision
from speed_run import run
from speed_workloads import B1, B5, GATE, Workload
from speed_world import LORA, model
from transformers import GenerationConfig

PAGE = Path(__file__).resolve().parent / "results/gpu.md"
DECODING = 1.5
"""Maximum error of log-probs in decoding over that of transformers, in bfloat16."""
BF16, MINE = Arm(half=True, mixed=True), Arm(EVERY, FASTEST, half=True, mixed=True)
TABLE: dict[str, tuple[Arm, str | None]] = {
    "TRL, bf16, checkpointing": (replace(BF16, checkpointing=True), None),
    "TRL, bf16": (BF16, None),
    "ours, bf16": (MINE, None),
    "TRL, float32": (Arm(), None),
    "ours, float32": (Arm(EVERY, FASTEST), None),
    "TRL, 4-bit": (replace(BF16, four_bit=True), "bitsandbytes"),
    "ours, 4-bit": (replace(MINE, four_bit=True), "bitsandbytes"),
    "TRL, vLLM colocated with sleep": (replace(BF16, vllm=True), "vllm"),
    "ours, vLLM colocated with sleep": (replace(MINE, vllm=True), "vllm"),
}
"""Row of the table → its arm, and the package that it requires."""
LARGE = Workload(
    about="0.34 G parameters, random weights, prompts of 128–256 tokens, completions of at most 256, 64 sequences",
    size="large",
    prompts=(128, 256),
    completion=256,
    mean=128,
    accumulation=8,
    warm_up=1,
)
WORKLOADS = {"cuda": {"B5": B5, "G1": LARGE}, "cpu": {"tiny": replace(GATE["ragged"], steps=1)}}


@dataclass(frozen=True)
class Cost:
    """Seconds of a step, completion tokens per second, and GiB of the device at its peak (0: on a CPU)."""

    seconds: float
    pace: float
    peak: float


def equality() -> Iterator[str]:
    """Yield a line per check; leave with its reason if one fails."""
    smallest, fused_layers.MIN_PRODUCTS = fused_layers.MIN_PRODUCTS, 0  # the layers of tiny models are fused, too
    arms = [arm for arm in (DEFAULT, STOCK, OURS) if torch.cuda.is_available() or arm != STOCK]
    for name, workload in GATE.items():
        far = check(name, {arm: run(workload, ARMS[arm]) for arm in arms}, GRADIENT_REAL)
        distances = f"gradient {far['gradient']:.1e}, weights {far['weights']:.1e} away"
        yield f"float32, {name}: the same completions; {distances}"
    for mixed in (False, True):
        half = half_precision(mixed=mixed)
        which = "weights and autocast" if mixed else "weights"
        yield f"bf16 {which}, error of a gradient: {half[STOCK]:.1e} with TRL, {half[OURS]:.1e} with ours"
    yield from attention()
    yield from decoding()
    fused_layers.MIN_PRODUCTS = smallest


def attention() -> Iterator[str]:
    """Yield a line per attention of transformers: errors of padded and packed passes in bfloat16, against float32."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ids = torch.arange(8 * 48, device=device).view(8, 48) * 7 % 61 + 3
    ids[:, :24] = ids[:1, :24]  # a shared prompt
    exact = _with_gradient(padded_logp, model(B1).to(device), ids)
    for name in ("sdpa", "flash_attention_2", "flex_attention"):
        if name != "sdpa" and (device == "cpu" or (name == "flash_attention_2" and not find_spec("flash_attn"))):
            yield f"attention {name}: not run here"
            continue
        policy = model(B1).to(device, torch.bfloat16)
        policy.set_attn_implementation(name)
        padded, packed = (_with_gradient(way, policy, ids) for way in (padded_logp, packed_logp))
        for what, x, y, true in zip(("log-probs", "gradient"), padded, packed, exact, strict=True):
            far = [((z - true).norm() / true.norm()).item() for z in (x, y)]
            if not far[1] <= DECODING * far[0]:
                sys.exit(f"attention {name}: {what} are {far[1]:.1e} from float32 if packed, padded {far[0]:.1e}")
            yield f"attention {name}, bf16, relative error of {what}: {far[0]:.1e} padded, {far[1]:.1e} packed"


def _with_gradient(way: Any, policy: Any, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probs of the last 24 tokens of each sequence, and the gradient of their sum, in float32."""
    policy.zero_grad()
    logp = way(policy, ids, torch.ones_like(ids), 24)
    logp.sum().backward()
    return logp.detach(), torch.cat([x.grad.float().flatten() for x in policy.parameters()])


def padded_logp(policy: Any, ids: torch.Tensor, attention_mask: torch.Tensor, width: int) -> torch.Tensor:
    """Return the log-probs (B, width) of completions by the usual forward pass."""
    z = policy(input_ids=ids, attention_mask=attention_mask).logits[:, -width - 1 : -1].float().log_softmax(-1)
    return z.gather(-1, ids[:, -width:, None]).squeeze(-1)


def packed_logp(policy: Any, ids: torch.Tensor, attention_mask: torch.Tensor, width: int) -> torch.Tensor:
    """Return the same by the padding-free pass; leave with its reason if it is off."""
    support = prepare(policy, partial(padded_logp, policy), temperature=1.0)
    if support.reason is not None:
        sys.exit(f"attention {policy.config._attn_implementation}: {support.reason}")
    (layout,) = layouts(ids, attention_mask, width, relative=support.relative)
    return layout.unpack(packed_logprobs(policy, layout)[0])


@torch.no_grad()
def decoding() -> Iterator[str]:
    """Yield a line per dtype: error of the log-probs of greedy decoding, against a float32 pass over its tokens."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for dtype in (torch.float32, torch.bfloat16):
        policy = get_peft_model(model(B1), LoraConfig(task_type="CAUSAL_LM", **LORA)).eval()
        policy.generation_config.eos_token_id = None  # a default that no call overrides with None
        torch.manual_seed(2)
        for name, x in policy.named_parameters():
            x.data = (torch.randn_like(x) * 0.05 if "lora_B" in name else x.data).bfloat16().float().to(device)
        exact, usual, ours = (_logp(policy, dtype, way) for way in ("float32", "transformers", "fast"))
        far = [(found - exact(ids)).abs().mean().item() for ids, found in (usual, ours)]
        most = 1e-5 if dtype == torch.float32 else DECODING * far[0]
        if not far[1] <= most:
            sys.exit(
                f"decoding in {dtype}: log-probs are {far[1]:.1e} from float32, those of transformers {far[0]:.1e}"
            )
        yield f"decoding, {dtype}, error of log-probs: {far[0]:.1e} with transformers, {far[1]:.1e} with ours"


def _logp(policy: Any, dtype: torch.dtype, way: str) -> Any:
    """Return log-probs of decoded tokens, with the ids; or, for float32, a function of the ids."""
    ids = torch.arange(8 * 16, device=policy.device).view(8, 16) * 7 % 61 + 3

    def exact(sequences: torch.Tensor) -> torch.Tensor:
        z = policy.float()(input_ids=sequences).logits[:, 15:-1].log_softmax(-1)
        return z.gather(-1, sequences[:, 16:, None]).squeeze(-1)

    if way == "float32":
        return exact
    for name, x in policy.named_parameters():
        x.data = x.data if "lora_" in name else x.data.to(dtype)
    options = {"max_new_tokens": 40, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if way == "fast":
        made: Any = fast_generate(policy.generate, policy, inputs, GenerationConfig(**options), return_logprobs=True)
        return made.ids, made.logp
    config = GenerationConfig(**options, return_dict_in_generate=True, output_logits=True)
    out = policy.generate(**inputs, generation_config=config)
    z = torch.stack(out.logits, 1).float().log_softmax(-1)
    return out.sequences, z.gather(-1, out.sequences[:, 16:, None]).squeeze(-1)


def cost(workload: Workload, arm: Arm) -> Cost:
    """Train an arm and return what a step costs."""
    gc.collect()
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    made = run(workload, arm)
    peak = torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0
    return Cost(made.wall / workload.steps, made.tokens / made.wall, peak)


def measure(workloads: Mapping[str, Workload], rounds: int) -> Iterator[str]:
    """Yield the lines of the table: medians over rounds in rotating order."""
    yield "| | arm | step | tokens/s | peak memory |\n|---|---|--:|--:|--:|"
    for name, workload in workloads.items():
        rows = {row: arm for row, (arm, package) in TABLE.items() if package is None or find_spec(package)}
        costs: dict[str, list[Cost]] = {row: [] for row in rows}
        for turn in range(rounds):
            order = [*rows][turn % len(rows) :] + [*rows][: turn % len(rows)]
            for row in order:
                costs[row].append(cost(workload, rows[row]))
                print(f"{name}, {row}: {costs[row][-1].seconds:.2f} s", file=sys.stderr, flush=True)
        for row, found in costs.items():
            seconds, pace, peak = (median(getattr(one, key) for one in found) for key in ("seconds", "pace", "peak"))
            yield f"| {name} | {row} | {seconds:.3f} s | {pace:.0f} | {f'{peak:.2f} GiB' if peak else '–'} |"
    missing = sorted({package for _, package in TABLE.values() if package is not None and not find_spec(package)})
    if missing:
        yield f"\nNot measured, because the package is not installed: {', '.join(missing)}."


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, measure, print; write the page on a GPU."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: tiny models, nothing is written"
    )
    parser.add_argument("--rounds", type=int, help="of the table: 3, on a CPU 1; 0: only the checks")
    asked = parser.parse_args(arguments)
    if asked.device == "cuda" and not torch.cuda.is_available():
        print(
            "`make gpu` requires a GPU that this build of PyTorch supports, got none; "
            "`python benchmarks/gpu.py --device cpu` runs the same checks with tiny models.",
            file=sys.stderr,
        )
        return 2
    warnings.filterwarnings("ignore", category=FutureWarning)
    on = torch.cuda.get_device_name() if asked.device == "cuda" else "CPU, tiny models"
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "trl", "peft"))
    lines = [f"# Fast paths on {on}", f"\n`make gpu`, {datetime.date.today()}; {packages}.\n", "## Equal\n"]
    lines += [f"- {line}" for line in equality()]
    rounds = (3 if asked.device == "cuda" else 1) if asked.rounds is None else asked.rounds
    if rounds:
        lines += ["\n## A step\n"]
        lines += [f"- {name}: {workload.about}" for name, workload in WORKLOADS[asked.device].items()]
        lines += ["", *measure(WORKLOADS[asked.device], rounds)]
    text = "\n".join(lines) + "\n"
    print(text)
    if asked.device == "cuda" and rounds:
        PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
