"""Checks for rewards and losses that are not finite; the error names the part that returned them."""

from __future__ import annotations

from rlm_plugins.batch import Batch
from rlm_plugins.dispatch import call_part, location
from rlm_plugins.divergence import LossDivergence
from rlm_plugins.equation import Equation
from rlm_plugins.errors import PartError


def check_rewards(batch: Batch) -> None:
    """Check that no reward is infinite.

    Raises:
        PartError: One is; it names the reward function.
    """
    if (infinite := batch.rewards.isinf()).any():
        row = int(infinite.nonzero()[0])
        causes = [name for name, values in (batch.named_rewards or {}).items() if values[row].isinf()]
        raise PartError(
            f"the reward of completion {row} is {batch.rewards[row].item()}",
            where=f"reward '{causes[0]}'" if causes else "",
            allowed="a finite number, or None where the reward does not apply",
        )


def loss_divergence(batch: Batch, equation: Equation) -> LossDivergence:
    """Return the error of a loss that is not finite; it names the first part, in batch order, with such a result."""
    diverged = "training diverged" if batch.step is None else f"training diverged in step {batch.step + 1}"
    if not batch.logp.isfinite().all():
        error = LossDivergence(f"{diverged}: the policy's log-probabilities are not finite", where="the loss")
        error.is_before_update = False  # an earlier step has made its weights so
        return error
    parts = [equation.importance, *equation.penalties, equation.policy_loss, *equation.token_weights]
    for part in (part for part in parts if part is not None):
        x = call_part(part, batch, "B 1", "B T").expand(batch.mask.shape)[batch.mask]
        if not x.isfinite().all():
            value = x[~x.isfinite()][0].item()
            problem = f"{diverged}: returned {value} for a token"
            return LossDivergence(problem, where=location(part), allowed="finite numbers")
    return LossDivergence(f"{diverged}: returned a number that is not finite", where=location(equation.aggregator))
