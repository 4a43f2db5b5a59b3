"""Trainer: TRL's GRPOTrainer with the equation in it.

TRL samples, rewards, pads, computes log-probs, accumulates gradients and steps. `equation_trainer.py` overrides it at
three places that matter: the rewards (`_calculate_rewards`), the scored batch (`_generate_and_score_completions`) and
the loss (`_compute_loss`); at a few more it only saves work. The overrides call collaborators, each of which
depends only on those before it: prompts → generation → rollout → log-probs → critic → rewards → scoring, and
micro-batches → loss. `tests/test_trl_interface.py` fails by name if TRL changes what the overrides rely on.
"""

from __future__ import annotations

from rlm_plugins.trainer.equation_trainer import EquationTrainer

__all__ = ["EquationTrainer"]
