"""A run of one arm of `grpo_speed.py`."""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from dataclasses import replace
from typing import Any

import torch
from rlm_fast import tuning
from rlm_fast.speed import NO_SPEED
from rlm_fast.tuning import applied
from speed_arms import Arm, build
from speed_meter import Meter, Run, flat
from speed_workloads import Workload
from transformers import GenerationConfig

from rlm_plugins.rollout.generator_call import generate


def run(workload: Workload, arm: Arm, *, truth: bool = False) -> Run:
    """Train an arm and return its measurement.

    Args:
        workload: The workload.
        arm: The arm.
        truth: Compute in float32 with weights rounded to bfloat16.
    """
    torch.set_num_threads(workload.threads)
    choices = tuning.values(replace(NO_SPEED, **(arm.speed or {})))
    with applied(choices), tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        trainer = build(workload, arm, folder)
        if truth:
            trainer.model.float()
        once = begin(trainer, workload)
        meter = Meter(trainer, workload)
        trainer.train()
    meter.found.once = once
    meter.found.weights = flat(meter.trained)
    return meter.found


def begin(trainer: Any, workload: Workload) -> float:
    """Generate a token and run a forward pass on them, for the self-checks; uses no random number.

    Args:
        trainer: Not yet started.
        workload: Its workload: the generator's self-check may depend on the longest completion.

    Returns:
        CPU seconds.
    """
    began = time.process_time()
    model = trainer.model
    ids = torch.ones(1, 2, dtype=torch.long, device=model.device)
    inputs = {"input_ids": ids, "attention_mask": ids}
    every = list(range(workload.vocabulary))  # each ends a completion
    config = GenerationConfig(max_new_tokens=workload.completion, do_sample=False, eos_token_id=every, pad_token_id=0)
    is_ours = hasattr(trainer, "components")
    generator = trainer.components.generation.generator if is_ours else None
    generate(generator, model.generate, model, inputs, config)
    rows = ids.repeat(1, 2)
    with torch.no_grad():
        trainer._get_per_token_logps_and_entropies(model, rows, torch.ones_like(rows), 2)
    return time.process_time() - began
