"""A decoding loop that reads each prompt once and lets go of rows that are done: the samples of transformers, sooner.

Transformers' `generate` prepares everything (settings, processors of the logits, stopping criteria, the cache) and
hands it over (`custom_generate`); only its loop is ours. Who was dropped is never missed: no row looks at another, and
each takes its own share of the noise that is drawn for all.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Int

from rlm_plugins.generation.active_rows import Live
from rlm_plugins.generation.llama_step_check import step_of
from rlm_plugins.generation.merged_lora import merged
from rlm_plugins.generation.output import Generation, OnFinished, thoughts
from rlm_plugins.generation.sampling import AsMultinomial, Draw, greedy
from rlm_plugins.generation.support import why_not


class Unfit(Exception):
    """Why this loop cannot stand in for transformers' own; nothing was drawn yet."""


@torch.no_grad()
def decode(
    model: Any,
    input_ids: Int[torch.Tensor, "B P"],
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    *,
    draw: Draw | None = None,
    merge: bool = True,
    tell: bool = False,
    finished: OnFinished | None = None,
    **model_kwargs: Any,
) -> Int[torch.Tensor, "B W"] | Generation:
    """What `custom_generate` of transformers' `generate` may be: prompts and what was written after them.

    Args:
        model: The transformers model; adapters are within.
        input_ids: Padded on the left.
        logits_processor: Applied to the logits of the rows that are left.
        stopping_criteria: Likewise.
        generation_config: Prepared.
        draw: Chooses tokens where the config samples; None: as transformers does.
        merge: Whether adapters are added to their base meanwhile.
        tell: Whether log-probabilities and entropies are asked for.
        finished: Is told of rows as soon as they are done.
        **model_kwargs: Prepared: the mask, the positions, the cache.

    Raises:
        Unfit: Something is asked for that this loop does not do.
    """
    if reason := why_not(model, logits_processor, stopping_criteria, generation_config, model_kwargs):
        raise Unfit(reason)
    step = step_of(model) if merge else None
    live = Live(model, input_ids, generation_config, model_kwargs, logits_processor, step)
    choose = (draw or AsMultinomial()) if generation_config.do_sample else greedy
    told: list[tuple[torch.Tensor, ...]] | None = [] if tell else None
    with merged(model) if merge and step is None else nullcontext():
        logits = live.read_prompts()
        with torch.inference_mode() if live.is_stepping else nullcontext():  # a model may keep what it makes
            while True:
                token = choose(live.filtered(logits), live.rows, live.count)
                if told is not None:
                    told.append((live.rows, *thoughts(logits, token, generation_config)))
                live.write(token)
                done = stopping_criteria(live.ids, None)
                if done.any():  # asked once a token: a GPU waits for the answer
                    if finished is not None:
                        with torch.inference_mode(False), torch.no_grad():
                            finished(live.rows[done].tolist(), live.ids[done, input_ids.shape[1] :].tolist())
                    if done.all():
                        break
                    live.let_go(done)
                logits = live.read_tokens()
    return live.all_ids if told is None else Generation.of(live.all_ids, told)
