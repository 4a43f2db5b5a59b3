"""The generator ``fast``: the decoding loop if it supports a call, else `generate` of transformers.

Before first use, once per model and mode, the loop is compared with transformers. Known differences are listed in
`loop.py`; this check covers all others, such as state outside the KV cache.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from jaxtyping import Float, Int

from rlm_fast.linear_layers import copied_bytes, is_cast, merging_pays
from rlm_fast.loop import UnsupportedCall, decode, why_unsupported_call, why_unsupported_model
from rlm_fast.packed_forward import MODEL_ERRORS, USES_RNG
from rlm_fast.sampling import sample_inverse_cdf
from rlm_plugins.equation.rng_state import temporary_rng_state
from rlm_plugins.models.adapters import causal_model
from rlm_plugins.rollout.generator_call import Generation, OnFinished

TIE = 0.05
"""Share of the range of logits within which two tokens count as ties: rounding depends on the batch size."""
_RESULTS: WeakKeyDictionary[Any, dict[tuple[bool, bool], str | None]] = WeakKeyDictionary()
"""Result per model in train mode and in eval mode, which may differ by dropout, with and without copied weights."""
_WITHOUT_SHARING: WeakSet[Any] = WeakSet()
"""Models that support the loop, but no prefix that different prompts share."""
WIDTH = 8
"""Tokens of the prompts of the self-check, padding included."""


def why_self_check_fails(model: Any, transformers_generate: Callable[..., Any], *, merge: bool = True) -> str | None:
    """Return why the loop cannot be used with a model, or None. Leaves the RNG state as it is.

    Raises:
        UnsupportedCall: The model's own generation config is unsupported; the next call checks again.
    """
    results = _RESULTS.setdefault(model, {})
    mode = model.training, merge
    if mode not in results:
        with temporary_rng_state() as drawn:
            results[mode] = _check(model, transformers_generate, drawn, merge)
    return results[mode]


def shares_prefixes(model: Any) -> bool:
    """Return True if prompts that start alike may be prefilled in two passes; known after the self-check."""
    return model not in _WITHOUT_SHARING


def _check(
    model: Any, transformers_generate: Callable[..., Any], drawn: Callable[[], list[str]], merge: bool
) -> str | None:
    """Decode five prompts that start alike, two of them equal; one of the first tokens serves as EOS."""
    device, vocab_size = model.device, model.config.get_text_config().vocab_size
    ids = torch.arange(5 * WIDTH, device=device).view(5, WIDTH) * 7 % vocab_size
    common = ids[0, :4].clone()
    attention_mask = torch.ones_like(ids)
    ids[3, :4], ids[1:3, 2:6], ids[4] = common, common, ids[0]
    attention_mask[1:3, :2] = 0
    generate = partial(transformers_generate, input_ids=ids, attention_mask=attention_mask)
    # The second token as EOS makes at least one sequence finish early, which covers eviction.
    try:
        start = generate(generation_config=_config(2, vocab_size - 1))
        eos = int(start[0, WIDTH:][-1])
        expected = generate(generation_config=_config(5, eos, return_dict_in_generate=True, output_logits=True))
        expected_ids, logits = expected.sequences, torch.stack(expected.logits, 1).float()
    except MODEL_ERRORS as error:  # the model's own generation config may not allow greedy decoding
        return f"the self-check of decoding cannot run with this model ({type(error).__name__}: {error})"
    if drawn():
        return USES_RNG
    # Half precision rounds differently for other batch sizes, so near ties may go either way.
    is_exact = next(model.parameters()).dtype == torch.float32 and not is_cast(causal_model(model))
    reason = None
    for share in (True, False):
        loop = partial(decode, merge=merge, share=share)
        try:
            actual = generate(generation_config=_config(5, eos), custom_generate=loop)
        except MODEL_ERRORS as error:
            reason = f"the decoding loop fails with this model ({type(error).__name__}: {error})"
            continue
        if is_exact:
            same = expected_ids.shape == actual.shape and torch.equal(expected_ids, actual)
        else:
            same = _agree_up_to_ties(actual[:, WIDTH:], expected_ids[:, WIDTH:], logits)
        if same:
            if not share:
                _WITHOUT_SHARING.add(model)
            return None
        reason = "the decoding loop generates other tokens with this model"
    return reason


def _agree_up_to_ties(
    actual: Int[torch.Tensor, "B S"], expected: Int[torch.Tensor, "B T"], logits: Float[torch.Tensor, "B T V"]
) -> bool:
    """Return True if each completion agrees up to its first near tie in the logits."""
    for tokens, expected_tokens, z in zip(actual, expected, logits, strict=True):
        differs = (tokens[: len(expected_tokens)] != expected_tokens[: len(tokens)]).nonzero()
        if len(differs):
            at = int(differs[0])
            if z[at].max() - z[at, tokens[at]] > TIE * (z[at].max() - z[at].min()):
                return False
    return True


def _config(max_new_tokens: int, eos: int, **options: bool) -> Any:
    from transformers import GenerationConfig

    ends = {"eos_token_id": eos, "pad_token_id": 0}
    return GenerationConfig(max_new_tokens=max_new_tokens, do_sample=False, disable_compile=True, **ends, **options)


logger = logging.getLogger(__name__)
SAMPLERS = {"as_transformers": None, "inverse_cdf": sample_inverse_cdf}


def fast_generate(
    transformers_generate: Callable[..., Any],
    model: Any,
    inputs: Mapping[str, torch.Tensor],
    config: Any,
    *,
    return_logprobs: bool = False,
    on_finished: OnFinished | None = None,
    merge: bool = True,
    sampling: str = "as_transformers",
) -> torch.Tensor | Generation:
    """Generate what `generate` of a model would, with less work (see `rlm_plugins.hookspecs.rlm_generators`)."""
    try:
        merge = merge and merging_pays(config)
        # Known reasons first: the self-check costs three short generations.
        if reason := why_unsupported_model(model) or why_self_check_fails(model, transformers_generate, merge=merge):
            raise UnsupportedCall(reason)
        loop = partial(
            decode,
            sampler=SAMPLERS[sampling],
            merge=merge,
            share=shares_prefixes(model),
            return_logprobs=return_logprobs,
            on_finished=on_finished,
        )
        return transformers_generate(**inputs, generation_config=config, custom_generate=loop)  # type: ignore[no-any-return]
    except UnsupportedCall as reason:
        _log_fallback(str(reason))
        return transformers_generate(**inputs, generation_config=config)  # type: ignore[no-any-return]


@cache
def _log_fallback(reason: str) -> None:
    """Log a reason once per process."""
    logger.warning("generation falls back to transformers: %s", reason)


def dry_run(model: Any, config: Any, *, merge: bool = True, **_: Any) -> tuple[str | None, int]:
    """Return why `fast_generate` would fall back to transformers, or None, and the bytes of its copied weights."""
    if reason := why_unsupported_model(model):
        return reason, 0
    reasons: list[str | None] = []

    def record_reason(
        inner: Any,
        input_ids: Any,
        *,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **model_kwargs: Any,
    ) -> Any:
        reasons.append(
            why_unsupported_call(inner, logits_processor, stopping_criteria, generation_config, model_kwargs)
        )
        return input_ids

    ids = torch.zeros(1, 2, dtype=torch.long)
    base = causal_model(model)
    # `generate` takes the device from the first parameter, which must not be the meta device.
    base.register_parameter("_cpu_parameter", torch.nn.Parameter(torch.empty(0)))
    try:
        model.generate(input_ids=ids, attention_mask=ids + 1, generation_config=config, custom_generate=record_reason)
    except Exception:  # the run itself reports what cannot be prepared without weights
        logger.debug("a call of `generate` could not be prepared", exc_info=True)
    finally:
        del base._cpu_parameter
    reason = next(iter(reasons), None)
    return reason, copied_bytes(model) if merge and reason is None and merging_pays(config) else 0
