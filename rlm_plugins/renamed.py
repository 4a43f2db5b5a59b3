"""Names that changed before the first release, old → new. There are no aliases: an old name is an error with a hint."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator

DATA = {
    "problem": "prompt_index",
    "moved": "policy_drift",
    "margin": "top2_margin",
    "window": "step_batch",
    "window_rows": "step_batch_rows",
    "rows": "num_sequences",
    "all_rows": "num_sequences_all",
    "tokens": "num_tokens",
    "micro_batches": "num_micro_batches",
    "kept": "keep_mask",
    "wanted": "counts_for_refill",
    "read": "logprobs_of",
    "write": "generate",
    "score": "rewards_of",
    "place": "source_index",
    "tell": "return_logprobs",
    "finished": "on_finished",
}
"""Data that parts name before the star."""

MEMBERS = {
    "meet": "setup",
    "suits": "validate",
    "holds": "memory_bytes",
    "settled": "required_args",
    "leaves": "produces",
    "foresee": "dry_run",
    "settings": "trainer_settings",
}
"""Optional members of parts; `settings` of a generator."""

KEYS = {
    "speed.packed": "padding_free",
    "speed.skip": "skip_zero_advantage",
    "speed.regroup": "group_micro_batches",
    "speed.reuse": "reuse_old_logprobs",
    "speed.overlap": "prefetch_rewards",
    "speed.join": "merge_micro_batches",
    "speed.fuse": "fused_lora",
    "speed.token_budget": "max_tokens_per_micro_batch",
    "rollouts.rows": "num_completions",
    "rewards.overlap": "prefetch",
}
"""Keys of a recipe, with the section in front."""

PARTS = {
    "generator/portable": "fast",
    "advantage/lead": "best_margin",
    "advantage/reward_by_reward": "per_reward",
    "filters/nonzero_spread": "nonzero_std",
    "policy_loss/verdict": "correctness",
    "policy_loss/plain": "unclipped",
}
"""Names of parts, with the recipe key in front."""

KNOBS = {"alone": "singleton", "bessel": "unbiased", "praise": "positive_weight", "teaching": "counted"}
"""Knobs of parts."""

METRICS = {"update/passed_over": "update/skipped", "refill/draws": "dynamic_sampling/rounds"}
"""Logged numbers."""

CLASSES = {
    "rows.Row": "algorithm.Algorithm",
    "world.World": "specs.EnvironmentSpec",
    "world.ModelSource": "specs.ModelSpec",
    "speed.written.Written": "generation.output.Generation",
    "speed.written.Finished": "generation.output.OnFinished",
    "speed.past.Past": "generation.kv_state.KVState",
    "training.voice.Voice": "rollout.chat_tokens.ChatTokens",
    "training.tutor.Tutor": "models.auxiliary_optimizer.AuxiliaryOptimizer",
    "training.tutor.Pupil": "models.auxiliary_optimizer.Trainable",
    "training.past.Past": "rollout.completion_cache.CompletionCache",
    "training.playing.Table": "rollout.episodes.EpisodeRunner",
    "training.writing.Writers": "rollout.collector.RolloutCollector",
    "training.desk.Desk": "rollout.prompt_source.PromptSource",
    "batch.LEARNING": "batch.LOSS",
    "batch.ONE": "batch.PER_COMPLETION",
    "batch.words": "batch.names",
}
"""Classes and constants, by their dotted paths in `rlm_plugins`."""

_MOVES = """
rows algorithm, ask dispatch, window step_batch, wording messages, world specs, adapters models.adapters, critic
models.critic, critic_adapter models.shared_critic, second_model models.auxiliary_lm, reward_model
models.reward_model, reward_files models.reward_model_io, ingredients.pretrained models.pretrained,
ingredients.scratch models.scratch, ingredients.hub data.hub, ingredients.addition data.addition, ingredients.gist
data.digit_summaries, ingredients.answers data.answer_extraction, ingredients.questions data.prompt_columns,
ingredients.tables data.tables, ingredients.known_sets data.presets, ingredients.fit data.tokenizer_check,
ingredients.arithmetic functional.statistics, ingredients.covariance functional.covariance, ingredients.divergence
functional.kl, ingredients.noise functional.stateless_random, ingredients.tracker functional.value_tracker,
ingredients.pool workers.pool, ingredients.worker workers.worker, ingredients.borrowed registry.import_path,
ingredients.named annotations, ingredients.components rewards.diagnostics, registry.core registry.registry,
registry.catalogue registry.catalog, registry.parts registry.part, registry.plugins registry.loading, training.tutor
models.auxiliary_optimizer, training.judge rewards.trl_adapter, training.guard rewards.guard, training.faults
rewards.fault, training.fault_book rewards.fault_log, training.scores rewards.score_validation, training.row_by_row
rewards.per_row, training.ahead rewards.prefetch, training.elsewhere rewards.process_pool, training.deadline
rewards.timeout, training.desk rollout.prompt_source, training.prompts rollout.prompt_sampler, training.writing
rollout.collector, training.answered rollout.source_output, training.sharing rollout.group_layout, training.refill
rollout.dynamic_sampling, training.past rollout.completion_cache, training.playing rollout.episodes, training.voice
rollout.chat_tokens, training.tools rollout.tools, training.bounded rollout.env_call, training.pen generation.call,
training.processes distributed, training.evaluate evaluation.evaluate, training.answering evaluation.greedy,
training.pairs evaluation.preference_pairs, training.train run.train, training.engine run.trainer_setup, training.run
run.folder, training.watch run.callbacks, training.checkpoint trainer.checkpoint, training.groups trainer.config,
speed.written generation.output, speed.portable generation.fast, speed.past generation.kv_state, builtin.guests
builtin.foreign_rewards, builtin.supervised builtin.sft_trainer, builtin.preferences builtin.reward_model_trainer,
builtin.branches builtin.tree_rollouts
"""
MODULES: dict[str, str] = dict(pair.split() for pair in _MOVES.split(","))  # type: ignore[misc]
"""Modules that a plugin may import, by their dotted paths in `rlm_plugins`."""


def hint(names: dict[str, str], old: str) -> str:
    """Return the hint for an old name; empty if it is none.

    Args:
        names: One of the tables of this module.
        old: The name that was not found.

    >>> hint(DATA, "problem"), hint(PARTS, "generator/portable"), hint(KNOBS, "epsilon")
    ("'problem' is called 'prompt_index' now", "'portable' is called 'fast' now", '')
    """
    if old not in names:
        return ""
    leaf = re.split(r"[./]", old)[-1] if names in (KEYS, PARTS) else old
    return f"'{leaf}' is called '{names[old]}' now"


def import_hint(error: BaseException) -> str:
    """Return the new names of what a failed import was looking for; empty if none of it was renamed.

    The error alone does not hold them: for `rlm_plugins.training.judge` Python reports the missing parent.

    >>> import_hint(ImportError("cannot import name 'Row' from 'rlm_plugins.algorithm' (algorithm.py)"))
    "'rlm_plugins.algorithm.Row' is called 'rlm_plugins.algorithm.Algorithm' now"
    """
    if not isinstance(error, ImportError):
        return ""
    lines = [frame.line or "" for frame in traceback.extract_tb(error.__traceback__)]
    renamed = {**MODULES, **CLASSES}
    for old, new in CLASSES.items():  # an old class in the new module
        renamed[f"{new.rpartition('.')[0]}.{old.rpartition('.')[2]}"] = new
    names = dict.fromkeys(_imported("\n".join([str(error), *lines])))
    hints = [f"'rlm_plugins.{name}' is called 'rlm_plugins.{renamed[name]}' now" for name in names if name in renamed]
    return "; ".join(hints)


def _imported(text: str) -> Iterator[str]:
    """Yield every dotted name in `rlm_plugins` that import statements or the messages of their errors hold."""
    yield from re.findall(r"rlm_plugins\.([\w.]*\w)", text)
    for module, names in re.findall(r"from rlm_plugins\.?([\w.]*) import \(?([\w, ]+)", text):
        for name in re.findall(r"(\w+)(?: as \w+)?", names):
            yield f"{module}.{name}".lstrip(".")
    for name, module in re.findall(r"cannot import name '(\w+)' from 'rlm_plugins\.?([\w.]*)'", text):
        yield f"{module}.{name}".lstrip(".")
