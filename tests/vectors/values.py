"""Losses of a critic, as verl and OpenRLHF compute them, expressed with our part."""

from __future__ import annotations

from rlm_plugins.builtin import aggregators as z
from rlm_plugins.builtin.penalties import value_loss
from vectors.losses import aggregator, verl_aggregator
from vectors.records import Args, Case, Out, says


def summed(case: Case, args: Args, clip: float | None, average: object) -> Out:
    """Return the loss, and the fraction of clipped tokens."""
    logged = {}
    loss = value_loss(case.vpreds, case.values, case.returns, lambda name, x: logged.update({name: x}), epsilon=clip)
    rows = case.mask.any(1).sum().double()
    found = average(
        case.batch(loss=loss.where(case.mask, 0.0), num_tokens=case.mask.sum().double(), num_sequences=rows)
    )
    return {"loss": found, **{name: x[case.mask].mean() for name, x in logged.items()}}


@says("compute_value_loss")
def verl_value_loss(case: Case, args: Args) -> Out:
    found = summed(case, args, args["cliprange_value"], verl_aggregator(case, args))
    return found | {"clipfrac": found["value_clipped"]}


@says("openrlhf.models.loss.ValueLoss")
def open_value_loss(case: Case, args: Args) -> Out:
    mean = z.token_mean if args["token_level_loss"] else z.sequence_mean
    return summed(case, args, args["clip_eps"], aggregator(mean))
