"""The generator ``fast``. Importing this does not load torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch
    from transformers import GenerationConfig

    from rlm_plugins.rollout.generator_call import Generation, OnFinished


def fast(
    generate: Callable[..., Any],
    model: Any,
    inputs: Mapping[str, Any],
    config: GenerationConfig,
    return_logprobs: bool,
    on_finished: OnFinished | None = None,
    *,
    sampling: Literal["as_transformers", "inverse_cdf"] = "as_transformers",
    merge: bool = True,
) -> torch.Tensor | Generation:
    """The samples of transformers in less time: shared prefill, early eviction, merged LoRA.

    Each distinct prompt is prefilled once, and finished sequences leave the batch. For long completions LoRA is merged
    into copies of its base weights; for short ones all weights are used in place. With ``as_transformers`` samples and
    RNG state are those of transformers. ``inverse_cdf`` draws one random number per sequence instead of one per
    vocabulary entry: other samples of the same distribution. ``merge: false`` never copies weights, to save their
    memory. Unsupported calls and models (beams, sliding windows, images, dropout, …) fall back to transformers, with
    one line in the log.
    """
    from rlm_fast.fast import fast_generate

    return fast_generate(
        generate,
        model,
        inputs,
        config,
        return_logprobs=return_logprobs,
        on_finished=on_finished,
        merge=merge,
        sampling=sampling,
    )


def _dry_run(model: Any, config: GenerationConfig, **knobs: Any) -> tuple[str | None, int]:
    """Return why `fast` would fall back, or None, and the bytes of its copies (see `rlm_generators`)."""
    from rlm_fast.fast import dry_run

    return dry_run(model, config, **knobs)


fast.dry_run = _dry_run  # type: ignore[attr-defined]
