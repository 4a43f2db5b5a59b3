"""Settings of a stage, metrics of its steps, and quantities derived from both: all that the rules read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

Record = Mapping[str, Any]
DEFAULTS = {"trainer.max_completion_length": 256, "trainer.num_generations": 8, "trainer.temperature": 1.0}
"""Defaults of TRL for the fields that remedies change."""
OF_LENGTH = ("length", "brevity", "overlong", "budget", "cosine")
"""Words in the names of parts that reward or punish length."""
FORBIDDING = (
    "suppress_tokens",
    "begin_suppress_tokens",
    "bad_words_ids",
    "no_repeat_ngram_size",
    "min_new_tokens",
    "min_length",
    "forced_eos_token_id",
)
"""Settings of `generation_kwargs` that forbid tokens which the policy would sample."""
RATIOS = {"entropy/of_start": "entropy", "completions/length_of_start": "completions/mean_length"}
"""Quantity → the metric that is divided by its mean over the first two steps."""
LARGEST = {"kl": 2.0, "entropy": 0.2}
"""Name of a penalty → a coefficient that no published recipe comes near."""
ENOUGH = 6
"""Steps after which a mean correlation is known."""
FORESEEN = ("settings/", "adapter/", "full/", "data/")
"""Beginnings of the names of quantities that are known before the first step."""
_OF_RECIPE = {
    "lora_dropout": "model.lora.lora_dropout",
    "critic_rate": "critic.learning_rate",
    **{name: f"trainer.{name}" for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")},
    **{name: f"trainer.{name}" for name in ("learning_rate", "max_grad_norm", "adam_epsilon")},
}
"""Quantity below ``settings/`` → path of its value in the recipe."""


@dataclass(frozen=True)
class StageSettings:
    """One stage of a resolved recipe.

    Args:
        section: The stage's section of ``recipe.yaml``.
        max_steps: Optimizer steps of the stage; 0 if unknown.
    """

    section: Mapping[str, Any]
    max_steps: int = 0

    def __getitem__(self, path: str) -> Any:
        """Return the value at a dotted path; TRL's default, or None, where the recipe has none."""
        value: Any = self.section
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return DEFAULTS.get(path) if value is None else value

    @property
    def weights(self) -> dict[str, float]:
        """Label of each reward → its weight; without those whose weight is a schedule."""
        rewards = [{"name": x} if isinstance(x, str) else x for x in self["rewards"] or []]
        weights = {str(reward.get("as") or reward.get("name")): reward.get("weight", 1.0) for reward in rewards}
        return {label: float(weight) for label, weight in weights.items() if _is_number(weight)}

    @property
    def main_reward(self) -> str:
        """Label of the reward that is evaluated; else that of the largest weight."""
        weights = self.weights
        return str(self["evaluation.metric"] or max(weights, key=lambda label: abs(weights[label]), default=None))

    @property
    def largest_weight(self) -> float:
        """Size of the largest weight of a reward."""
        return max(map(abs, self.weights.values()), default=0.0)

    @property
    def betas(self) -> dict[str, float]:
        """Name of each penalty → its coefficient; without those whose coefficient is a schedule."""
        penalties = [p for p in self["algorithm.penalties"] or [] if isinstance(p, Mapping)]
        betas = {str(penalty.get("name")).rpartition("/")[2]: penalty.get("beta") for penalty in penalties}
        return {name: float(beta) for name, beta in betas.items() if _is_number(beta)}

    @property
    def adapter_scale(self) -> float:
        """Factor of the product of an adapter's matrices: lora_alpha / r, or / √r of `use_rslora`."""
        rank, alpha = self["model.lora.r"] or 8, self["model.lora.lora_alpha"]
        scale = (8 if alpha is None else alpha) / (rank**0.5 if self["model.lora.use_rslora"] else rank)
        return float(scale)

    @property
    def forbidden_tokens(self) -> int:
        """Number of settings of `generation_kwargs` that forbid tokens in training."""
        given = self["trainer.generation_kwargs"] or {}
        return sum(bool(given.get(name)) for name in FORBIDDING) if isinstance(given, Mapping) else 0

    @property
    def rewards_length(self) -> bool:
        """True if a reward or a shaper depends on the length of a completion, by its name."""
        parts = [*(self["rewards"] or []), *(self["algorithm.shapers"] or [])]
        names = [str(part.get("name")) if isinstance(part, Mapping) else str(part) for part in parts]
        return any(word in name for name in names for word in OF_LENGTH)

    @property
    def has_group_baseline(self) -> bool:
        """True if the advantage compares completions of one prompt, without a value function."""
        return self["trainer.num_generations"] > 1 and bool(self["algorithm.advantage"]) and not self["critic"]

    @property
    def updates_per_batch(self) -> float:
        """Optimizer steps that use one generation batch."""
        accumulated = self["trainer.gradient_accumulation_steps"] or 1
        generated = self["trainer.steps_per_generation"] or accumulated
        return (self["trainer.num_iterations"] or 1) * generated / accumulated


def steps_of(records: Sequence[Record], stage: str, settings: StageSettings) -> list[dict[str, Any]]:
    """Return the metrics of each optimizer step of a stage, oldest first, with the quantities of the rules.

    Args:
        records: Lines of ``metrics.jsonl``; those without a gradient norm are held-out scores.
        stage: Name of the stage.
        settings: Settings of the stage.
    """
    metrics = StepMetrics(settings)
    steps = [metrics.add(record) for record in records if record.get("stage") == stage]
    return [step for step in steps if step is not None]


class StepMetrics:
    """Adds the quantities of the rules to the records of a stage, one at a time.

    They are those of the table `quantities` of rules.toml that are known in a step only.
    """

    def __init__(self, settings: StageSettings) -> None:
        self._settings, self._fixed = settings, of_settings(settings)
        self._starts: dict[str, list[float]] = {}
        self._largest: dict[str, float] = {}
        self._values: dict[str, list[float]] = {}
        self._held_out: dict[str, float] = {}
        self._is_new, self._count = False, 0

    def add(self, record: Record) -> dict[str, Any] | None:
        """Return a step with its quantities; None for a record of held-out scores, which count from the next step."""
        main = self._settings.main_reward
        if _is_number(score := record.get(f"held_out/{main}")):
            self._is_new, self._held_out = "step" in record, {f"held_out/{main}": score}
        if "grad_norm" not in record:
            return None
        self._count += 1
        if self._count == 1:
            self._fixed |= {name.replace(main, "start"): score for name, score in self._held_out.items()}
            self._fixed |= {name: value for name, value in record.items() if name.startswith("data/")}
        step = {**record, **self._fixed, **self._held_out}
        step |= self._since_start(step)
        step |= _quantities(step, self._settings)
        step |= self._of_reward(step)
        step |= self._of_scores(step)
        return step

    def _since_start(self, step: Record) -> dict[str, float]:
        """Return changes since the first two steps."""
        added = {}
        means = [name for name in step if name.startswith("rewards/") and name.endswith("/mean")]
        changes = {name.removesuffix("mean") + "change": name for name in means}
        for quantity, source in {**RATIOS, **changes, "reward/change": "reward"}.items():
            value = step.get(source)
            if value is None:
                continue
            if self._count <= 2:
                self._starts.setdefault(source, []).append(value)
            if starts := self._starts.get(source):
                start = sum(starts) / len(starts)
                if quantity not in RATIOS:
                    added[quantity] = value - start
                elif start:
                    added[quantity] = value / start
        return added

    def _of_reward(self, step: Record) -> dict[str, float]:
        """Return how much the rewards have varied so far, and how much of that is noise."""
        added = {}
        for name, value in step.items():
            if name.endswith("/std") and name.startswith("rewards/") and value is not None:
                added[name.replace("/std", "/largest_std")] = self._maximum(name, value)
            if name.startswith("rewards/") and name.endswith("/noise"):
                mean = self._mean_so_far(name, value)
                added |= {} if mean is None else {name.replace("/noise", "/mean_noise"): min(mean, 1.0)}
        if (tied := self._mean_so_far("tied", step.get("frac_reward_zero_std"), least=1)) is not None:
            added["reward/tied"] = tied
        reward, spread = step.get("reward"), step.get("reward_std")
        if reward is not None and spread is not None:
            relative = spread / abs(reward) if reward else float(spread > 0)
            added["reward/varied"] = self._maximum("reward/varied", relative)
            added["reward/spread"] = self._mean_so_far("spread", spread, least=1) or 0.0
        return added

    def _mean_so_far(self, name: str, value: float | None, least: int = ENOUGH) -> float | None:
        """Return the mean of all values of a name that are not None; None until there are `least`."""
        values = self._values.setdefault(name, [])
        values += [] if value is None else [value]
        return sum(values) / len(values) if len(values) >= least else None

    def _maximum(self, name: str, value: float) -> float:
        self._largest[name] = max(value, self._largest.get(name, 0.0))
        return self._largest[name]

    def _of_scores(self, step: Record) -> dict[str, Any]:
        """Return the quantities that compare the reward with the scores."""
        scores, share = _scores(step, self._settings), step.get("reward/of_maximum")
        added: dict[str, Any] = {"scores": scores}
        known = [*scores.values()] or ([share] if share is not None else [])
        if known:
            best, worst = added["score/best"], added["score/worst"] = max(known), min(known)
        if share is not None:
            is_none, is_all = abs(share) < 1e-6, abs(share - 1) < 1e-6
            against = [] if not scores else [best] * (not is_all) + [1 - worst] * (not is_none)
            added["reward/contradicted"] = min(against, default=float(not is_none and not is_all))
        held_out, value = self._held_out.get(f"held_out/{self._settings.main_reward}"), step.get("main/mean")
        if (agreement := self._mean_so_far("agreement", _agreement(step))) is not None:
            added |= {"main/agreement": agreement, "main/disagreement": 1 - abs(agreement)}
        means = {"main/unseen": f"rewards/{self._settings.main_reward}/unseen"}
        for quantity, name in {**means, "advantage/agreement": "advantage/reward_correlation"}.items():
            if (mean := self._mean_so_far(name, step.get(name))) is not None:
                added[quantity] = mean
        if held_out is not None and "held_out/start" in step:
            added["held_out/change"] = held_out - step["held_out/start"]
        if (mean := self._mean_so_far("main", value, least=1)) is not None and held_out is not None:
            added["held_out/over_training"] = held_out / max(mean, 0.01)
        if self._is_new and value is not None and held_out is not None:
            added["held_out/of_training"] = held_out / max(value, 0.01)
            self._is_new = False
        return added


def _agreement(step: Record) -> float | None:
    """Return the correlation of what is trained on and the main reward: 0 if only the former is constant."""
    if (logged := step.get("main/sum_correlation")) is not None:
        return float(logged)
    reward, spread = step.get("reward"), step.get("reward_std")
    is_constant = reward is not None and spread is not None and spread <= 1e-6 * max(abs(reward), 1.0)
    return 0.0 if is_constant and (step.get("main/std") or 0.0) > 1e-6 else None


def _scores(step: Record, settings: StageSettings) -> dict[str, float]:
    """Return the measures of success of a step: the held-out score, and the rewards that are only logged.

    The reward that is evaluated counts, also if it is trained on. All are shares, from 0 to 1.
    """
    logged = [label for label, weight in settings.weights.items() if weight == 0]
    names = {f"rewards/{label}/mean": label for label in dict.fromkeys([*logged, settings.main_reward])}
    names[f"held_out/{settings.main_reward}"] = f"held-out {settings.main_reward}"
    values = {text: step.get(name) for name, text in names.items()}
    return {text: value for text, value in values.items() if value is not None and 0 <= value <= 1}


def _quantities(step: Record, settings: StageSettings) -> dict[str, float]:
    """Return the quantities of one step that follow from its metrics and the settings."""
    weights, added = settings.weights, {}
    for name in ("mean", "std", "change", "sum_correlation"):
        if (value := step.get(f"rewards/{settings.main_reward}/{name}")) is not None:
            added[f"main/{name}"] = value
    if (share := step.get("completions/distinct")) is not None:
        added["completions/per_prompt"] = share * settings["trainer.num_generations"]
    reward, spread = step.get("reward"), step.get("reward_std")
    if reward is not None and (maximum := sum(max(weight, 0.0) for weight in weights.values())):
        added["reward/of_maximum"] = reward / maximum
    if reward is not None and spread:
        added["reward/offset"] = abs(reward) / spread
    parts = [abs(weight) * (step.get(f"rewards/{label}/std") or 0.0) for label, weight in weights.items()]
    if spread is not None and len(parts) > 1 and max(parts) > 0:
        added["reward/of_parts"] = spread / max(parts)
    return added | _of_losses(step, settings["critic.warmup_steps"] or 0)


def _of_losses(step: Record, critic_warmup: int) -> dict[str, float]:
    """Return the quantities of policy and critic; during its warm-up only the critic is trained."""
    added = {"policy/grad_norm": step["grad_norm"]} if step["step"] > critic_warmup else {}
    clipped = sum(step.get(f"policy_loss/clipped_{side}") or 0.0 for side in ("low", "high"))
    if clipped > 0:  # the first update on a batch clips nothing, and says nothing about the others
        added["policy_loss/clipped"] = clipped
    predicted, target, spread = (step.get(name) for name in ("critic/value", "critic/return", "advantage/std"))
    if predicted is not None and target is not None and spread:
        added["critic/gap"] = abs(predicted - target) / spread
    return added


def of_settings(settings: StageSettings) -> dict[str, float]:
    """Return the quantities that are known before the first step.

    They begin with `adapter/`, `full/` or `settings/`; the table `quantities` of rules.toml has their meanings.
    """
    rate, steps = settings["trainer.learning_rate"], settings.max_steps
    decay, warmup = settings["trainer.weight_decay"], settings["trainer.warmup_steps"]
    values = {name: settings[path] for name, path in _OF_RECIPE.items()}
    weights = settings.weights
    values |= {"main_weight": weights.get(settings.main_reward), "forbidden_tokens": settings.forbidden_tokens}
    values |= {f"beta/{name}": beta for name, beta in settings.betas.items()}
    values |= {f"strength/{name}": x / LARGEST[name] for name, x in settings.betas.items() if name in LARGEST}
    evaluated = settings["evaluation.max_new_tokens"]
    sampled = (settings.section.get("trainer") or {}).get("max_completion_length")  # a stage of SFT samples nothing
    values["evaluated_length"] = evaluated / sampled if _is_number(evaluated) and _is_number(sampled) else None
    values["total_weight"] = sum(map(abs, weights.values())) if weights else None
    values["random_adapter"] = float(settings["model.lora.init_lora_weights"] is False)
    values["decay"] = rate * decay if _is_number(rate) and _is_number(decay) else None
    values["warmup"] = warmup / steps if _is_number(warmup) and steps else None
    quantities = {f"settings/{name}": float(value) for name, value in values.items() if _is_number(value)}
    return quantities | (_of_rate(settings, rate) if _is_number(rate) else {})


def _of_rate(settings: StageSettings, rate: float) -> dict[str, float]:
    """Return the quantities of the learning rate, by optimizer and trained weights."""
    if str(settings["trainer.optim"]).startswith(("sgd", "rmsprop")):
        return {"settings/sgd_rate": rate}
    if settings["model.lora"]:
        scaled = rate * settings.adapter_scale
        displacement = {"adapter/displacement": scaled * settings.max_steps} if settings.max_steps else {}
        return {"adapter/learning_rate": scaled, **displacement}
    is_pretrained = settings["model.name"] == "pretrained" and settings["rewards"]
    return {"full/learning_rate": rate, **({"full/pretrained_rate": rate} if is_pretrained else {})}


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
