"""What the decoding loop would say of a model and of how it is to write, before there is a weight."""

from __future__ import annotations

import logging
from typing import Any

import torch

from rlm_plugins.generation.merged_lora import bytes_of_copies
from rlm_plugins.generation.support import why_not, why_not_model
from rlm_plugins.packing.forward import causal_model

logger = logging.getLogger(__name__)


def dry_run(model: Any, config: Any, *, merge: bool = True, **_: Any) -> tuple[str | None, int]:
    """Why transformers will write instead (None: it will not), and the bytes of what stands beside the model meanwhile.

    Args:
        model: On the meta device, with its adapters, in the mode it will be in. Transformers' `generate` prepares the
            call as it always does; only the loop is not begun.
        config: transformers' GenerationConfig.
        merge: As the generator has it.
    """
    if reason := why_not_model(model):
        return reason, 0
    said: list[str | None] = []

    def look(
        inner: Any,
        input_ids: Any,
        *,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **given: Any,
    ) -> Any:
        said.append(why_not(inner, logits_processor, stopping_criteria, generation_config, given))
        return input_ids

    ids = torch.zeros(1, 2, dtype=torch.long)
    base = causal_model(model)
    base.register_parameter("_here", torch.nn.Parameter(torch.empty(0)))  # `generate` asks the first one where it is
    try:
        model.generate(input_ids=ids, attention_mask=ids + 1, generation_config=config, custom_generate=look)
    except Exception:  # what cannot be prepared without weights is seen when they are there
        logger.debug("a call of `generate` could not be prepared", exc_info=True)
    finally:
        del base._here
    reason = next(iter(said), None)
    return reason, bytes_of_copies(model) if merge and reason is None else 0
