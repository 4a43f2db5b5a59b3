"""How the policy writes (hook ``rlm_generators``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from rlm_plugins import hookimpl

if TYPE_CHECKING:
    import torch
    from transformers import GenerationConfig

    from rlm_plugins.generation.output import Generation, OnFinished


def transformers(generate: Callable[..., Any], inputs: Mapping[str, Any], config: GenerationConfig) -> torch.Tensor:
    """As transformers does it: every row is read whole, and written until the last one is done."""
    return generate(**inputs, generation_config=config)  # type: ignore[no-any-return]


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
    """The same samples sooner: each prompt is read once, rows that are done are dropped, LoRA is added to its base.

    With ``as_transformers`` they are the samples transformers would have drawn, and the random generator is left as it
    would have left it; ``inverse_cdf`` draws one number a row in place of one a word: other samples of the same
    distribution. ``merge: false`` leaves LoRA beside its base and every weight as it lies, and so saves the memory of
    copies. What the loop does not do (beams, windows, images, dropout, …) is written by transformers, and the log says
    so once.
    """
    from rlm_plugins.generation.fast_generate import write

    return write(
        generate, model, inputs, config, tell=return_logprobs, finished=on_finished, merge=merge, sampling=sampling
    )


def _dry_run(model: Any, config: GenerationConfig, **knobs: Any) -> tuple[str | None, int]:
    """As `rlm_plugins.hookspecs.rlm_generators` says."""
    from rlm_plugins.generation.dry_run import dry_run

    return dry_run(model, config, **knobs)


fast.dry_run = _dry_run  # type: ignore[attr-defined]


def vllm(generate: Callable[..., Any], inputs: Mapping[str, Any], config: GenerationConfig) -> torch.Tensor:
    """TRL's vLLM writes while it trains (`use_vllm`; `vllm_mode` and the like stand in `trainer:`), transformers else.

    It needs a GPU and was never run here: what is tested is that TRL is told.
    """
    return generate(**inputs, generation_config=config)  # type: ignore[no-any-return]


vllm.trainer_settings = {"use_vllm": True}  # type: ignore[attr-defined]


@hookimpl
def rlm_generators() -> dict[str, object]:
    return {"transformers": transformers, "fast": fast, "vllm": vllm}
