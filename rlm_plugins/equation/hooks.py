"""The table of hooks: recipe key, symbol, data and options of each.

:mod:`rlm_plugins.hookspecs` documents each hook with a complete part.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlm_plugins.equation.batch import LOSS, SCORING

ROLLOUT = ("prompts", "inputs", "source_index", "generate", "tokenizer", "step", "seed", "trainer")
"""Data of a rollout source: see :func:`rlm_plugins.hookspecs.rlm_rollouts`."""

GENERATING = ("generate", "model", "inputs", "config", "return_logprobs", "on_finished")
"""Data of a generator: see :func:`rlm_plugins.hookspecs.rlm_generators`."""

API = 1
"""Version of the hooks. A plugin module that needs a later one says so: ``rlm_api = 2``."""

TEACHING = ("prompt_ids", "completion_ids", "tokenizer", "temperature")
"""Data of a teacher: see :func:`rlm_plugins.hookspecs.rlm_teachers`."""


@dataclass(frozen=True)
class Hook:
    """A hook's place in recipe and equation.

    Args:
        key: The recipe key that names its parts.
        symbol: Its symbol in the equation.
        data: The phase of the batch, or the names, that its parts may require; None: any name.
        many: True if a recipe names a list of them.
        options: Keys of a recipe that it defines besides the name and the knobs of a part.
    """

    key: str
    symbol: str
    data: str | tuple[str, ...] | None
    many: bool = False
    options: tuple[str, ...] = ()

    @property
    def scheduled(self) -> bool:
        """True if its parts are called in optimizer steps, so that their knobs may follow a schedule."""
        return self.data in (SCORING, LOSS) or self.key in ("sampler", "rollouts")


_OF_A_REWARD = ("weight", "as", "on_error", "timeout", "processes", "prefetch", "messages")
HOOKS: dict[str, Hook] = {
    "rlm_environments": Hook("environment", "x", ()),
    "rlm_samplers": Hook("sampler", "—", ("size", "epoch", "seed", "count", "draw")),
    "rlm_rollouts": Hook("rollouts", "y", ROLLOUT, many=True, options=("num_completions", "as")),
    "rlm_generators": Hook("generator", "y", GENERATING),
    "rlm_engines": Hook("engine", "y", ()),
    "rlm_rewards": Hook("rewards", "r", None, many=True, options=_OF_A_REWARD),
    "rlm_teachers": Hook("teachers", "π_T", TEACHING),
    "rlm_shapers": Hook("shapers", "r′", SCORING, many=True),
    "rlm_filters": Hook("filters", "—", SCORING, many=True, options=("refill",)),
    "rlm_advantages": Hook("advantage", "Â", SCORING),
    "rlm_importance": Hook("importance", "w", LOSS),
    "rlm_policy_losses": Hook("policy_loss", "ℓ", LOSS, options=("source", "min_reward", "aggregator")),
    "rlm_token_weights": Hook("token_weights", "c", LOSS, many=True, options=("source", "min_reward")),
    "rlm_penalties": Hook("penalties", "βΩ", LOSS, many=True, options=("beta", "source", "min_reward", "aggregator")),
    "rlm_aggregators": Hook("aggregator", "1/Z", LOSS),
    "rlm_algorithms": Hook("algorithm", "—", ()),
    "rlm_trainers": Hook("trainer", "—", ("stage",)),
    "rlm_models": Hook("model", "π", (), options=("lora",)),
    "rlm_callbacks": Hook("callbacks", "—", ("run",), many=True),
    "rlm_observers": Hook("observers", "—", (), many=True),
    "rlm_settings": Hook("setting", "—", ()),
    "rlm_sections": Hook("section", "—", ()),
    "rlm_commands": Hook("command", "—", ()),
}
"""Hook name → its place, in the order of a training step."""


def option_hint(key: str) -> str:
    """Return a hint on where `key` belongs if it is an option of a hook; otherwise an empty string.

    >>> option_hint("beta")
    "'beta' stands beside the name of a part: `penalties: [{name: …, beta: …}]`"
    """
    for hook in HOOKS.values():
        if key in hook.options:
            entry = f"{{name: …, {key}: …}}"
            example = f"{hook.key}: {f'[{entry}]' if hook.many else entry}"
            return f"'{key}' stands beside the name of a part: `{example}`"
    return ""
