"""Padding-free log-probs with the interface of the padded pass, through the model's own forward.

The attention over a layout (`pack.py`) is registered among the attention functions of transformers, and acts in passes
with a layout only. So wrappers such as DDP apply, and generation is untouched. Flash attention and FlexAttention get
the tree in their own terms, and run in transformers' functions. Known unsupported models are listed by
reason. For all others a self-check computes synthetic sequences padded and packed. A model that mixes tokens in a way
the layout does not express gives other numbers, and stays padded: positions from the mask, scaled logits, recurrence.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch.nn.functional import linear
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rlm_fast.fused_layers import chunks, fused_logprobs
from rlm_fast.linear_layers import is_plain
from rlm_fast.model_limits import IMAGES, has_dropout, has_vision, position_limit
from rlm_fast.pack import Layout, is_packable, layouts
from rlm_plugins.equation.rng_state import temporary_rng_state
from rlm_plugins.models.adapters import causal_model
from rlm_plugins.trainer.passes import NAMES, token_statistics

PREFIX = "rlm_"
"""Prefix of the names under which wrapped `sdpa` and `eager` are registered."""
FLEX = "flex_attention"
SCORE_OPTIONS = ("softcap", "position_bias", "s_aux")
"""Options that change attention scores; at initialization perhaps too little for a self-check to detect."""


def implementation(model: Any) -> str:
    """Return the attention implementation of a transformers model, without our prefix."""
    return str(model.config._attn_implementation).removeprefix(PREFIX)


def has_kernel(name: str) -> bool:
    """Return True if transformers chooses a kernel of a GPU by this name, which therefore stays."""
    return name == FLEX or ("flash" in name and not name.startswith("paged|"))


def install_attention(model: Any) -> None:
    """Let a transformers model take passes with a layout, if its attention implementation is supported."""
    name = str(model.config._attn_implementation)
    if has_kernel(name):
        function = ALL_ATTENTION_FUNCTIONS[name]
        if not hasattr(function, "takes_layout"):
            AttentionInterface.register(name, _wrap(name, function))
    elif name in ("sdpa", "eager"):
        wrapped = PREFIX + name
        if wrapped not in ALL_ATTENTION_FUNCTIONS.valid_keys():
            AttentionInterface.register(wrapped, _wrap(name, ALL_ATTENTION_FUNCTIONS.get(name)))
            AttentionMaskInterface.register(wrapped, ALL_MASK_ATTENTION_FUNCTIONS[name])
        model.set_attn_implementation(wrapped)


def uninstall_attention(model: Any) -> None:
    """Undo `install_attention`."""
    if model.config._attn_implementation != implementation(model):
        model.set_attn_implementation(implementation(model))


def _wrap(name: str, function: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return an attention function that calls `function`, that of implementation `name`, if there is no layout."""

    def attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any) -> Any:
        call = function or _eager_attention(module)
        layout: Layout | None = options.pop("layout", None)
        if layout is None:
            return call(module, query, key, value, attention_mask, **options)
        _check(attention_mask, options)
        tree = layout.attention
        if name == FLEX:
            return call(module, query, key, value, tree.block_mask, **options)
        if has_kernel(name):
            keys, values = tree.along_paths(key), tree.along_paths(value)
            return call(module, query, keys, values, None, **{**options, **tree.lengths})
        return tree(query, key, value, options.get("scaling")), None

    attention.takes_layout = True  # type: ignore[attr-defined]
    return attention


def _check(attention_mask: torch.Tensor | None, options: Mapping[str, Any]) -> None:
    """Raise TypeError, which a self-check reports, if a model changes scores or passes a mask of its own."""
    unsupported = [name for name in SCORE_OPTIONS if options.get(name) is not None]
    if unsupported:
        raise TypeError(f"padding-free passes do not support `{unsupported[0]}` of attention")
    # `model_inputs` passes a mask of one element; a larger one was created by the model.
    if attention_mask is not None and attention_mask.numel() > 1:
        raise TypeError("padding-free passes do not support a model that makes its own attention mask")


def _eager_attention(module: Any) -> Callable[..., Any]:
    """Return the eager attention of a model, which each modeling file of transformers defines beside its modules."""
    function: Callable[..., Any] = sys.modules[type(module).__module__].eager_attention_forward  # type: ignore[attr-defined]
    return function


Head = Callable[..., tuple[torch.Tensor, ...]]
"""(hidden states (N, H), weight (V, H), bias (V,) or None) → several (N,)."""


def packed_logprobs(
    model: Any,
    layout: Layout,
    *,
    temperature: float = 1.0,
    with_entropy: bool = True,
    entropy_gradient: bool = False,
) -> tuple[Float[torch.Tensor, "N"], Float[torch.Tensor, "N"]]:  # noqa: F821
    """Return log-probs and entropies (nats, float32) of the targets of a layout.

    Args:
        model: A causal language model after `install_attention`; it may be wrapped (PEFT, DDP).
        layout: The packed batch.
        temperature: Divides the logits.
        with_entropy: Compute the entropy; else it is 0.
        entropy_gradient: Let gradients flow through the entropy.
    """
    head = partial(
        fused_logprobs,
        target=layout.target,
        temperature=temperature,
        with_entropy=with_entropy,
        entropy_gradient=entropy_gradient,
    )
    logp, entropy = forward_with_head(model, layout, head)
    return logp, entropy


def forward_with_head(model: Any, layout: Layout, head: Head) -> tuple[Float[torch.Tensor, "N"], ...]:  # noqa: F821
    """Run a packed pass with `head` in place of the language head, and return its outputs.

    Args:
        model: A causal language model after `install_attention`; it may be wrapped (PEFT, DDP).
        layout: The packed batch.
        head: Called with the hidden states that predict the targets, and the weight and bias of the language head.
    """
    lm_head = causal_model(model).get_output_embeddings()
    # The patched head returns its outputs stacked as "logits", so that they pass through any wrapper.
    lm_head.forward = lambda hidden: torch.stack(head(hidden.squeeze(0), lm_head.weight, lm_head.bias), -1).unsqueeze(0)
    try:
        output = model(**model_inputs(layout), logits_to_keep=layout.logits_to_keep).logits
    finally:
        del lm_head.forward
    return output.squeeze(0).unbind(-1)  # type: ignore[no-any-return]


def model_inputs(layout: Layout) -> dict[str, Any]:
    """Return the inputs of a transformers model for a layout."""
    # transformers builds no mask of its own if the given one has four dimensions.
    no_mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=layout.ids.device)
    positions = {"position_ids": layout.positions, "attention_mask": no_mask, "layout": layout}
    return {"input_ids": layout.ids, **positions, "use_cache": False}


def packed_statistics(
    model: Any, layouts: Iterable[Layout], *, temperature: float
) -> dict[str, Float[torch.Tensor, "B T"]]:
    """Compute statistics of completions by padding-free passes, without gradient, a few logits at a time."""

    def head(
        hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *, target: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        totals: dict[str, list[torch.Tensor]] = {name: [] for name in NAMES}
        for rows in chunks(hidden, weight):
            logits = linear(hidden[rows], weight, bias)[None].float() / temperature
            for name, x in token_statistics(logits, target[None, rows]).items():
                totals[name].append(x[0])
        return tuple(map(torch.cat, totals.values()))

    totals = dict.fromkeys(NAMES, torch.zeros(()))
    with torch.no_grad():
        for layout in layouts:
            columns = forward_with_head(model, layout, partial(head, target=layout.target))
            for name, x in zip(NAMES, columns, strict=True):
                totals[name] = totals[name].to(x.device) + layout.unpack(x)
    return totals


PaddedForward = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""(ids, attention_mask, width of the completions) → log-probs (B, width) of the stock pass."""
USES_RNG = "the forward pass draws random numbers"
"""Reason for stock passes and stock decoding: fewer calls, or other sequences, would draw other numbers."""
MODEL_ERRORS = (TypeError, ValueError, RuntimeError, AttributeError, LookupError)
"""Errors of a model that does not support a self-check."""


class Support(NamedTuple):
    """Support of a model.

    Args:
        reason: Why the model is unsupported, or None.
        relative: Prompts of unequal length may share a prefix: the model's positions are relative.
    """

    reason: str | None
    relative: bool = False


def prepare(model: Any, padded_forward: PaddedForward, *, temperature: float) -> Support:
    """Wrap the attention of a model for packing; a model that is unsupported is left as it is."""
    if reason := why_unsupported(model):
        return Support(reason)
    install_attention(causal_model(model))
    support = _self_check(model, padded_forward, temperature)
    if support.reason is not None:
        uninstall_attention(causal_model(model))
    return support


def why_unsupported(model: Any) -> str | None:
    """Return why padding-free passes are known to be unsupported for this model, or None."""
    base = causal_model(model)
    config, head = base.config.get_text_config(), base.get_output_embeddings()
    if has_vision(base):
        return IMAGES
    name = implementation(base)
    if name not in ("sdpa", "eager") and not has_kernel(name):
        return f"expected the attention sdpa, eager, {FLEX} or a flash attention, got '{name}'"
    if name == FLEX and base.device.type == "cpu":
        return "flex_attention has no gradient on a CPU"
    if type(head) is not torch.nn.Linear:
        class_name = f"{type(head).__module__}.{type(head).__name__}"  # with its module: PEFT has a Linear too
        return f"expected a plain linear language head, got {class_name}"
    if not is_plain(head):
        return "the language head has hooks or a patched forward"
    if any(name not in ("full_attention", "sliding_attention") for name in getattr(config, "layer_types", None) or ()):
        return "the model has layers without attention"
    if has_dropout(base):
        return "dropout is on, and its masks depend on the padding"
    adapters = getattr(model, "peft_config", None) or {}
    if any(getattr(adapter, "is_prompt_learning", False) for adapter in adapters.values()):
        return "the adapter adds virtual tokens to each prompt"
    return None


def max_packed_length(config: Any) -> int | None:
    """Return the longest sequence (tokens) in which attention is full and positions count alike; None: any."""
    config = config.get_text_config()
    layer_types = getattr(config, "layer_types", None)
    slides = "sliding_attention" in layer_types if layer_types else getattr(config, "use_sliding_window", True)
    window = getattr(config, "sliding_window", None) if slides else None
    limits = [limit for limit in (window, position_limit(config)) if limit is not None]
    return min(limits, default=None)


def _self_check(model: Any, padded_forward: PaddedForward, temperature: float) -> Support:
    """Compare both passes on synthetic sequences; leaves the RNG state as it is."""
    base = causal_model(model)
    device = next(base.parameters()).device
    vocab_size = base.config.get_text_config().vocab_size
    ids = torch.arange(1, 1 + 4 * 9, device=device).view(4, 9) * 7 % vocab_size
    # Two completions of a prompt, one of a prefix of that prompt, one of another prompt; padding on both sides.
    ids[1, :4], ids[2, 2:4] = ids[0, :4], ids[0, :2]
    attention_mask = torch.ones_like(ids)
    attention_mask[2:, :2], attention_mask[1, 6:], attention_mask[2, 5:] = 0, 0, 0
    exact = base.dtype == torch.float32 and not torch.is_autocast_enabled(device.type)
    with torch.no_grad(), temporary_rng_state() as drawn:
        # The padded pass comes first: its random numbers tell whether the model draws any.
        expected = padded_forward(ids, attention_mask, 5)
        if drawn():
            return Support(USES_RNG)
        difference = 0.0
        for relative in (True, False):
            (layout,) = layouts(ids, attention_mask, 5, relative=relative, min_saved=1)
            try:
                actual = layout.unpack(packed_logprobs(model, layout, temperature=temperature)[0])
            except MODEL_ERRORS as error:
                return Support(f"the packed forward pass fails ({type(error).__name__}: {error})")
            difference = ((actual - expected) * attention_mask[:, -5:]).abs().max().item()
            if difference <= (1e-4 if exact else 5e-2):
                return Support(None, relative)
    return Support(f"log-probs of the packed forward pass differ by {difference:.2g} nats")


logger = logging.getLogger(__name__)


class PackedForward:
    """Padding-free forward pass in which shared prefixes occur once.

    Attributes:
        reason: Why the model is unsupported and passes stay padded, or None.
        relative: Prompts of unequal length may share a prefix.
    """

    def __init__(
        self, model: Any, padded_forward: PaddedForward, *, temperature: float, entropy_gradient: bool
    ) -> None:
        self.reason, self.relative = prepare(model, padded_forward, temperature=temperature)
        self._max_length = max_packed_length(causal_model(model).config)
        self._entropy_gradient = entropy_gradient
        self._has_warned = False

    def supports(self, ids: Int[torch.Tensor, "B W"], attention_mask: Int[torch.Tensor, "B W"], width: int) -> bool:
        """Return True if a batch can be packed: padding surrounds it, and no sequence exceeds the model's limit."""
        if self.reason is not None or not is_packable(attention_mask, width):
            return False
        if self._max_length is None or ids.shape[1] <= self._max_length:
            return True
        if not self._has_warned:
            logger.warning(
                "padded forward passes: the batch is wider than %d tokens, beyond which positions or attention differ",
                self._max_length,
            )
        self._has_warned = True
        return False

    def __call__(
        self,
        model: Any,
        ids: Int[torch.Tensor, "B W"],
        attention_mask: Int[torch.Tensor, "B W"],
        width: int,
        *,
        temperature: float,
        with_entropy: bool = True,
        live: Sequence[bool] | None = None,
        budget: int | None = None,
    ) -> tuple[Float[torch.Tensor, "B width"], Float[torch.Tensor, "B width"]]:
        """Return log-probs and entropies (nats); 0 at padding, if not live, and if not requested."""
        install_attention(causal_model(model))  # a reference model with weights of its own first appears here
        # Without a term that needs it, the gradient of the entropy would cost one more product.
        with_gradient = self._entropy_gradient and torch.is_grad_enabled()
        logp = entropy = ids.new_zeros((), dtype=torch.float32)
        for layout in layouts(ids, attention_mask, width, live=live, budget=budget, relative=self.relative):
            packed = packed_logprobs(
                model, layout, temperature=temperature, with_entropy=with_entropy, entropy_gradient=with_gradient
            )
            logp, entropy = logp + layout.unpack(packed[0]), entropy + layout.unpack(packed[1])
        return logp, entropy
