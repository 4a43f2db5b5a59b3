"""Log-probs of the distribution that completions were sampled from, with top-k, top-p and min-p (section `kept_set`).

With ``top_p: 0.9`` a token is drawn from the kept set K of its position, so its probability is π(y) / π(K). The
importance ratio of full probabilities then has a mean other than 1. Here log-probs of the policy are over K, which is
that of the sampling policy in every update (Keep Sampling Mask, DeepSeek-V3.2, arXiv 2512.02556 §3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.setting import Section

if TYPE_CHECKING:
    from rlm_plugins.stage import Stage

KEY = "kept_set"


class KeptSet(Section):
    """Take log-probs over the tokens that top-k, top-p and min-p kept, so that the importance ratio has mean 1.

    The ratio is π_θ(y | K) / π_old(y | K), with the kept set K of the sampling policy in both. The KL to the reference
    is that of the sampled distribution: E[log π_θ(y | K) − log π_ref(y)]. Each position stores the ids of its kept set.
    It needs `speed: none`, logits of the whole vocabulary (B · T · V numbers), and completions of the current policy.
    """

    needs_equation = True

    def __init__(self) -> None:
        self._kept: Any = {}

    def check_stage(self, stage: Stage, where: str) -> None:
        """Refuse a stage without kept sets, and one whose completions another policy samples.

        Raises:
            RecipeError: Of such a stage.
        """
        from rlm_plugins.trainer.options import arguments

        args = arguments(stage)
        if args.top_k <= 0 and args.top_p >= 1 and not args.min_p:
            problem = "expected `top_k`, `top_p` or `min_p` under `trainer:`, got none of them: every token is kept"
            raise RecipeError(problem, where=KEY, hint=f"remove `{KEY}`")
        others = [name for name in ("use_vllm", "stale", "generation_kwargs") if getattr(args, name, None)]
        others += ["engine"] if stage.policy_engine is not None else []
        others += ["repetition_penalty"] if args.repetition_penalty not in (None, 1.0) else []
        if others:
            problem = (
                "requires completions of the current policy that this process samples by `top_k`, `top_p`, `min_p`"
            )
            raise RecipeError(f"{problem}; got `{others[0]}`", where=KEY, hint=f"remove `{others[0]}` or `{KEY}`")

    def passes(self, context: Any, trl_forward: Any) -> Any:
        """Return the forward passes of a trainer."""
        from rlm_algorithms.kept_passes import KeptSetPasses

        return KeptSetPasses(self._kept, context, trl_forward)

    def observers(self, stage: Stage) -> list[Any]:
        """Return the observer that forgets the kept sets at each generation batch."""
        from rlm_algorithms.kept_passes import NewGeneration

        return [NewGeneration(self._kept)]
